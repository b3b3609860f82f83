//! Speech samples for a backbone, made by a synthesiser or read from recordings.

mod align;
mod clips;
mod error;
mod lengths;
mod pack;
mod pieces;
pub(crate) mod record;
mod recordings;
mod sample;
mod state_cache;
mod synthesised;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;

pub use error::{Listed, SpeechError};
pub(crate) use lengths::lengths;
pub(crate) use pieces::{Piece, divided, most_samples};
pub use sample::{SampleAudio, SampleFacts, SpeechSample};
pub(crate) use state_cache::StateCache;
pub(crate) use tokens::{Spoken, Tokens};

use crate::backbone::SpeechBackbone;
use crate::{Experiment, Interrupt, LongAudio, Pad, SourceConfig};
use align::Aligner;
use error::too_long;
use recordings::{Recordings, Treatment, check_effect, leave_out};
use std::ops::Range;
use std::sync::Arc;
use synthesised::Synthesised;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::augment::Augment;
use undertone_data::cache::{Cache, CacheWhat};
use undertone_data::features::LogMel;
use undertone_data::loader::{Dataset, SampleError};
use undertone_ops::seeds;
use undertone_transcribe::{TranscribeOptions, Transcriber};

/// Samples of one or several sources, concatenated.
pub struct SpeechDataset {
    parts: Vec<Part>,
    tokens: Tokens,
    /// Maximum length of audio, in samples.
    window: usize,
    /// Whether each sample is padded to the window.
    is_padded: bool,
    seed: u64,
}

enum Part {
    Synthesised(Box<Synthesised>),
    Recordings(Box<Recordings>),
}

impl SpeechDataset {
    /// Opens the samples of `sources` for a model; `seed` distinguishes this split from others. Those of the training
    /// split are augmented, packed and given timestamps as the experiment configures.
    ///
    /// # Errors
    /// If a source is unusable, or a text in it does not fit the model: everything that can be checked without decoding
    /// audio.
    pub fn new(
        experiment: &Experiment,
        sources: &[&SourceConfig],
        speech: &SpeechBackbone,
        training: bool,
        seed: u64,
    ) -> Result<Self, SpeechError> {
        Self::interruptible(experiment, sources, speech, training, seed, &Interrupt::default())
    }

    /// Like [`SpeechDataset::new`]; an alignment of long recordings stops once `interrupt` is set.
    ///
    /// # Errors
    /// Those of [`SpeechDataset::new`], and [`SpeechError::Interrupted`].
    pub fn interruptible(
        experiment: &Experiment,
        sources: &[&SourceConfig],
        speech: &SpeechBackbone,
        training: bool,
        seed: u64,
        interrupt: &Interrupt,
    ) -> Result<Self, SpeechError> {
        let tokens = Tokens::new(experiment, speech);
        let window = speech.window();
        let treatment = treatment(experiment, speech, training)?;
        let data = &experiment.data;
        let asked = [("language", data.language != "en"), ("task", data.task != "transcribe")];
        if let Some((key, _)) = asked.iter().find(|(_, asked)| *asked && !speech.tokenizer.is_multilingual()) {
            let reason = match speech.whisper() {
                Some(_) if *key == "language" && data.language.len() > 3 => {
                    "it is not the name of a known language: give the code, like `eo` for Esperanto"
                }
                Some(_) => "the model transcribes English and nothing else, whatever it is told",
                None => "the model has no tokens for languages and tasks",
            };
            return Err(SpeechError::Option { key, reason: reason.to_owned() });
        }
        // What nobody has chosen may be in no use: recordings may name their own.
        let is_asked = asked.iter().any(|(_, asked)| *asked);
        if let (true, Err(error)) = (is_asked, tokens.prompt(Spoken::default())) {
            let reason = error.to_string();
            let key = if reason.contains(&format!("<|{}|>", data.task)) { "task" } else { "language" };
            return Err(SpeechError::Option { key, reason });
        }
        let aligner = match data.long_audio {
            LongAudio::Refuse => None,
            LongAudio::Align => {
                let Some(whisper) = speech.whisper() else {
                    let reason =
                        "a Whisper transcribes what is aligned, and the backbone is none: refuse long recordings";
                    return Err(SpeechError::Option { key: "long_audio", reason: reason.to_owned() });
                };
                let device = experiment.open_device()?;
                let (language, task) = (Some(data.language.as_str()), Some(data.task.as_str()));
                let options = TranscribeOptions::plain(language, task);
                let transcriber = Transcriber::new(whisper.clone(), &device, options).map_err(Box::new)?;
                // This folder is used whatever the cache is configured to keep.
                let folder = data.cache.folder().map(|folder| folder.join("aligned"));
                Some(Aligner::new(transcriber, folder, interrupt))
            }
        };
        let parts = (0..).zip(sources).map(|(place, source)| {
            // The first source has the split's own seed.
            let seed = seeds::of_source(seed, place);
            if let Some(synthesised) = source.synthesised() {
                let position = experiment.loss.alignment.is_on().then(|| speech.position());
                let synthesised = Synthesised::new(synthesised, &tokens, position, window, seed)?;
                return Ok(Part::Synthesised(Box::new(synthesised)));
            }
            let clips = match treatment.skip {
                None => source.clips()?,
                Some(_) => {
                    let (clips, unusable) = source.usable_clips()?;
                    let all = clips.len() + unusable.len();
                    leave_out(unusable.iter(), all, treatment.skip, SpeechError::Unreadable)?;
                    clips
                }
            };
            let recordings = Recordings::new(clips, &tokens, treatment.clone(), aligner.as_ref(), seed)?;
            Ok(Part::Recordings(Box::new(recordings)))
        });
        let parts: Vec<Part> = parts.collect::<Result<_, SpeechError>>()?;
        let is_padded = Pad::Window == if training { data.pad } else { data.eval_pad };
        let dataset = Self { parts, tokens, window, is_padded, seed };
        check_effect(&dataset.recordings().collect::<Vec<_>>(), &treatment)?;
        dataset.check_texts(training)?;
        Ok(dataset)
    }

    /// Warns about recordings without text: noise without a text teaches silence, but so does a forgotten column.
    fn check_texts(&self, training: bool) -> Result<(), SpeechError> {
        let of = self.recordings().map(Recordings::recordings).sum();
        let mut without = self.recordings().flat_map(Recordings::without_text);
        let Some(first) = without.next() else { return Ok(()) };
        let count = 1 + without.count();
        if training && count == of && self.recordings().count() == self.parts.len() {
            return Err(SpeechError::NoText(of));
        }
        let effect = match training {
            true => "they teach the model to write nothing",
            false => "every word that the model writes for them counts as hallucinated",
        };
        tracing::warn!("{count} of {of} recordings have no text, such as `{first}`: {effect}");
        Ok(())
    }

    /// Returns the number of samples of each source.
    pub fn sizes(&self) -> Vec<usize> {
        self.parts.iter().map(Part::len).collect()
    }

    /// Returns the samples of each shard, if there are shards and the samples are in their order.
    pub fn blocks(&self) -> Option<Vec<Range<usize>>> {
        match self.parts.as_slice() {
            [Part::Recordings(recordings)] => recordings.blocks(),
            _ => None,
        }
    }

    /// Returns a sample as large as any that can occur: with the longest audio and the longest text.
    ///
    /// # Errors
    /// If a sample cannot be made.
    pub fn most_demanding(&self) -> Result<SpeechSample, SampleError> {
        let mut found: Option<SpeechSample> = None;
        for part in &self.parts {
            let sample = match part {
                Part::Synthesised(synthesised) => synthesised.most_demanding(&self.tokens)?,
                Part::Recordings(recordings) => recordings.most_demanding(&self.tokens)?,
            };
            let (samples, tokens) = (sample.audio.samples().min(self.window), sample.tokens.len());
            let before = found.as_ref().map_or((0, 0), |found| (found.audio.samples(), found.tokens.len()));
            let mut longest = found.filter(|_| before.1 >= tokens).unwrap_or(sample);
            longest.audio = SampleAudio::Audio(vec![0.0; samples.max(before.0)]);
            found = Some(longest);
        }
        Ok(found.ok_or("there are no samples")?)
    }

    /// Returns the sample cache, if it is on and there are recordings.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.recordings().find_map(Recordings::cache)
    }

    /// Returns the number of pieces of recordings that can be cached.
    pub(crate) fn pieces(&self) -> usize {
        self.recordings().map(Recordings::pieces).sum()
    }

    /// Fills the cache as training would. Calls `done` after each piece; for a piece that cannot be read, with its name
    /// and the error.
    pub(crate) fn keep(&self, done: &(dyn Fn(Result<(), (String, SampleError)>) + Sync)) {
        self.recordings().for_each(|recordings| recordings.keep(done));
    }

    fn recordings(&self) -> impl Iterator<Item = &Recordings> {
        self.parts.iter().filter_map(|part| match part {
            Part::Recordings(recordings) => Some(&**recordings),
            Part::Synthesised(_) => None,
        })
    }

    /// Returns a synthesised sample, if it fits the window.
    fn made(&self, sample: SpeechSample, draw: u64) -> Result<SpeechSample, SampleError> {
        if sample.audio.samples() > self.window {
            return Err(too_long(&sample.name, sample.audio.samples(), self.window).into());
        }
        Ok(SpeechSample { draw, ..sample })
    }

    /// Returns the source of a sample, and its index there.
    fn locate(&self, mut index: usize) -> (&Part, usize) {
        let mut parts = self.parts.iter();
        let mut part = parts.next().expect("a configuration has at least one source");
        while index >= part.len() {
            index -= part.len();
            part = parts.next().expect("an index is below the number of samples");
        }
        (part, index)
    }
}

/// Returns the processing of recordings; augmentation and packing are for the training split only.
fn treatment(experiment: &Experiment, speech: &SpeechBackbone, training: bool) -> Result<Treatment, SpeechError> {
    let data = &experiment.data;
    let window = speech.window();
    let features = match data.cache.what() {
        CacheWhat::Features => Some(Arc::new(LogMel::new(speech.mel_bins)?)),
        CacheWhat::Off | CacheWhat::Audio | CacheWhat::Encoder => None,
    };
    // States are those of a whole window.
    let whole = Pad::Window == if training { data.pad } else { data.eval_pad };
    let states = if whole { StateCache::open(experiment, speech)? } else { None };
    if let Some(config) = speech.whisper().map(|whisper| &whisper.config).filter(|_| training && states.is_some())
        && [config.dropout, config.attention_dropout, config.activation_dropout].iter().any(|share| *share > 0.0)
    {
        tracing::warn!(
            "the dropout of the model's encoder is left out: `data.cache: encoder` keeps what it makes without"
        );
    }
    let is_of_audio = data.cache.what() != CacheWhat::Encoder;
    let plain = Treatment {
        window,
        cache: if is_of_audio { data.cache.open()?.map(Arc::new) } else { None },
        features,
        states: states.map(Arc::new),
        skip: data.skip(),
        ..Treatment::default()
    };
    if !training {
        return Ok(plain);
    }
    for key in speech.whisper().map(|whisper| whisper.unread_regularisation()).unwrap_or_default() {
        match key {
            "apply_spec_augment" if data.augment.spec_augment.p > 0.0 => {}
            "apply_spec_augment" => tracing::warn!(
                "`{key}` in the model's config.json is not read: to mask features, set `data.augment.spec_augment: {{p: 1}}`"
            ),
            _ => tracing::warn!("`{key}` in the model's config.json is not read: no layer is left out in training"),
        }
    }
    for key in data.augment.without_effect() {
        let effect = key.split('.').next().unwrap_or_default();
        tracing::warn!("`data.augment.{key}` has no effect while `data.augment.{effect}.p` is 0");
    }
    let by_seconds = data.max_batch_seconds.is_some();
    let by_length = [("pack", data.pack), ("group_by_length", data.group_by_length), ("max_batch_seconds", by_seconds)];
    Ok(Treatment {
        augment: Some(Arc::new(Augment::new(&data.augment, window)?)),
        timestamps: data.timestamps,
        previous_text: data.previous_text,
        pack: data.pack,
        stretch: data.augment.speed.stretch(),
        lengths: by_length.into_iter().filter(|(_, on)| *on).map(|(key, _)| key).collect(),
        ..plain
    })
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Synthesised(synthesised) => synthesised.len(),
            Self::Recordings(recordings) => recordings.len(),
        }
    }
}

impl Dataset for SpeechDataset {
    type Item = SpeechSample;

    fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    fn get(&self, index: usize, epoch: u64) -> Result<SpeechSample, SampleError> {
        let draw = seeds::of_sample(self.seed, epoch.wrapping_mul(self.len() as u64).wrapping_add(index as u64));
        let (part, index) = self.locate(index);
        match part {
            Part::Synthesised(synthesised) => self.made(synthesised.get(index, epoch, &self.tokens)?, draw),
            Part::Recordings(recordings) => recordings.get(index, draw, &self.tokens),
        }
    }

    fn name(&self, index: usize) -> String {
        let (part, index) = self.locate(index);
        match part {
            Part::Synthesised(synthesised) => synthesised.name(index),
            Part::Recordings(recordings) => recordings.name(index),
        }
    }

    fn length(&self, index: usize) -> Option<f64> {
        let (part, index) = self.locate(index);
        let window = Some(self.window as f64 / f64::from(SAMPLE_RATE));
        match part {
            _ if self.is_padded => window,
            Part::Synthesised(synthesised) => Some(synthesised.seconds(index)),
            // A recording of unknown duration may be as long as the window.
            Part::Recordings(recordings) => recordings.seconds(index).or(window),
        }
    }
}
