//! Samples from recordings: cutting, augmentation and tokenization.

use super::align::{Aligner, Listener};
use super::error::{Listed, SpeechError, too_long};
use super::lengths::{aloud, lengths};
use super::pack::{GAP, Room, packed};
use super::pieces::{Piece, divided, most_samples};
use super::sample::{SampleAudio, SpeechSample};
use super::state_cache::StateCache;
use super::tokens::{Spoken, Tokens};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::augment::Augment;
use undertone_data::cache::{Cache, Key};
use undertone_data::clips::Clips;
use undertone_data::cut::TimedText;
use undertone_data::features::{HOP, LogMel, Mel};
use undertone_data::loader::SampleError;
use undertone_data::text::append;
use undertone_model::whisper::TokenizerError;

/// Samples of a manifest, a folder or shards: whole clips, pieces of long ones, or short ones packed together.
pub(super) struct Recordings {
    clips: Clips,
    pieces: Vec<Piece>,
    /// Range of pieces of each sample; one piece each without packing.
    samples: Vec<Range<usize>>,
    treatment: Treatment,
}

/// Processing of the recordings of a split.
#[derive(Clone, Default)]
pub(super) struct Treatment {
    /// Maximum length of audio, in samples.
    pub window: usize,
    /// Augmentation of audio and text; features are augmented where batches are made.
    pub augment: Option<Arc<Augment>>,
    /// Cache of decoded audio or features.
    pub cache: Option<Arc<Cache>>,
    /// Feature extractor, if features are cached.
    pub features: Option<Arc<LogMel>>,
    /// Cache of the encoder's states.
    pub states: Option<Arc<StateCache>>,
    /// Share of samples with timestamp tokens.
    pub timestamps: f64,
    /// Share of samples with the preceding text in the prompt.
    pub previous_text: f64,
    /// Whether short recordings are packed into common windows.
    pub pack: bool,
    /// Maximum factor by which augmentation lengthens a recording.
    pub stretch: f64,
    /// Keys of `data` that need the duration of every recording: batches by length, or packing.
    pub lengths: Vec<&'static str>,
    /// Maximum share of unusable recordings that may be left out; `None` if none may.
    pub skip: Option<f64>,
}

impl Recordings {
    /// Cuts clips into pieces that fit the window, and checks that their texts can be encoded. `aligner` aligns long
    /// clips without segment times; without an aligner, such clips are refused.
    ///
    /// # Errors
    /// Names the number of unusable clips, and the first of them.
    pub fn new<L: Listener>(
        clips: Clips,
        tokens: &Tokens,
        treatment: Treatment,
        aligner: Option<&Aligner<L>>,
        seed: u64,
    ) -> Result<Self, SpeechError> {
        let window = treatment.window as f64 / f64::from(SAMPLE_RATE);
        let keys = [&treatment.lengths[..], if aligner.is_some() { &["long_audio"] } else { &[] }].concat();
        let division = divided(&clips, window, &lengths(&clips, &keys, aloud));
        let name = |clip: usize| clips.clip(clip).name.clone();
        let unusable = division.unusable.into_iter();
        let mut unusable: Vec<_> =
            unusable.map(|(clip, source)| SpeechError::Segments { name: name(clip), source }).collect();
        if treatment.skip.is_none() && !unusable.is_empty() {
            return Err(unusable.swap_remove(0));
        }
        leave_out(&unusable, clips.len(), treatment.skip, SpeechError::Unreadable)?;
        let mut pieces = division.pieces;
        match aligner {
            Some(aligner) if !division.long.is_empty() => {
                let (aligned, unreadable) =
                    aligner.align(&clips, &division.long, treatment.window, treatment.skip.is_some())?;
                leave_out(&unreadable, clips.len(), treatment.skip, SpeechError::Unreadable)?;
                pieces.extend(aligned);
            }
            _ if !division.long.is_empty() => {
                let names = division.long.iter().map(|(clip, s)| format!("`{}` ({s:.2} s)", name(*clip)));
                leave_out(names, clips.len(), treatment.skip, |listed| SpeechError::TooLong { listed, window })?;
            }
            _ => {}
        }
        if !pieces.is_empty() {
            check_options(tokens, &treatment)?;
            pieces = spelt(pieces, &clips, tokens, &treatment)?;
        }
        if pieces.is_empty() && !clips.is_empty() {
            return Err(SpeechError::Nothing(clips.len()));
        }
        let samples;
        (pieces, samples) = if treatment.pack {
            shared(pieces, &clips, tokens, &treatment, seed)
        } else {
            let each = (0..pieces.len()).map(|index| index..index + 1).collect();
            (pieces, each)
        };
        Ok(Self { clips, pieces, samples, treatment })
    }

    /// Returns the samples of each shard; `None` if short recordings are packed, or if there are no shards.
    pub fn blocks(&self) -> Option<Vec<Range<usize>>> {
        let blocks = self.clips.blocks().filter(|_| !self.treatment.pack)?;
        let first_of = |clip: usize| self.pieces.partition_point(|piece| piece.clip < clip);
        let in_order = self.pieces.is_sorted_by_key(|piece| piece.clip);
        in_order.then(|| blocks.iter().map(|block| first_of(block.start)..first_of(block.end)).collect())
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn name(&self, index: usize) -> String {
        let pieces = &self.pieces[self.samples[index].clone()];
        let more = match pieces.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        pieces[0].name(&self.clips) + &more
    }

    /// Returns the duration of a sample in seconds, if it is known without decoding.
    pub fn seconds(&self, index: usize) -> Option<f64> {
        let pieces = &self.pieces[self.samples[index].clone()];
        let gaps = ((pieces.len() - 1) * GAP) as f64 / f64::from(SAMPLE_RATE);
        pieces.iter().map(|piece| piece.seconds).sum::<Option<f64>>().map(|seconds| seconds + gaps)
    }

    /// Returns a sample; `draw` is the seed of everything random about it.
    ///
    /// # Errors
    /// If its audio cannot be read, or its text does not fit the model.
    pub fn get(&self, index: usize, draw: u64, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let range = self.samples[index].clone();
        let name = self.name(index);
        let mut whole = self.part(&self.pieces[range.start], draw)?;
        for (place, piece) in (1..).zip(&self.pieces[range.start + 1..range.end]) {
            whole.append(self.part(piece, undertone_ops::seeds::of_piece(draw, place))?);
        }
        let first = &self.pieces[range.start];
        let Treatment { timestamps, previous_text, window, .. } = self.treatment;
        // The length of features is known to the frame.
        let rounding = if matches!(whole.audio, SampleAudio::Features(_)) { HOP } else { 0 };
        if whole.audio.samples() > most_samples(window) + rounding {
            return Err(too_long(&name, whole.audio.samples(), window).into());
        }
        if let SampleAudio::Audio(audio) = &mut whole.audio {
            audio.truncate(window);
        }
        let previous = first.follows.then(|| self.pieces[range.start - 1].text.as_str());
        let encoded = |whole: &Part| {
            let spoken = Spoken {
                text: &whole.text,
                timed: whole.timed.as_deref().filter(|_| chance(draw, "timestamps", timestamps)),
                previous: previous.filter(|_| chance(draw, "previous_text", previous_text)),
                ..prompting(&self.clips, first)
            };
            tokens.encode(&name, spoken)
        };
        let (ids, prompt) = match encoded(&whole) {
            // Augmentation may lengthen a text beyond the limit; the original text is known to fit.
            Err(SpeechError::Text { source: TokenizerError::TooLong { .. }, .. })
                if self.treatment.augment.is_some() =>
            {
                whole.say_again(&self.pieces[range.clone()]);
                encoded(&whole)?
            }
            encoded => encoded?,
        };
        let Part { audio, states, text, .. } = whole;
        let columns = self.clips.clip(first.clip).origin.columns();
        Ok(SpeechSample { name, audio, states, text, tokens: ids, prompt, alignment: None, columns, draw })
    }

    /// Returns audio and text of a piece, augmented in the training split.
    fn part(&self, piece: &Piece, draw: u64) -> Result<Part, SampleError> {
        let (audio, states) = self.load_audio(piece)?;
        let mut part = Part { audio, states, text: piece.text.clone(), timed: piece.timed.clone() };
        if let Some(augment) = &self.treatment.augment {
            if let SampleAudio::Audio(audio) = &mut part.audio {
                let factor = augment.audio(audio, draw);
                part.timed = part.timed.map(|timed| timed.iter().map(|part| part.scaled(factor)).collect());
            }
            part.text = augment.text(&part.text, draw);
            for timed in part.timed.iter_mut().flatten() {
                timed.text = augment.text(&timed.text, draw);
            }
        }
        Ok(part)
    }

    /// Returns a piece, and the key of its states if they are to be kept.
    fn load_audio(&self, piece: &Piece) -> Result<(SampleAudio, Option<Key>), SampleError> {
        let Some(states) = &self.treatment.states else { return Ok((self.load_cached(piece)?, None)) };
        let key = states.key(self.clips.key(piece.clip).as_bytes(), &format!("{:?}", piece.part));
        match states.get(&key) {
            Some(found) => Ok((SampleAudio::States(found), None)),
            None => Ok((self.load_cached(piece)?, Some(key))),
        }
    }

    /// Returns audio or features.
    fn load_cached(&self, piece: &Piece) -> Result<SampleAudio, SampleError> {
        let load = || piece.load(&self.clips);
        let Some(cache) = &self.treatment.cache else { return Ok(SampleAudio::Audio(load()?)) };
        let part = format!("{:?}", piece.part);
        let recording = self.clips.key(piece.clip);
        match &self.treatment.features {
            None => {
                let key = Key::new(&[b"audio", recording.as_bytes(), part.as_bytes()]);
                Ok(SampleAudio::Audio(cache.get_or_compute(&key, load)?))
            }
            Some(log_mel) => {
                let bins = (log_mel.bins() as u64).to_le_bytes();
                let key = Key::new(&[b"features", &bins, recording.as_bytes(), part.as_bytes()]);
                Ok(SampleAudio::Features(
                    cache.get_or_compute(&key, || Ok::<Mel, SampleError>(log_mel.features_and_silence(&load()?)))?,
                ))
            }
        }
    }

    /// Returns the cache, if there is one.
    pub fn cache(&self) -> Option<&Cache> {
        self.treatment.cache.as_deref()
    }

    /// Fills the cache with all pieces. Calls `done` after each; for a piece that cannot be read, with its name and the
    /// error.
    pub fn keep(&self, done: &(dyn Fn(Result<(), (String, SampleError)>) + Sync)) {
        // Neighbours in a file are read together.
        self.pieces.iter().par_bridge().for_each(|piece| {
            done(self.load_audio(piece).map(drop).map_err(|error| (piece.name(&self.clips), error)));
        });
    }

    /// Returns the number of recordings.
    pub fn recordings(&self) -> usize {
        self.clips.len()
    }

    /// Returns the names of the recordings without a text.
    pub fn without_text(&self) -> impl Iterator<Item = &str> {
        let clips = (0..self.clips.len()).map(|index| self.clips.clip(index));
        clips.filter(|clip| clip.text.trim().is_empty()).map(|clip| clip.name.as_str())
    }

    /// Returns the number of pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns a sample as large as any: with the longest audio, and with as many tokens as the longest text.
    ///
    /// # Errors
    /// If a text does not fit the model.
    pub fn most_demanding(&self, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let mut longest: Option<(Vec<u32>, usize)> = None;
        let mut audio = 0;
        for (index, range) in self.samples.iter().enumerate() {
            let (text, times) = said(&self.pieces[range.clone()]);
            let first = &self.pieces[range.start];
            let previous = first.follows.then(|| self.pieces[range.start - 1].text.as_str());
            let spoken = Spoken {
                text: &text,
                timed: times.as_deref().filter(|_| self.treatment.timestamps > 0.0),
                previous: previous.filter(|_| self.treatment.previous_text > 0.0),
                ..prompting(&self.clips, first)
            };
            let found = tokens.encode(&self.name(index), spoken)?;
            if longest.as_ref().is_none_or(|(ids, _)| found.0.len() > ids.len()) {
                longest = Some(found);
            }
            // Augmentation makes some longer; without it `stretch` is 0.
            let stretch = self.treatment.stretch.max(1.0);
            let length =
                self.seconds(index).map(|seconds| (seconds * stretch * f64::from(SAMPLE_RATE)).ceil() as usize);
            audio = audio.max(length.unwrap_or(self.treatment.window).min(self.treatment.window));
        }
        let (tokens, prompt) = longest.ok_or("there are no samples")?;
        let (name, text) = ("the longest recording".into(), String::new());
        let audio = SampleAudio::Audio(vec![0.0; audio]);
        let columns = BTreeMap::new();
        Ok(SpeechSample { name, audio, states: None, text, tokens, prompt, alignment: None, columns, draw: 0 })
    }
}

/// Audio and text of one piece, or of several that share a window.
struct Part {
    audio: SampleAudio,
    /// Key of its states if they are to be kept; packed recordings have none.
    states: Option<Key>,
    text: String,
    timed: Option<Vec<TimedText>>,
}

impl Part {
    /// Appends another part. Features are never joined.
    fn append(&mut self, other: Self) {
        let (SampleAudio::Audio(audio), SampleAudio::Audio(more)) = (&mut self.audio, other.audio) else { return };
        audio.extend(std::iter::repeat_n(0.0, GAP));
        let from = audio.len() as f64 / f64::from(SAMPLE_RATE);
        audio.extend(more);
        append(&mut self.text, &other.text);
        self.timed = self.timed.take().zip(other.timed).map(|(mut timed, more)| {
            timed.extend(more.iter().map(|part| part.later(from)));
            timed
        });
    }

    /// Restores the text of its pieces as it was before augmentation.
    fn say_again(&mut self, pieces: &[Piece]) {
        let (text, timed) = said(pieces);
        self.text = text;
        for (part, unchanged) in self.timed.iter_mut().flatten().zip(timed.into_iter().flatten()) {
            part.text = unchanged.text;
        }
    }
}

/// Returns the text of pieces that share a window, and its timed parts if all pieces have them. The times are relative
/// to the beginning of the piece.
fn said(pieces: &[Piece]) -> (String, Option<Vec<TimedText>>) {
    let text = pieces.iter().fold(String::new(), |mut text, piece| {
        append(&mut text, &piece.text);
        text
    });
    let timed: Option<Vec<_>> = pieces.iter().map(|piece| piece.timed.clone()).collect();
    (text, timed.map(|timed| timed.concat()))
}

/// Returns the language and task of a piece, without a text.
fn prompting<'a>(clips: &'a Clips, piece: &Piece) -> Spoken<'a> {
    let clip = clips.clip(piece.clip);
    Spoken { language: clip.language.as_deref(), task: clip.task.as_deref(), ..Spoken::default() }
}

/// Packs pieces into windows. Returns the pieces and the range of each window; none exceeds the window or the decoder.
fn shared(
    pieces: Vec<Piece>,
    clips: &Clips,
    tokens: &Tokens,
    treatment: &Treatment,
    seed: u64,
) -> (Vec<Piece>, Vec<Range<usize>>) {
    fn told<'t>(timed: &'t Option<Vec<TimedText>>, treatment: &Treatment) -> Option<&'t [TimedText]> {
        timed.as_deref().filter(|_| treatment.timestamps > 0.0)
    }
    let needed = |piece: &Piece| tokens.room(&piece.text, told(&piece.timed, treatment));
    let needs: Vec<usize> = pieces.par_iter().map(|p| needed(p).unwrap_or(tokens.positions())).collect();
    let prompts = pieces.iter().filter_map(|piece| tokens.prompt(prompting(clips, piece)).ok());
    let prompt = prompts.map(|prompt| prompt.len()).max().unwrap_or_default();
    let seconds = treatment.window as f64 / f64::from(SAMPLE_RATE);
    let room = Room { seconds, tokens: tokens.positions().saturating_sub(prompt) };
    let prompt = |piece: &Piece| (&clips.clip(piece.clip).language, &clips.clip(piece.clip).task);
    let (pieces, windows) = packed(pieces, &needs, room, treatment.stretch, seed, |a, b| prompt(a) == prompt(b));
    // Joined texts, if joined without a space, may have other tokens than each by itself.
    let fits = |range: &Range<usize>| {
        let (text, timed) = said(&pieces[range.clone()]);
        let spoken = |timed| Spoken { text: &text, timed, ..prompting(clips, &pieces[range.start]) };
        [None, told(&timed, treatment)].into_iter().all(|timed| tokens.encode("", spoken(timed)).is_ok())
    };
    let alone = |range: Range<usize>| match range.len() == 1 || fits(&range) {
        true => vec![range],
        false => range.map(|index| index..index + 1).collect(),
    };
    let windows = windows.into_par_iter().flat_map_iter(alone).collect();
    (pieces, windows)
}

/// Refuses options that the model does not support.
fn check_options(tokens: &Tokens, treatment: &Treatment) -> Result<(), SpeechError> {
    let refused = |key, reason: &str| Err(SpeechError::Option { key, reason: reason.to_owned() });
    if treatment.timestamps > 0.0 && !tokens.tell_times() {
        return refused("timestamps", "the model's vocabulary has no times");
    }
    if treatment.previous_text > 0.0 && !tokens.recall() {
        return refused("previous_text", "the model's vocabulary has no token for what was said before");
    }
    Ok(())
}

/// Refuses options that have no effect on any of a split's recordings; of several sources one may be without.
pub(super) fn check_effect(parts: &[&Recordings], treatment: &Treatment) -> Result<(), SpeechError> {
    let refused = |key, reason: &str| Err(SpeechError::Option { key, reason: reason.to_owned() });
    let none = |is: fn(&Piece) -> bool| !parts.iter().any(|part| part.pieces.iter().any(is));
    if parts.iter().all(|part| part.pieces.is_empty()) {
        return Ok(());
    }
    if treatment.timestamps > 0.0 && none(|piece| piece.timed.is_some()) {
        return refused("timestamps", "no recording says when its text is spoken, by segments or by start and end");
    }
    if treatment.previous_text > 0.0 && none(|piece| piece.follows) {
        let reason = "no recording continues another, by segments or by start and end in one file";
        return refused("previous_text", reason);
    }
    Ok(())
}

/// Returns the pieces whose text can be encoded. The others are refused together, or left out if the configuration
/// allows.
fn spelt(pieces: Vec<Piece>, clips: &Clips, tokens: &Tokens, treatment: &Treatment) -> Result<Vec<Piece>, SpeechError> {
    let check = |piece: &Piece| {
        let timed = piece.timed.as_deref().filter(|_| treatment.timestamps > 0.0);
        let spoken = Spoken { text: &piece.text, timed, ..prompting(clips, piece) };
        tokens.encode(&piece.name(clips), spoken).err()
    };
    let problems: Vec<Option<SpeechError>> = pieces.par_iter().map(check).collect();
    let bad = problems.iter().flatten().count();
    match (bad, treatment.skip) {
        (0, _) => return Ok(pieces),
        (1, None) => return problems.into_iter().flatten().next().map_or(Ok(pieces), Err),
        _ => {}
    }
    leave_out(problems.iter().flatten(), pieces.len(), treatment.skip, SpeechError::Texts)?;
    Ok(without(pieces, |place| problems[place].is_some()))
}

/// Logs the items that are left out, or refuses if there are more than `skip` allows.
pub(super) fn leave_out(
    problems: impl IntoIterator<Item = impl ToString>,
    of: usize,
    skip: Option<f64>,
    refusal: impl FnOnce(Listed) -> SpeechError,
) -> Result<(), SpeechError> {
    let listed = Listed::new(problems.into_iter().map(|problem| problem.to_string()), of);
    if listed.count == 0 {
        return Ok(());
    }
    if skip.is_none_or(|share| listed.count as f64 > share * of as f64) {
        return Err(refusal(listed));
    }
    tracing::warn!("left out: {listed}");
    Ok(())
}

/// Returns the pieces without the dropped ones. A piece that followed a dropped one no longer follows the one before
/// it.
fn without(pieces: Vec<Piece>, dropped: impl Fn(usize) -> bool) -> Vec<Piece> {
    let follows = |place: usize| place > 0 && !dropped(place - 1);
    let kept = pieces.into_iter().enumerate().filter(|(place, _)| !dropped(*place));
    kept.map(|(place, piece)| Piece { follows: piece.follows && follows(place), ..piece }).collect()
}

/// Whether an event of probability `p` happens, by the sample's seed; different values of `what` are independent.
fn chance(draw: u64, what: &str, p: f64) -> bool {
    let own = undertone_ops::seeds::of_decision(draw, what);
    ((own >> 11) as f64 / (1_u64 << 53) as f64) < p
}
