//! Audio files to text.

use burn::tensor::{Device, Tensor, TensorData};
use std::path::Path;
use undertone_data::audio::{self, AudioError};
use undertone_data::cut::pieces;
use undertone_data::features::{FeatureError, LogMel};
use undertone_model::whisper::{FolderError, PretrainedWhisper, TokenizerError};

/// A Whisper that reads audio of any length.
pub struct Transcriber {
    whisper: PretrainedWhisper,
    log_mel: LogMel,
    prompt: Vec<u32>,
    device: Device,
}

/// Why audio cannot be transcribed.
#[derive(Debug, thiserror::Error)]
pub enum TranscribeError {
    /// The folder is no model.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The model's mel bins are none that Whisper has.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The language or task is not in the model's vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The audio cannot be read.
    #[error(transparent)]
    Audio(#[from] AudioError),
}

impl Transcriber {
    /// Loads a folder onto a device; language and task matter to multilingual models only.
    ///
    /// # Errors
    /// When the folder is no Whisper, or does not know the language.
    pub fn load(
        dir: &Path,
        device: &Device,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Self, TranscribeError> {
        Self::new(PretrainedWhisper::load(dir, device)?, device, language, task)
    }

    /// Around a model that is already there.
    ///
    /// # Errors
    /// When it does not know the language.
    pub fn new(
        whisper: PretrainedWhisper,
        device: &Device,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Self, TranscribeError> {
        let prompt = whisper.tokenizer.prompt(&whisper.generation, language, task)?;
        let log_mel = LogMel::new(whisper.config.num_mel_bins)?;
        Ok(Self { whisper, log_mel, prompt, device: device.clone() })
    }

    /// The text of an audio file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&self, path: &Path) -> Result<String, TranscribeError> {
        Ok(self.audio(&audio::load(path)?))
    }

    /// The text of 16 kHz mono audio. What does not fit the model's window is cut where it is quietest.
    pub fn audio(&self, audio: &[f32]) -> String {
        let window = self.whisper.config.max_frames() * 160;
        let texts: Vec<String> =
            pieces(audio, window).into_iter().map(|piece| self.piece(&audio[piece], window)).collect();
        texts.iter().map(|t| t.trim()).filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn piece(&self, audio: &[f32], window: usize) -> String {
        let mel = self.log_mel.features_padded(audio, window);
        let mel = Tensor::from_data(TensorData::new(mel.data, [1, mel.bins, mel.frames]), &self.device);
        let tokens =
            self.whisper.model.generate(mel, std::slice::from_ref(&self.prompt), &self.whisper.generate_options());
        tokens.first().map(|tokens| self.whisper.tokenizer.decode(tokens)).unwrap_or_default()
    }
}
