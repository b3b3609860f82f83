//! A speech sample for a backbone.

use crate::Alignment;
use undertone_data::features::Mel;

/// One sample: audio and tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSample {
    /// Name in messages.
    pub name: String,
    /// Audio or features.
    pub heard: SampleAudio,
    /// Text.
    pub text: String,
    /// Prompt, text and end tokens; a backbone that is trained by CTC has neither prompt nor end.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens.
    pub prompt: usize,
    /// Alignment targets from known timing, if enabled.
    pub alignment: Option<Alignment>,
    /// Seed of this sample in this epoch, for all other random decisions about it.
    pub draw: u64,
}

/// Audio, or features computed from it.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleAudio {
    /// Audio at 16 kHz, mono.
    Audio(Vec<f32>),
    /// Log-mel features, the last frame of silence
    /// ([`features_and_silence`](undertone_data::features::LogMel::features_and_silence)).
    Features(Mel),
}

impl SampleAudio {
    /// Returns the length in samples at 16 kHz; for features to the frame.
    pub fn samples(&self) -> usize {
        match self {
            Self::Audio(audio) => audio.len(),
            Self::Features(mel) => mel.samples(),
        }
    }
}
