//! A speech sample for a backbone.

use crate::Alignment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::cache::{Key, States};
use undertone_data::features::Mel;

/// One sample: audio and tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSample {
    /// Name in messages.
    pub name: String,
    /// Audio, or what was computed from it.
    pub audio: SampleAudio,
    /// Key under which the encoder's states of the sample are to be kept, if they are.
    pub states: Option<Key>,
    /// Text.
    pub text: String,
    /// Prompt, text and end tokens; a backbone that is trained by CTC has neither prompt nor end.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens.
    pub prompt: usize,
    /// Alignment targets from known timing, if enabled.
    pub alignment: Option<Alignment>,
    /// What else is known about it: the columns of its list that [`Selection::keep`](crate::config::Selection::keep) names,
    /// or what its synthesiser says.
    pub columns: BTreeMap<String, String>,
    /// Seed of this sample in this epoch, for all other random decisions about it.
    pub draw: u64,
}

/// What is known about a sample besides its text, which results can be grouped by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleFacts {
    /// Length of its audio in samples at 16 kHz, an integer, so that ranks send it to each other exactly; `None` for text.
    pub length: Option<usize>,
    /// Values by name; see [`SpeechSample::columns`].
    pub columns: BTreeMap<String, String>,
}

/// Audio, or what was computed from it.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleAudio {
    /// Audio at 16 kHz, mono.
    Audio(Vec<f32>),
    /// Log-mel features, the last frame of silence
    /// ([`features_and_silence`](undertone_data::features::LogMel::features_and_silence)).
    Features(Mel),
    /// Last states of a frozen encoder.
    States(States),
}

impl SpeechSample {
    /// Returns what is known about it besides its text.
    pub fn facts(&self) -> SampleFacts {
        SampleFacts { length: Some(self.audio.samples()), columns: self.columns.clone() }
    }
}

impl SampleFacts {
    /// Returns the duration of its audio in seconds; `None` for text.
    pub fn seconds(&self) -> Option<f64> {
        self.length.map(|samples| samples as f64 / f64::from(SAMPLE_RATE))
    }
}

impl SampleAudio {
    /// Returns the length in samples at 16 kHz; for features to the frame.
    pub fn samples(&self) -> usize {
        match self {
            Self::Audio(audio) => audio.len(),
            Self::Features(mel) => mel.samples(),
            Self::States(states) => states.samples as usize,
        }
    }
}
