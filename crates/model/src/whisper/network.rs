//! The whole network.

use super::{WhisperConfig, WhisperDecoder, WhisperEncoder};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

/// Whisper: encoder and decoder. Module paths are Hugging Face's tensor names without their `model.` prefix.
#[derive(Module, Debug)]
pub struct Whisper {
    /// Audio features to states.
    pub encoder: WhisperEncoder,
    /// States and tokens to tokens.
    pub decoder: WhisperDecoder,
}

impl WhisperConfig {
    /// A freshly initialised model; `device.seed` decides its weights. On an autodiff device it can be trained.
    pub fn init(&self, device: &Device) -> Whisper {
        Whisper { encoder: WhisperEncoder::init(self, device), decoder: WhisperDecoder::init(self, device) }
    }
}

impl Whisper {
    /// The decoder's states for every position of `ids`, teacher forcing.
    ///
    /// # Shapes
    /// - `encoder_states`: `[batch, time, d_model]`; `ids`: `[batch, tokens]`
    /// - output: `[batch, tokens, d_model]`
    pub fn decode(&self, encoder_states: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        self.decoder.forward(ids, &mut self.decoder.cache(encoder_states))
    }

    /// Next-token logits for every position of `ids`.
    ///
    /// # Shapes
    /// - `mel`: `[batch, mel bins, frames]`; `ids`: `[batch, tokens]`
    /// - output: `[batch, tokens, vocab_size]`
    pub fn forward(&self, mel: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        self.decoder.logits(self.decode(self.encoder.forward(mel), ids))
    }
}
