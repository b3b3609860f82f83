//! A sample of speech, ready for a Whisper.

use crate::Alignment;
use undertone_data::features::Mel;

/// One sample: what is heard, and the tokens it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSample {
    /// What a person would call it.
    pub name: String,
    /// What is heard.
    pub heard: SampleAudio,
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
pub enum SampleAudio {
    /// 16 kHz, mono.
    Audio(Vec<f32>),
    /// Log-mel features, the last frame of silence ([`features_and_silence`](undertone_data::features::LogMel::features_and_silence)).
    Features(Mel),
}

impl SampleAudio {
    /// How many samples of 16 kHz audio it is, or was made of: of features, to the frame.
    pub fn samples(&self) -> usize {
        match self {
            Self::Audio(audio) => audio.len(),
            Self::Features(mel) => mel.samples(),
        }
    }
}
