//! Checks speech sources.

use super::leak::Print;
use super::listen::{Sound, is_crowded, listen};
use super::place::{CheckOptions, Look, Place};
use super::report::{Long, ProblemKind, Severity, SourceCheck, Spread, Unspellable};
use crate::backbone::SpeechBackbone;
use crate::speech::{Piece, Spoken, Tokens, divided, lengths, most_samples};
use crate::{Experiment, LongAudio, SourceConfig, SpeechDataset, SpeechError, SpeechSample, Synthesised};
use indicatif::ProgressBar;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use undertone_data::audio::{AudioError, SAMPLE_RATE};
use undertone_data::clips::{Clip, Clips};
use undertone_data::loader::{Dataset, OnBadSample, SampleError};
use undertone_data::text::BasicNormalizer;
use undertone_model::whisper::{TokenizerError, language_code};

/// Maximum number of synthesised clips made for the check.
const DRAWN: usize = 256;
/// Minimum bin width of durations, in seconds.
const FINEST: f64 = 0.1;

/// Checks speech sources for a model.
pub(super) struct Speech<'a> {
    pub experiment: &'a Experiment,
    pub backbone: &'a SpeechBackbone,
    pub tokens: Tokens,
    pub options: &'a CheckOptions<'a>,
}

impl<'a> Speech<'a> {
    pub fn new(experiment: &'a Experiment, backbone: &'a SpeechBackbone, options: &'a CheckOptions<'a>) -> Self {
        Self { experiment, backbone, tokens: Tokens::new(experiment, backbone), options }
    }

    /// Returns the model's window, in samples.
    fn window(&self) -> usize {
        self.backbone.window()
    }

    /// Returns the model's window, in seconds.
    pub fn seconds(&self) -> f64 {
        self.window() as f64 / f64::from(SAMPLE_RATE)
    }

    /// Checks a source.
    pub fn source(&self, look: &mut Look, source: &SourceConfig) -> (SourceCheck, Vec<Print>) {
        let mut check = SourceCheck::of(source, self.tokens.positions());
        if let Some(synthesised) = source.synthesised() {
            self.synthesised(look, source, synthesised, &mut check);
            return (check, Vec::new());
        }
        match source.usable_clips() {
            Ok((clips, unusable)) => {
                let all = clips.len() + unusable.len();
                let rows = unusable.iter().map(ToString::to_string);
                look.add(self.bad_texts(unusable.len(), all), ProblemKind::Rows, all, rows);
                let prints = self.recordings(look, &clips, &mut check);
                (check, prints)
            }
            Err(error) => {
                look.add(Severity::Failure, ProblemKind::Source, 1, [error.to_string()]);
                (check, Vec::new())
            }
        }
    }

    fn recordings(&self, look: &mut Look, clips: &Clips, check: &mut SourceCheck) -> Vec<Print> {
        let name = |index: usize| clips.clip(index).name.as_str();
        let (window, seconds_at_once) = (self.window(), self.seconds());
        let mut bad: Vec<(usize, AudioError)> = clips.problems().into_iter().map(|p| (p.index, p.error)).collect();
        let known_bad: HashSet<usize> = bad.iter().map(|(index, _)| *index).collect();
        let lengths = lengths(clips, &["long_audio"], |_| ProgressBar::hidden());
        let division = divided(clips, seconds_at_once, &lengths);
        let texts = self.texts(look, clips, &division.pieces, check);

        let mut sounds: Vec<Option<Sound>> = vec![None; clips.len()];
        if self.options.audio {
            let decoded = listen(clips, &known_bad, &format!("{}: decoding", look.at), self.options.progress);
            for (index, sound) in decoded.into_iter().enumerate() {
                match sound {
                    Some(Ok(sound)) => sounds[index] = Some(sound),
                    Some(Err(error)) => bad.push((index, error)),
                    None => {}
                }
            }
            check.decoded = Some(sounds.iter().flatten().count());
        }
        let seconds: Vec<Option<f64>> = (0..clips.len())
            .map(|index| match sounds[index] {
                Some(sound) => Some(sound.seconds()),
                None if known_bad.contains(&index) => None,
                None => lengths[index],
            })
            .collect();

        let severity = self.bad_audio(look.place, bad.len(), clips.len());
        let (outside, unreadable): (Vec<_>, Vec<_>) =
            bad.iter().partition(|(_, error)| matches!(error, AudioError::OutsideFile { .. }));
        for (kind, which) in [(ProblemKind::OutsideFile, outside), (ProblemKind::Unreadable, unreadable)] {
            look.add(severity, kind, clips.len(), which.into_iter().map(|(_, error)| error.to_string()));
        }
        let segments = division.unusable.iter().map(|(index, error)| format!("`{}` ({error})", name(*index)));
        look.add(self.bad_texts(division.unusable.len(), clips.len()), ProblemKind::Segments, clips.len(), segments);

        let bad_lengths = self.bad_texts(division.long.len(), clips.len());
        let long = division.long.iter().map(|(index, s)| format!("`{}` ({s:.2} s)", name(*index)));
        match self.experiment.data.long_audio {
            LongAudio::Refuse => look.add(bad_lengths, ProblemKind::TooLong, clips.len(), long),
            LongAudio::Align => look.add(Severity::Note, ProblemKind::Aligned, clips.len(), long),
        }
        // Clips that are longer than their header says.
        let whole = division.pieces.iter().filter(|piece| piece.part.is_none()).map(|piece| piece.clip);
        let longer: Vec<(usize, Sound)> = whole
            .filter_map(|clip| Some((clip, sounds[clip]?)))
            .filter(|(_, sound)| sound.samples > most_samples(window))
            .collect();
        let severity = self.bad_audio(look.place, longer.len(), clips.len());
        let named = longer.iter().map(|(clip, sound)| format!("`{}` ({:.3} s)", name(*clip), sound.seconds()));
        look.add(severity, ProblemKind::TooLong, clips.len(), named);

        let pieces_of_cut: Vec<usize> = division.pieces.iter().filter(|p| p.part.is_some()).map(|p| p.clip).collect();
        check.long = Long {
            cut: pieces_of_cut.iter().collect::<HashSet<_>>().len(),
            pieces: pieces_of_cut.len(),
            without_times: division.long.len() + longer.len(),
        };
        check.samples = clips.len();
        check.unknown_lengths =
            seconds.iter().enumerate().filter(|(i, s)| s.is_none() && !known_bad.contains(i)).count();
        check.seconds = Spread::of(seconds.iter().flatten().copied().collect(), FINEST);
        check.hours = check.seconds.as_ref().map(|spread| spread.total / 3600.0);
        check.tokens = Spread::of(texts.iter().map(|tokens| *tokens as f64).collect(), 1.0);
        self.audible(look, clips, &sounds, &seconds);
        self.prints(clips, &sounds, &seconds)
    }

    /// Checks the texts. Returns the number of tokens of each piece that can be encoded, prompt included.
    fn texts(&self, look: &mut Look, clips: &Clips, pieces: &[Piece], check: &mut SourceCheck) -> Vec<usize> {
        let all: Vec<&Clip> = (0..clips.len()).map(|index| clips.clip(index)).collect();
        let data = &self.experiment.data;
        let multilingual = self.backbone.tokenizer.is_multilingual();
        let counted = |given: fn(&Clip) -> Option<&str>, default: &str| {
            let mut counts = BTreeMap::new();
            for name in all.iter().filter_map(|clip| given(clip).or(multilingual.then_some(default))) {
                *counts.entry(name.to_owned()).or_insert(0) += 1;
            }
            counts
        };
        check.languages = counted(|clip| clip.language.as_deref(), &data.language);
        check.tasks = counted(|clip| clip.task.as_deref(), &data.task);
        check.empty_texts = all.iter().filter(|clip| clip.text.trim().is_empty()).count();
        let empty = all.iter().filter(|clip| clip.text.trim().is_empty()).map(|clip| format!("`{}`", clip.name));
        look.add(Severity::Note, ProblemKind::Empty, clips.len(), empty);
        if !multilingual && self.backbone.whisper().is_some() {
            let english = |language: &str| language_code(language) == "en";
            let foreign = all.iter().filter_map(|clip| clip.language.as_deref().map(|language| (clip, language)));
            let foreign = foreign.filter(|(_, language)| !english(language));
            let named = foreign.map(|(clip, language)| format!("`{}` ({language})", clip.name));
            look.add(Severity::Warning, ProblemKind::EnglishOnly, clips.len(), named);
        }

        let timed = look.place.training() && data.timestamps > 0.0;
        let encoded = pieces.par_iter().map(|piece| {
            let clip = clips.clip(piece.clip);
            let (language, task) = (clip.language.as_deref(), clip.task.as_deref());
            let timed = piece.timed.as_deref().filter(|_| timed);
            self.tokens.encode("", Spoken { text: &piece.text, timed, previous: None, language, task })
        });
        let lowercased = look.place.training() && data.augment.text.lowercase > 0.0;
        let mut lengths = Vec::with_capacity(pieces.len());
        let mut bad: BTreeMap<ProblemKind, Vec<String>> = BTreeMap::new();
        let mut characters = Characters::new(&self.tokens);
        for (piece, encoded) in pieces.iter().zip(encoded.collect::<Vec<_>>()) {
            let source = match encoded {
                Ok((ids, _)) => {
                    lengths.push(self.tokens.length(&ids));
                    if lowercased && let Some(what) = self.unspelt_lowercase(piece, &mut characters, &piece.name(clips))
                    {
                        bad.entry(ProblemKind::Unspellable).or_default().push(what);
                    }
                    continue;
                }
                Err(SpeechError::Text { source, .. }) => source,
                Err(other) => {
                    bad.entry(ProblemKind::Refused).or_default().push(other.to_string());
                    continue;
                }
            };
            let name = piece.name(clips);
            let (kind, what) = match &source {
                TokenizerError::TooLong { tokens, room, .. } => {
                    lengths.push(*tokens);
                    (ProblemKind::LongText, format!("{tokens} tokens, {room} fit"))
                }
                TokenizerError::Unspellable { .. } => (ProblemKind::Unspellable, characters.note(&piece.text, &name)),
                TokenizerError::Control { token, .. } => (ProblemKind::Control, token.clone()),
                TokenizerError::NoToken { token, .. } => (ProblemKind::NoToken, token.clone()),
                TokenizerError::Format(reason) | TokenizerError::Training(reason) => {
                    (ProblemKind::Refused, reason.clone())
                }
            };
            bad.entry(kind).or_default().push(format!("`{name}` ({what})"));
        }
        check.unspellable = characters.most_frequent();
        let severity = self.bad_texts(bad.values().map(Vec::len).sum(), pieces.len());
        for (kind, samples) in bad {
            look.add(severity, kind, pieces.len(), samples);
        }
        lengths
    }

    /// Returns what the tokenizer cannot spell of a text that training may write in lower case.
    fn unspelt_lowercase(&self, piece: &Piece, characters: &mut Characters, name: &str) -> Option<String> {
        let text = piece.text.to_lowercase();
        let spoken = Spoken { text: &text, timed: None, previous: None, language: None, task: None };
        let error = self.tokens.encode("", spoken).err()?;
        matches!(error, SpeechError::Text { source: TokenizerError::Unspellable { .. }, .. })
            .then(|| format!("`{name}` ({}, by `data.augment.text.lowercase`)", characters.note(&text, name)))
    }

    /// Checks the loudness of recordings, clipping, and the length of texts for their duration.
    fn audible(&self, look: &mut Look, clips: &Clips, sounds: &[Option<Sound>], seconds: &[Option<f64>]) {
        let mut add = |kind, is: &dyn Fn(&Sound) -> Option<String>| {
            let named = sounds.iter().enumerate().filter_map(|(index, sound)| {
                let clip = clips.clip(index);
                // Silence without a text is correct.
                let spoken = !clip.text.trim().is_empty();
                let what = is(&sound.filter(|_| spoken || kind == ProblemKind::Clipped)?)?;
                Some(format!("`{}` ({what})", clip.name))
            });
            look.add(Severity::Warning, kind, clips.len(), named);
        };
        let loudness = |sound: &Sound| match sound.db.is_finite() {
            true => format!("{:.0} dB", sound.db),
            false => "only zeros".to_owned(),
        };
        add(ProblemKind::Silent, &|sound| sound.is_silent().then(|| loudness(sound)));
        add(ProblemKind::Quiet, &|sound| sound.is_quiet().then(|| loudness(sound)));
        add(ProblemKind::Clipped, &|sound| sound.is_clipped().then(|| format!("{:.1} % of it", 100.0 * sound.clipped)));
        let divided = sounds.iter().enumerate().filter_map(|(index, sound)| {
            let divided_by = (*sound)?.divided_by?;
            Some(format!("`{}` (by {divided_by})", clips.clip(index).name))
        });
        look.add(Severity::Warning, ProblemKind::Divided, clips.len(), divided);
        let crowded = (0..clips.len()).filter_map(|index| {
            let (clip, seconds) = (clips.clip(index), seconds[index]?);
            let count = clip.text.chars().count();
            is_crowded(&clip.text, seconds).then(|| format!("`{}` ({count} characters in {seconds:.2} s)", clip.name))
        });
        look.add(Severity::Warning, ProblemKind::Crowded, clips.len(), crowded);
    }

    fn prints(&self, clips: &Clips, sounds: &[Option<Sound>], seconds: &[Option<f64>]) -> Vec<Print> {
        let normalizer = BasicNormalizer::default();
        let print = |index: usize| {
            let clip = clips.clip(index);
            let bounds = [clip.start, clip.end].map(|bound| bound.map(f64::to_bits));
            // All silence of the same length is identical, so it does not identify a sample.
            let audible = sounds[index].filter(|sound| sound.db.is_finite());
            Print {
                name: clip.name.clone(),
                recording: Some((clips.recording(index), bounds)),
                audio: audible.map(|sound| sound.key),
                seconds: seconds[index],
                text: normalizer.normalize(&clip.text).trim().to_owned(),
                passages: Vec::new(),
                written: false,
            }
        };
        (0..clips.len()).into_par_iter().map(print).collect()
    }

    fn synthesised(&self, look: &mut Look, source: &SourceConfig, synthesised: &Synthesised, check: &mut SourceCheck) {
        let place = look.place;
        let samples = SpeechDataset::new(self.experiment, &[source], self.backbone, place.training(), place.seed);
        let samples = match samples {
            Ok(samples) => samples,
            Err(error) => return look.add(Severity::Failure, ProblemKind::Source, 1, [error.to_string()]),
        };
        // First epoch of each stage of a curriculum, and of the rest.
        let ends = synthesised.stages.iter().scan(0, |end, stage| {
            *end += stage.epochs;
            Some(*end)
        });
        let begins: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let drawn = DRAWN.min(samples.len() * begins.len());
        self.options.progress.begin(&format!("{}: making samples", look.at), drawn);
        let draws: Vec<Result<SpeechSample, SampleError>> = (0..drawn)
            .into_par_iter()
            .map(|draw| {
                let sample = samples.get(draw / begins.len(), begins[draw % begins.len()]);
                self.options.progress.step();
                sample
            })
            .collect();
        self.options.progress.end();
        let (mut made, mut bad) = (Vec::new(), Vec::new());
        for draw in draws {
            match draw {
                Ok(sample) => made.push(sample),
                Err(error) => bad.push(error),
            }
        }
        let severity = self.bad_audio(place, bad.len(), drawn);
        let too_long = |error: &SampleError| {
            matches!(
                error.downcast_ref::<SpeechError>(),
                Some(SpeechError::Text { source: TokenizerError::TooLong { .. }, .. })
            )
        };
        let (long, other): (Vec<_>, Vec<_>) = bad.into_iter().partition(too_long);
        for (kind, errors) in [(ProblemKind::LongText, long), (ProblemKind::Refused, other)] {
            look.add(severity, kind, drawn, errors.iter().map(ToString::to_string));
        }
        let seconds = |sample: &SpeechSample| sample.audio.samples() as f64 / f64::from(SAMPLE_RATE);
        check.samples = samples.len();
        check.drawn = Some(drawn);
        check.seconds = Spread::of(made.iter().map(seconds).collect(), FINEST);
        let mean = check.seconds.as_ref().map(|spread| spread.total / spread.count as f64);
        check.hours = mean.map(|mean| mean * samples.len() as f64 / 3600.0);
        check.tokens = Spread::of(made.iter().map(|sample| self.tokens.length(&sample.tokens) as f64).collect(), 1.0);
        check.empty_texts = made.iter().filter(|sample| sample.text.is_empty()).count();
    }

    /// Returns the severity of what the dataset can leave out, and the loader cannot: texts that cannot be encoded, rows without
    /// audio, recordings that are too long.
    fn bad_texts(&self, bad: usize, of: usize) -> Severity {
        let data = &self.experiment.data;
        let skipped = data.on_bad_sample == OnBadSample::Skip && bad as f64 <= data.max_bad_share * of as f64;
        if skipped { Severity::Warning } else { Severity::Failure }
    }

    /// Returns the severity of unusable audio. The loader can skip some in training, and none in other splits.
    fn bad_audio(&self, place: &Place, bad: usize, of: usize) -> Severity {
        if place.training() { self.bad_texts(bad, of) } else { Severity::Failure }
    }
}

/// Characters that cannot be encoded.
struct Characters<'a> {
    tokens: &'a Tokens,
    /// Whether each character seen so far can be encoded.
    spelt: HashMap<char, bool>,
    found: HashMap<char, Unspellable>,
}

impl<'a> Characters<'a> {
    fn new(tokens: &'a Tokens) -> Self {
        Self { tokens, spelt: HashMap::new(), found: HashMap::new() }
    }

    /// Counts the characters of a text that cannot be encoded, and returns them as a list.
    fn note(&mut self, text: &str, name: &str) -> String {
        let mut listed: Vec<char> = Vec::new();
        for character in text.chars() {
            let tokenizer = self.tokens.tokenizer();
            let spelt = self.spelt.entry(character).or_insert_with(|| tokenizer.encode(&character.to_string()).is_ok());
            if !*spelt && !listed.contains(&character) {
                listed.push(character);
            }
        }
        for character in &listed {
            let new = || Unspellable { character: *character, texts: 0, example: name.to_owned() };
            self.found.entry(*character).or_insert_with(new).texts += 1;
        }
        listed.iter().map(|character| format!("{character:?}")).collect::<Vec<_>>().join(" ")
    }

    fn most_frequent(self) -> Vec<Unspellable> {
        let mut found: Vec<Unspellable> = self.found.into_values().collect();
        found.sort_unstable_by_key(|one| (std::cmp::Reverse(one.texts), one.character));
        found
    }
}
