//! Samples of a speech source that another crate has registered.

use super::error::SpeechError;
use super::sample::{SampleAudio, SpeechSample};
use super::synthesised::most_demanding;
use super::tokens::{Spoken, Tokens};
use crate::SourceConfig;
use serde_json::Value;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::loader::SampleError;
use undertone_data::source::{self, SourceRequest, Utterance, Utterances};

/// Utterances of a registered source, converted to samples for a model.
pub(super) struct Registered {
    utterances: Box<Utterances>,
    /// Maximum duration in seconds, for utterances of unknown duration.
    window: f64,
}

impl Registered {
    /// Opens the source called `name`, for a model with a window of `window` samples.
    ///
    /// # Errors
    /// If there is no such source, if it refuses its options, or if it is empty.
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
    /// The errors of the source, and an error if its text does not fit the vocabulary or the decoder.
    pub fn get(&self, index: usize, epoch: u64, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let (Utterance { audio, text }, name) = (self.utterances.get(index, epoch)?, self.name(index));
        let (ids, prompt) = tokens.encode(&name, Spoken { text: &text, ..Spoken::default() })?;
        Ok(SpeechSample { name, heard: SampleAudio::Audio(audio), text, tokens: ids, prompt, alignment: None, draw: 0 })
    }

    /// Returns the maximum duration of a sample, in seconds.
    pub fn seconds(&self, index: usize) -> f64 {
        self.utterances.length(index).unwrap_or(self.window)
    }

    /// Returns a sample as large as any that is likely to occur: see [`most_demanding`].
    ///
    /// # Errors
    /// If a sample cannot be made.
    pub fn most_demanding(&self, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let longest = (0..self.len()).map(|index| self.seconds(index)).fold(0.0, f64::max);
        most_demanding(&[0], self.len(), longest, tokens, |index, epoch| self.get(index, epoch, tokens))
    }
}
