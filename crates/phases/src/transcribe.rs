//! Audio files to text.

use crate::speech::record::hex;
use crate::{ModelConfig, SourceError};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use sha2::{Digest, Sha256};
use std::path::Path;
use undertone_data::audio::{self, AudioError};
use undertone_data::cut::pieces;
use undertone_data::features::{FeatureError, LogMel};
use undertone_data::text::append;
use undertone_model::whisper::{PretrainedWhisper, TokenizerError};
use undertone_store::frozen_checksum;

/// A Whisper that reads audio of any length.
pub struct Transcriber {
    whisper: PretrainedWhisper,
    log_mel: LogMel,
    language: Option<String>,
    task: Option<String>,
    prompt: Vec<u32>,
    device: Device,
}

/// Why audio cannot be transcribed.
#[derive(Debug, thiserror::Error)]
pub enum TranscribeError {
    /// The model cannot be had.
    #[error(transparent)]
    Model(#[from] SourceError),
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
    /// Loads the Whisper that is [`named`](ModelConfig::named) so onto a device: a folder, a run's directory or a bundled
    /// model. Language and task matter to multilingual models only.
    ///
    /// # Errors
    /// When there is no such Whisper, or it does not know the language.
    pub fn load(
        name: &Path,
        device: &Device,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Self, TranscribeError> {
        Self::new(ModelConfig::named(name).load(device, 0)?, device, language, task)
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
        let (language, task) = (language.map(str::to_owned), task.map(str::to_owned));
        Ok(Self { whisper, log_mel, language, task, prompt, device: device.clone() })
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
        self.prompted(audio, &self.prompt)
    }

    /// [`Transcriber::audio`] in another language, or for another task, where these are given; where the model knows them.
    pub(crate) fn audio_in(&self, audio: &[f32], language: Option<&str>, task: Option<&str>) -> String {
        self.prompted(audio, &self.prompt_in(language, task))
    }

    fn prompt_in(&self, language: Option<&str>, task: Option<&str>) -> Vec<u32> {
        let (language, task) = (language.or(self.language.as_deref()), task.or(self.task.as_deref()));
        let prompt = self.whisper.tokenizer.prompt(&self.whisper.generation, language, task);
        prompt.unwrap_or_else(|_| self.prompt.clone())
    }

    fn prompted(&self, audio: &[f32], prompt: &[u32]) -> String {
        let window = self.whisper.config.max_frames() * 160;
        pieces(audio, window).into_iter().fold(String::new(), |mut text, piece| {
            append(&mut text, self.piece(&audio[piece], window, prompt).trim());
            text
        })
    }

    /// What its texts depend on besides the audio: the values of the weights, whatever file they are from and whether they
    /// are trained, dimensions, vocabulary, prompt and way of decoding. The device is no part of it: a run that is
    /// resumed on another is to find what was heard before.
    pub(crate) fn fingerprint(&self) -> String {
        let whisper = &self.whisper;
        let weights = frozen_checksum(&whisper.model.clone().no_grad());
        let rest = format!("{:?} {:?} {:?}", whisper.config, self.prompt, whisper.generate_options());
        let rest = Sha256::new().chain_update(whisper.tokenizer.to_bytes()).chain_update(rest);
        format!("{weights:08x} {}", hex(rest))
    }

    fn piece(&self, audio: &[f32], window: usize, prompt: &[u32]) -> String {
        let mel = self.log_mel.features_padded(audio, window);
        let mel = Tensor::from_data(TensorData::new(mel.data, [1, mel.bins, mel.frames]), &self.device);
        let tokens = self.whisper.model.generate(mel, &[prompt.to_vec()], &self.whisper.generate_options());
        tokens.first().map(|tokens| self.whisper.tokenizer.decode(tokens)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::tests::two_seconds;
    use undertone_model::whisper::{GenerationConfig, WhisperTokenizer};
    use undertone_store::load_parameters;

    fn untrained(device: &Device) -> PretrainedWhisper {
        let tokenizer = WhisperTokenizer::of_characters("ABC", &["en", "de"]).expect("a tokenizer");
        PretrainedWhisper::init(two_seconds(), tokenizer, GenerationConfig::new(true), device).expect("a model")
    }

    #[test]
    fn another_language_or_task_is_asked_for_as_their_own_transcriber_asks() {
        let device = Device::flex();
        let whisper = untrained(&device);
        let [english, german, translating] =
            [("en", "transcribe"), ("de", "transcribe"), ("de", "translate")].map(|(language, task)| {
                Transcriber::new(whisper.clone(), &device, Some(language), Some(task)).expect("ready")
            });
        assert_eq!(english.prompt_in(None, None), english.prompt);
        assert_eq!(english.prompt_in(Some("de"), None), german.prompt);
        assert_eq!(english.prompt_in(Some("de"), Some("translate")), translating.prompt);
        assert_eq!(german.prompt_in(None, Some("translate")), translating.prompt);
        assert_eq!(
            german.prompt_in(Some("xx"), None),
            german.prompt,
            "what the model does not know is refused elsewhere"
        );
        assert!(english.prompt != german.prompt && german.prompt != translating.prompt);
    }

    #[test]
    fn a_fingerprint_tells_what_is_heard_differently_and_nothing_else() {
        let device = Device::flex();
        let whisper = untrained(&device);
        let of = |whisper: PretrainedWhisper, language| {
            Transcriber::new(whisper, &device, Some(language), Some("transcribe")).expect("ready").fingerprint()
        };
        let known = of(whisper.clone(), "en");
        let mut frozen = whisper.clone();
        frozen.model = frozen.model.no_grad();
        assert_eq!(of(frozen, "en"), known, "what is trained of it is no matter");
        assert_ne!(of(whisper.clone(), "de"), known, "another language");
        let mut parameters = undertone_store::parameters(&whisper.model);
        let changed = parameters.values_mut().last().expect("parameters");
        changed.data[0] = f32::from_bits(changed.data[0].to_bits() ^ 1);
        let mut other = whisper.clone();
        other.model = load_parameters(other.model, |name| Ok(parameters[name].clone())).expect("loaded");
        assert_ne!(of(other, "en"), known, "one bit of a weight");
        let mut whisper = whisper;
        whisper.generation.suppress_tokens.push(3);
        assert_ne!(of(whisper, "en"), known, "a character that it never writes");
    }
}
