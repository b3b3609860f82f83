//! The checkpoint of openai-whisper: one file of torch (`tiny.en.pt`) with dimensions and weights.
//!
//! It has no vocabulary: its program knows OpenAI's, and so does this module. Code in such a file is never run.

use crate::parts::{Parts, begins_with};
use crate::{ExchangeError, names, vocabulary};
use burn::tensor::Device;
use std::path::Path;
use undertone_model::whisper::{PretrainedWhisper, WhisperConfig};
use undertone_store::{HostTensor, StoreError, TensorSource, TorchFile};

/// Name of the format in messages.
pub(crate) const NAME: &str = "openai-whisper's format";

/// Whether this is a file of torch.
pub(crate) fn matches(path: &Path) -> bool {
    begins_with(path, b"PK\x03\x04") || path.is_file() && path.extension().is_some_and(|extension| extension == "pt")
}

/// Reads a checkpoint of openai-whisper.
///
/// # Errors
/// When the file is damaged, names code, or holds something else than such a checkpoint.
pub fn read(path: &Path, device: &Device) -> Result<PretrainedWhisper, ExchangeError> {
    let unreadable = |reason: String| ExchangeError::Unreadable { path: path.to_owned(), format: NAME, reason };
    let file = Checkpoint(TorchFile::open(path)?);
    let config = file.config().map_err(unreadable)?;
    let tokenizer = vocabulary::of_size(config.vocab_size).map_err(unreadable)?;
    let generation = vocabulary::generation(&tokenizer);
    let parts = Parts { config, tokenizer: &tokenizer, generation: &generation, tensors: &file };
    Ok(parts.assembled(path, device)?)
}

struct Checkpoint(TorchFile);

impl Checkpoint {
    fn config(&self) -> Result<WhisperConfig, String> {
        let size = |name: &str| {
            let number = self.0.number(&format!("dims.{name}")).and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("it has no size `{name}` in `dims`: give a checkpoint of openai-whisper"))
        };
        let d_model = size("n_audio_state")?;
        Ok(WhisperConfig {
            d_model,
            encoder_layers: size("n_audio_layer")?,
            decoder_layers: size("n_text_layer")?,
            encoder_attention_heads: size("n_audio_head")?,
            decoder_attention_heads: size("n_text_head")?,
            encoder_ffn_dim: d_model.saturating_mul(4),
            decoder_ffn_dim: d_model.saturating_mul(4),
            num_mel_bins: size("n_mels")?,
            vocab_size: size("n_vocab")?,
            max_source_positions: size("n_audio_ctx")?,
            max_target_positions: size("n_text_ctx")?,
            ..WhisperConfig::default()
        })
    }
}

/// Returns a tensor's name in the file.
fn place(name: &str) -> Option<String> {
    Some(format!("model_state_dict.{}", names::of(name)?))
}

impl TensorSource for Checkpoint {
    fn origin(&self) -> &Path {
        self.0.origin()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.0.shape(&place(name)?)
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        self.0.read(&place(name).ok_or_else(|| self.missing(name))?)
    }
}
