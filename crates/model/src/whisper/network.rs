//! The whole network.

use super::{WhisperConfig, WhisperDecoder, WhisperEncoder};
use crate::layers::Linear;
use crate::lora::LoraConfig;
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
    /// Freezes everything and gives every linear map of every block an adapter: PEFT's `target_modules` of `q_proj`,
    /// `k_proj`, `v_proj`, `out_proj`, `fc1` and `fc2`. `device` is the model's.
    pub fn with_lora(self, config: LoraConfig, device: &Device) -> Self {
        let mut frozen = self.no_grad();
        let mut adapt = |linear: &mut Linear| linear.lora = Some(config.init(linear, device));
        for layer in &mut frozen.encoder.layers {
            layer.self_attn.projections().into_iter().for_each(&mut adapt);
            [&mut layer.fc1, &mut layer.fc2].into_iter().for_each(&mut adapt);
        }
        for layer in &mut frozen.decoder.layers {
            layer.self_attn.projections().into_iter().for_each(&mut adapt);
            layer.encoder_attn.projections().into_iter().for_each(&mut adapt);
            [&mut layer.fc1, &mut layer.fc2].into_iter().for_each(&mut adapt);
        }
        frozen
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_store::parameter_infos;

    #[test]
    fn adapters_leave_the_output_and_train_alone() {
        let device = Device::default();
        let config = WhisperConfig {
            d_model: 16,
            encoder_layers: 1,
            decoder_layers: 1,
            encoder_attention_heads: 2,
            decoder_attention_heads: 2,
            encoder_ffn_dim: 32,
            decoder_ffn_dim: 32,
            vocab_size: 20,
            ..Default::default()
        };
        let whisper = config.init(&device);
        let mel = Tensor::ones([1, config.num_mel_bins, 8], &device);
        let ids = Tensor::<2, Int>::from_ints([[1, 2]], &device);
        let logits = |model: &Whisper| -> Vec<f32> {
            model.forward(mel.clone(), ids.clone()).try_into_vec_as().expect("floats")
        };
        let before = logits(&whisper);
        let adapted = whisper.with_lora(LoraConfig { r: 2, alpha: 4.0 }, &device);
        assert_eq!(logits(&adapted), before);
        let infos = parameter_infos(&adapted.train());
        assert!(infos.iter().all(|p| p.trainable == p.name.contains(".lora.")));
        // Six maps of the encoder's block, ten of the decoder's, two matrices each.
        assert_eq!(infos.iter().filter(|p| p.trainable).count(), 2 * (6 + 10));
    }
}
