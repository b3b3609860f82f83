//! Samples of speech, made by a synthesiser or read from recordings, ready for a Whisper.

mod align;
mod lengths;
mod pack;
mod pieces;
pub(crate) mod record;
mod recordings;
mod synthesised;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;

pub(crate) use lengths::lengths;
pub(crate) use pieces::{Piece, divided};
pub use recordings::Listed;
pub(crate) use tokens::{Spoken, Tokens};

use crate::{Alignment, ConfigError, Experiment, LongAudio, SourceConfig, SourceError, TranscribeError, Transcriber};
use align::Aligner;
use recordings::{Recordings, Treatment};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use synthesised::Synthesised;
use undertone_cw::{CwError, MorseStations};
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::augment::{Augment, AugmentError};
use undertone_data::cache::{Cache, CacheError, CacheWhat};
use undertone_data::clips::ClipsError;
use undertone_data::cut::SegmentError;
use undertone_data::features::{FeatureError, LogMel, Mel};
use undertone_data::loader::{Dataset, OnBadSample, SampleError};
use undertone_model::whisper::{PretrainedWhisper, TokenizerError};
use undertone_ops::DeviceError;
use undertone_ops::seeds;

/// One sample: what is heard, and the tokens it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSample {
    /// What a person would call it.
    pub name: String,
    /// What is heard.
    pub heard: Heard,
    /// What it says.
    pub text: String,
    /// Prompt, text and end.
    pub tokens: Vec<u32>,
    /// How many of the tokens are the prompt.
    pub prompt: usize,
    /// Targets from known timing, where they are wanted.
    pub alignment: Option<Alignment>,
    /// A number of its own for this sample in this epoch: what else is random about it comes from it.
    pub draw: u64,
}

/// Audio, or what was computed of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// 16 kHz, mono.
    Audio(Vec<f32>),
    /// Log-mel features, the last frame of silence ([`LogMel::features_and_silence`]).
    Features(Mel),
}

impl Heard {
    /// How many samples of 16 kHz audio it is, or was made of: of features, to the frame.
    pub fn samples(&self) -> usize {
        match self {
            Self::Audio(audio) => audio.len(),
            Self::Features(mel) => mel.samples(),
        }
    }
}

/// Why a sample or a dataset is unusable.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The recordings cannot be used.
    #[error(transparent)]
    Clips(#[from] ClipsError),
    /// The hub did not give them.
    #[error(transparent)]
    Source(#[from] Box<SourceError>),
    /// The synthesiser's configuration makes no sense.
    #[error(transparent)]
    Cw(#[from] CwError),
    /// A stage of the curriculum makes no sense.
    #[error(transparent)]
    Stage(#[from] ConfigError),
    /// Recordings for augmentation cannot be used.
    #[error("`data.augment`: {0}")]
    Augment(#[from] AugmentError),
    /// The cache cannot be used.
    #[error("`data.cache`: {0}")]
    Cache(#[from] CacheError),
    /// The model's mel bins are none that Whisper has.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// A text does not fit the vocabulary or the decoder.
    #[error("sample `{name}`: {source}")]
    Text {
        /// The sample.
        name: String,
        /// Why.
        source: TokenizerError,
    },
    /// The device on which the model would hear cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Several texts do not fit.
    #[error(
        "texts that the model cannot write: {listed}; correct or remove them, or leave them out with data.on_bad_sample=skip"
    )]
    Texts {
        /// Which, and why.
        listed: Listed,
    },
    /// Several long recordings cannot be read.
    #[error("more recordings than `data.max_bad_share` allows cannot be used: {listed}; repair or remove them")]
    Unreadable {
        /// Which, and why.
        listed: Listed,
    },
    /// All was left out.
    #[error(
        "nothing is left of {of} recordings, for the reasons above: correct them, or the texts that they come with"
    )]
    Nothing {
        /// How many there were.
        of: usize,
    },
    /// The times of a recording's text cannot be used.
    #[error("recording `{name}`: {source}")]
    Segments {
        /// The recording.
        name: String,
        /// Why.
        source: SegmentError,
    },
    /// Audio longer than the model's window whose text has no times.
    #[error(
        "recordings longer than the {window:.2} s that the model hears at once, without times for their text: {listed}; cut them, give segments with start and end, or let the model find out what is said where with data.long_audio=align"
    )]
    TooLong {
        /// Which.
        listed: Listed,
        /// The model's window.
        window: f64,
    },
    /// The model cannot be asked what it hears.
    #[error(transparent)]
    Transcribe(#[from] Box<TranscribeError>),
    /// A long recording cannot be read.
    #[error("recording `{name}` cannot be cut: {source}")]
    Align {
        /// The recording.
        name: String,
        /// Why.
        source: SampleError,
    },
    /// The user's wish, while the model was asked what it hears.
    #[error(
        "interrupted: what is said where is on record for {aligned} of {of} long recordings, and the same command goes on from there"
    )]
    Interrupted {
        /// The recordings that need not be listened to again.
        aligned: usize,
        /// All that are longer than the window.
        of: usize,
    },
    /// Something was asked for that recordings or model cannot give.
    #[error("`data.{key}` cannot be: {reason}; leave it out")]
    Option {
        /// The key.
        key: &'static str,
        /// Why not.
        reason: String,
    },
}

/// Samples of one source or several, one behind the other.
pub struct SpeechDataset {
    parts: Vec<Part>,
    tokens: Tokens,
    /// The longest audio, in samples.
    window: usize,
    seed: u64,
}

enum Part {
    Synthesised(Box<Synthesised>),
    Recordings(Box<Recordings>),
}

impl SpeechDataset {
    /// The samples of `sources` for a model; `seed` sets this split apart from others. Those of the training split are
    /// augmented, packed and told times, as the experiment says.
    ///
    /// # Errors
    /// When a source is unusable, or a text in it does not fit the model: everything that can be known without decoding
    /// audio.
    pub fn new(
        experiment: &Experiment,
        sources: &[&SourceConfig],
        whisper: &PretrainedWhisper,
        training: bool,
        seed: u64,
    ) -> Result<Self, SpeechError> {
        Self::interruptible(experiment, sources, whisper, training, seed, &AtomicBool::new(false))
    }

    /// As [`SpeechDataset::new`]; once `interrupt` is set, a model that is listening to long recordings stops.
    ///
    /// # Errors
    /// As [`SpeechDataset::new`], and [`SpeechError::Interrupted`].
    pub fn interruptible(
        experiment: &Experiment,
        sources: &[&SourceConfig],
        whisper: &PretrainedWhisper,
        training: bool,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Self, SpeechError> {
        let tokens = Tokens::new(experiment, whisper);
        let window = whisper.config.max_frames() * 160;
        let treatment = treatment(experiment, whisper, training)?;
        let data = &experiment.data;
        let asked = [("language", data.language != "en"), ("task", data.task != "transcribe")];
        if let Some((key, _)) = asked.iter().find(|(_, asked)| *asked && !whisper.generation.is_multilingual) {
            let reason = "the model transcribes English and nothing else, whatever it is told".to_owned();
            return Err(SpeechError::Option { key, reason });
        }
        let aligner = match data.long_audio {
            LongAudio::Refuse => None,
            LongAudio::Align => {
                let device = experiment.device.resolve()?;
                let (language, task) = (Some(data.language.as_str()), Some(data.task.as_str()));
                let transcriber = Transcriber::new(whisper.clone(), &device, language, task).map_err(Box::new)?;
                // Whatever the cache is to keep.
                let folder = data.cache.folder().map(|folder| folder.join("aligned"));
                Some(Aligner::new(transcriber, folder, interrupt))
            }
        };
        let parts = (0..).zip(sources).map(|(place, source)| {
            // The first has the split's own seed.
            let seed = seeds::of_source(seed, place);
            if !source.is_recorded() {
                let aligned = experiment.loss.alignment.is_on();
                let synthesised = Synthesised::new(source, &tokens, aligned, seed)?;
                return Ok(Part::Synthesised(Box::new(synthesised)));
            }
            let clips = source.clips()?;
            let recordings = Recordings::new(clips, &tokens, treatment.clone(), aligner.as_ref(), seed)?;
            Ok(Part::Recordings(Box::new(recordings)))
        });
        let parts = parts.collect::<Result<_, SpeechError>>()?;
        Ok(Self { parts, tokens, window, seed })
    }

    /// How many samples each source has.
    pub fn sizes(&self) -> Vec<usize> {
        self.parts.iter().map(Part::len).collect()
    }

    /// The samples that lie together in shards, where there are any and the samples are in the shards' order.
    pub fn blocks(&self) -> Option<Vec<Range<usize>>> {
        match self.parts.as_slice() {
            [Part::Recordings(recordings)] => recordings.blocks(),
            _ => None,
        }
    }

    /// A sample as demanding as any that can come: its audio is as long as the longest, and so is its text.
    ///
    /// # Errors
    /// When a sample cannot be made.
    pub fn most_demanding(&self) -> Result<SpeechSample, SampleError> {
        let mut found: Option<SpeechSample> = None;
        for part in &self.parts {
            let sample = match part {
                Part::Synthesised(synthesised) => synthesised.most_demanding(&self.tokens)?,
                Part::Recordings(recordings) => recordings.most_demanding(&self.tokens)?,
            };
            let (samples, tokens) = (sample.heard.samples().min(self.window), sample.tokens.len());
            let before = found.as_ref().map_or((0, 0), |found| (found.heard.samples(), found.tokens.len()));
            let mut longest = found.filter(|_| before.1 >= tokens).unwrap_or(sample);
            longest.heard = Heard::Audio(vec![0.0; samples.max(before.0)]);
            found = Some(longest);
        }
        Ok(found.ok_or("there are no samples")?)
    }

    /// What is kept of the epochs, if anything is and there are recordings.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.recordings().find_map(Recordings::cache)
    }

    /// How many pieces of recordings can be kept.
    pub(crate) fn pieces(&self) -> usize {
        self.recordings().map(Recordings::pieces).sum()
    }

    /// Puts into the cache what training would, and calls `done` after each piece, with its name where it cannot be read.
    pub(crate) fn keep(&self, done: &(dyn Fn(Result<(), (String, SampleError)>) + Sync)) {
        self.recordings().for_each(|recordings| recordings.keep(done));
    }

    fn recordings(&self) -> impl Iterator<Item = &Recordings> {
        self.parts.iter().filter_map(|part| match part {
            Part::Recordings(recordings) => Some(&**recordings),
            Part::Synthesised(_) => None,
        })
    }

    /// The source that a sample is from, and its number there.
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

/// What is done with recordings; to those of the training split more than to others.
fn treatment(experiment: &Experiment, whisper: &PretrainedWhisper, training: bool) -> Result<Treatment, SpeechError> {
    let data = &experiment.data;
    let window = whisper.config.max_frames() * 160;
    let features = match data.cache.what {
        CacheWhat::Features => Some(Arc::new(LogMel::new(whisper.config.num_mel_bins)?)),
        CacheWhat::Off | CacheWhat::Audio => None,
    };
    let plain = Treatment {
        window,
        cache: data.cache.open()?.map(Arc::new),
        features,
        skip: (data.on_bad_sample == OnBadSample::Skip).then_some(data.max_bad_share),
        ..Treatment::default()
    };
    if !training {
        return Ok(plain);
    }
    let by_seconds = data.max_batch_seconds.is_some();
    let by_length = [("pack", data.pack), ("group_by_length", data.group_by_length), ("max_batch_seconds", by_seconds)];
    Ok(Treatment {
        augment: Some(Arc::new(Augment::with_stations(&data.augment, window, Arc::new(MorseStations))?)),
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
            Part::Synthesised(synthesised) => {
                let sample = synthesised.get(index, epoch, &self.tokens)?;
                if sample.heard.samples() > self.window {
                    return Err(too_long(&sample.name, sample.heard.samples(), self.window).into());
                }
                Ok(SpeechSample { draw, ..sample })
            }
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
        match part {
            Part::Synthesised(synthesised) => Some(synthesised.longest()),
            // What does not say how long it is may be as long as can be.
            Part::Recordings(recordings) => {
                recordings.seconds(index).or(Some(self.window as f64 / f64::from(SAMPLE_RATE)))
            }
        }
    }
}

/// A sample that no model with this window can hear.
fn too_long(name: &str, samples: usize, window: usize) -> SpeechError {
    let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
    let listed = Listed::new([format!("`{name}` ({:.2} s)", seconds(samples))], 1);
    SpeechError::TooLong { listed, window: seconds(window) }
}
