//! Complete Whisper network.

use super::{
    ConvolutionModule, DecoderLayer, EncoderLayer, FeedForward, WhisperConfig, WhisperDecoder, WhisperEncoder,
};
use crate::adaptable::{Adaptable, Site};
use crate::layers::Linear;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use std::num::NonZeroUsize;

/// Whisper: encoder and decoder. Module paths are Hugging Face's tensor names without their `model.` prefix.
#[derive(Module, Debug)]
pub struct Whisper {
    /// Encoder, from audio features to states.
    pub encoder: WhisperEncoder,
    /// Decoder, from states and tokens to tokens.
    pub decoder: WhisperDecoder,
}

impl WhisperConfig {
    /// Creates a model; [`undertone_ops::seed`] determines its weights. On an autodiff device it can be trained.
    pub fn init(&self, device: &Device) -> Whisper {
        Whisper { encoder: WhisperEncoder::init(self, device), decoder: WhisperDecoder::init(self, device) }
    }
}

impl Whisper {
    /// Sets gradient checkpointing: only the input of every `every` blocks is kept for the backward pass, which runs
    /// them again. `None` keeps everything.
    pub fn with_gradient_checkpointing(mut self, every: Option<NonZeroUsize>) -> Self {
        self.set_gradient_checkpointing(every);
        self
    }

    /// Sets gradient checkpointing, as [`with_gradient_checkpointing`](Self::with_gradient_checkpointing) does.
    pub(crate) fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        self.encoder.checkpointing = every;
        self.decoder.checkpointing = every;
    }

    /// Returns the decoder's states for every position of `ids` (teacher forcing).
    ///
    /// # Shapes
    /// - `encoder_states`: `[batch, time, d_model]`; `ids`: `[batch, tokens]`
    /// - output: `[batch, tokens, d_model]`
    pub fn decode(&self, encoder_states: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        self.decoder.forward_all(ids, self.decoder.cache(encoder_states, None))
    }

    /// Returns next-token logits for every position of `ids`.
    ///
    /// # Shapes
    /// - `mel`: `[batch, mel bins, frames]`; `ids`: `[batch, tokens]`
    /// - output: `[batch, tokens, vocab_size]`
    pub fn forward(&self, mel: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        self.decoder.logits(self.decode(self.encoder.forward(mel), ids))
    }
}

impl Adaptable for Whisper {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        let above = self.encoder.layers.len();
        let mut found = Vec::new();
        for (block, layer) in self.encoder.layers.iter_mut().enumerate() {
            let EncoderLayer { self_attn, fc1, fc2, ffn1, conv_module, .. } = layer;
            let mut add = |name: String, linear| {
                found.push((Site { path: format!("encoder.layers.{block}.{name}"), block }, linear));
            };
            self_attn.linears().into_iter().for_each(|(name, linear)| add(format!("self_attn.{name}"), linear));
            [("fc1", fc1), ("fc2", fc2)].into_iter().for_each(|(name, linear)| add(name.to_owned(), linear));
            if let Some(FeedForward { intermediate_dense, output_dense, .. }) = ffn1 {
                add("ffn1.intermediate_dense".into(), intermediate_dense);
                add("ffn1.output_dense".into(), output_dense);
            }
            if let Some(ConvolutionModule { pointwise_conv1, pointwise_conv2, .. }) = conv_module {
                add("conv_module.pointwise_conv1".into(), pointwise_conv1);
                add("conv_module.pointwise_conv2".into(), pointwise_conv2);
            }
        }
        for (index, layer) in self.decoder.layers.iter_mut().enumerate() {
            let DecoderLayer { self_attn, encoder_attn, fc1, fc2, .. } = layer;
            let mut add = |name: String, linear| {
                found.push((Site { path: format!("decoder.layers.{index}.{name}"), block: above }, linear));
            };
            for (attention, of) in [("self_attn", self_attn), ("encoder_attn", encoder_attn)] {
                of.linears().into_iter().for_each(|(name, linear)| add(format!("{attention}.{name}"), linear));
            }
            [("fc1", fc1), ("fc2", fc2)].into_iter().for_each(|(name, linear)| add(name.to_owned(), linear));
        }
        found
    }

    /// transformers' `WhisperForConditionalGeneration` holds its network in `model`.
    fn peft_prefix(&self) -> &'static str {
        "base_model.model.model."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptable::{adapt, merge};
    use crate::adapters::Gates;
    use crate::adapters::lora::LoraConfig;
    use crate::testing::{randomize_lora, values};
    use undertone_store::parameter_infos;

    fn whisper(device: &Device) -> (Whisper, WhisperConfig) {
        let config = WhisperConfig { vocab_size: 20, ..WhisperConfig::new(16, 32, 2, [2, 1]) };
        (config.init(device).no_grad(), config)
    }

    fn everywhere() -> LoraConfig {
        let target_modules = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"].map(str::to_owned).to_vec();
        LoraConfig { r: 2, lora_alpha: 4.0, target_modules, ..Default::default() }
    }

    #[test]
    fn adapters_begin_without_effect_and_train_alone() {
        let device = Device::default();
        let (mut model, config) = whisper(&device);
        adapt(&mut model, &[everywhere()], 1, &device).expect("adapted");
        let infos = parameter_infos(&model.clone().train());
        assert!(infos.iter().all(|p| p.trainable == p.name.contains(".lora.")));
        // Six maps of the encoder's block above the tap, ten of the decoder's, two matrices each.
        assert_eq!(infos.iter().filter(|p| p.trainable).count(), 2 * (6 + 10));
        let mel = Tensor::ones([1, config.num_mel_bins, 8], &device);
        let ids = Tensor::<2, Int>::from_ints([[1, 2]], &device);
        assert_eq!(values(gated(&model, 0, mel.clone(), ids.clone())), values(model.forward(mel, ids)));
    }

    #[test]
    fn a_merged_adapter_does_what_its_gate_did() {
        let device = Device::default();
        undertone_ops::seed(3);
        let (mut model, config) = whisper(&device);
        adapt(&mut model, &[everywhere(), everywhere()], 0, &device).expect("adapted");
        model.linears().into_iter().for_each(|(_, linear)| randomize_lora(linear, 1.0, &device));
        let mel = undertone_ops::normal([1, config.num_mel_bins, 8], 1.0, &device);
        let ids = Tensor::<2, Int>::from_ints([[1, 2]], &device);
        let (frozen, expected) = (model.forward(mel.clone(), ids.clone()), gated(&model, 1, mel.clone(), ids.clone()));
        merge(&mut model, 1);
        let merged = values(model.forward(mel, ids));
        assert!(merged.iter().zip(values(expected)).all(|(a, b)| (a - b).abs() < 1e-3));
        assert!(merged.iter().zip(values(frozen)).any(|(a, b)| (a - b).abs() > 0.1), "it changes something");
    }

    #[test]
    fn an_unknown_target_is_refused_with_those_there_are() {
        let device = Device::default();
        let (mut model, _) = whisper(&device);
        let config = LoraConfig { target_modules: vec!["query".into()], ..everywhere() };
        let error = adapt(&mut model, &[config], 0, &device).expect_err("refused").to_string();
        assert!(error.contains("`query`") && error.contains("fc1, fc2, k_proj, out_proj, q_proj, v_proj"), "{error}");
    }

    /// Returns the logits with one adapter's gate open.
    fn gated(model: &Whisper, adapter: usize, mel: Tensor<3>, ids: Tensor<2, Int>) -> Tensor<3> {
        let gates = Gates::One(adapter);
        let layers = model.encoder.layers.len();
        let x = model.encoder.blocks(model.encoder.front_end(mel, 0), 0..layers, Some(&gates));
        let states = model.encoder.layer_norm.forward(x);
        let mut cache = model.decoder.cache(states, Some(gates));
        model.decoder.logits(model.decoder.forward(ids, &mut cache))
    }
}
