//! Samples of a source that another crate has registered.

use super::error::SpeechError;
use super::sample::{SampleAudio, SpeechSample};
use super::synthesised::most_demanding;
use super::tokens::{Spoken, Tokens};
use crate::SourceConfig;
use serde_json::Value;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::loader::SampleError;
use undertone_data::source::{self, SourceRequest, Utterance, Utterances};

/// The utterances of a registered source, as a model is to write them.
pub(super) struct Registered {
    utterances: Box<Utterances>,
    /// How long they may be where they do not say it, in seconds.
    window: f64,
}

impl Registered {
    /// The source that is called `name`; a model hears `window` samples at once.
    ///
    /// # Errors
    /// When there is no such source, it refuses its options, or has nothing.
    pub fn new(name: &str, config: &SourceConfig, window: usize, seed: u64) -> Result<Self, SpeechError> {
        let options = Value::Object(config.options.clone());
        let utterances = source::open(name, &SourceRequest { config: options, samples: config.samples, seed })?;
        if utterances.is_empty() {
            return Err(SpeechError::Empty(name.to_owned()));
        }
        Ok(Self { utterances, window: window as f64 / f64::from(SAMPLE_RATE) })
    }

    pub fn len(&self) -> usize {
        self.utterances.len()
    }

    pub fn name(&self, index: usize) -> String {
        self.utterances.name(index)
    }

    /// # Errors
    /// The source's own; and when its text does not fit the vocabulary or the decoder.
    pub fn get(&self, index: usize, epoch: u64, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let (Utterance { audio, text }, name) = (self.utterances.get(index, epoch)?, self.name(index));
        let (ids, prompt) = tokens.encode(&name, Spoken { text: &text, ..Spoken::default() })?;
        Ok(SpeechSample { name, heard: SampleAudio::Audio(audio), text, tokens: ids, prompt, alignment: None, draw: 0 })
    }

    /// How long a sample is at most, in seconds.
    pub fn seconds(&self, index: usize) -> f64 {
        self.utterances.length(index).unwrap_or(self.window)
    }

    /// A sample as demanding as any that is likely to come: see [`most_demanding`].
    ///
    /// # Errors
    /// When a sample cannot be made.
    pub fn most_demanding(&self, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let longest = (0..self.len()).map(|index| self.seconds(index)).fold(0.0, f64::max);
        most_demanding(&[0], self.len(), longest, tokens, |index, epoch| self.get(index, epoch, tokens))
    }
}
