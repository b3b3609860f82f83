//! Encoder: two convolutions, sinusoidal positions, pre-norm blocks.

use super::conformer::{ConvolutionModule, FeedForward};
use super::{EncoderBlock, MultiHeadAttention, PositionEmbeddings, WhisperConfig};
use crate::adapters::Gates;
use crate::checkpointing::{self, Beside};
use crate::layers::{Conv1d, Embedding, LayerNorm, Linear};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use std::num::NonZeroUsize;
use std::ops::Range;
use undertone_ops::{Rotary, dropout, gelu, residual_dropout};

/// Encoder, from log-mel features to states, one for every 20 ms.
#[derive(Module, Debug)]
pub struct WhisperEncoder {
    /// Mel bins → d_model, stride 1.
    pub conv1: Conv1d,
    /// d_model → d_model, stride 2.
    pub conv2: Conv1d,
    /// Sinusoidal positions, `[max_source_positions, d_model]`; stored, never trained. None if positions are rotary.
    pub embed_positions: Option<Embedding>,
    /// Blocks.
    pub layers: Vec<EncoderLayer>,
    /// Norm after the last block.
    pub layer_norm: LayerNorm,
    #[module(skip)]
    positions: usize,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    pub(super) checkpointing: Option<NonZeroUsize>,
}

/// Block: `x + attention(norm(x))`, then `x + fc2(gelu(fc1(norm(x))))`.
///
/// A Conformer block has `x + ffn1(norm(x)) / 2` before the attention and `x + conv_module(x)` after it, and adds half of the
/// last layers. It has no norm at its end, other than Gulati et al.'s: with one, no block could begin as the Transformer
/// block that it is grown from. The encoder's own norm is behind the last block.
#[derive(Module, Debug)]
pub struct EncoderLayer {
    /// Norm before the first feed-forward layers of a Conformer block.
    pub ffn1_layer_norm: Option<LayerNorm>,
    /// First feed-forward layers of a Conformer block.
    pub ffn1: Option<FeedForward>,
    /// Self-attention over all positions.
    pub self_attn: MultiHeadAttention,
    /// Norm before the self-attention.
    pub self_attn_layer_norm: LayerNorm,
    /// Convolution module of a Conformer block.
    pub conv_module: Option<ConvolutionModule>,
    /// d_model → ffn.
    pub fc1: Linear,
    /// ffn → d_model.
    pub fc2: Linear,
    /// Norm before the feed-forward layers.
    pub final_layer_norm: LayerNorm,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    activation_dropout: f64,
}

impl WhisperEncoder {
    pub(super) fn init(config: &WhisperConfig, device: &Device) -> Self {
        let d = config.d_model;
        let sinusoids = || {
            let table = sinusoids(config.max_source_positions, d);
            let table = Tensor::<1>::from_floats(table.as_slice(), device).reshape([config.max_source_positions, d]);
            Embedding { weight: Param::from_tensor(table).set_require_grad(false) }
        };
        let is_absolute = config.position_embeddings_type == PositionEmbeddings::Absolute;
        Self {
            conv1: Conv1d::init(config.num_mel_bins, d, 1, config.init_std, device),
            conv2: Conv1d::init(d, d, 2, config.init_std, device),
            embed_positions: is_absolute.then(sinusoids),
            layers: (0..config.encoder_layers).map(|_| EncoderLayer::init(config, device)).collect(),
            layer_norm: LayerNorm::init(d, device),
            positions: config.max_source_positions,
            dropout: config.dropout,
            checkpointing: None,
        }
    }

    /// Encodes features: `[batch, mel bins, frames]` → `[batch, ⌈frames / 2⌉, d_model]`. An input shorter than the
    /// window uses the first positions only.
    ///
    /// # Panics
    /// If there are more frames than `2 · max_source_positions`.
    pub fn forward(&self, mel: Tensor<3>) -> Tensor<3> {
        let x = self.blocks(self.front_end(mel, 0), 0..self.layers.len(), None);
        self.layer_norm.forward(x)
    }

    /// Returns the residual stream before the first block: convolutions, plus positions counted from `start` unless they are
    /// rotary. `[batch, mel bins, frames]` → `[batch, ⌈frames / 2⌉, d_model]`.
    ///
    /// # Panics
    /// If `start` plus the number of positions exceeds `max_source_positions`.
    pub fn front_end(&self, mel: Tensor<3>, start: usize) -> Tensor<3> {
        let x = gelu(self.conv1.forward(mel.swap_dims(1, 2)));
        let x = gelu(self.conv2.forward(x));
        let positions = x.dims()[1];
        let longest = self.positions;
        assert!(start + positions <= longest, "{start} + {positions} encoder positions exceed the window of {longest}");
        let x = match &self.embed_positions {
            Some(table) => x + table.rows(start, positions).unsqueeze(),
            None => x,
        };
        dropout(x, self.dropout)
    }

    /// Applies the given blocks to the residual stream: `[batch, time, d_model]` → the same shape. The output of the
    /// last block still needs [`layer_norm`](Self::layer_norm).
    ///
    /// # Panics
    /// If `blocks` is out of range.
    pub fn blocks(&self, x: Tensor<3>, blocks: Range<usize>, gates: Option<&Gates>) -> Tensor<3> {
        let rotary =
            |layer: &EncoderLayer| Rotary::init(x.dims()[1], x.dims()[2] / layer.self_attn.heads(), &x.device());
        let is_rotary = self.embed_positions.is_none();
        let rotary = self.layers.first().filter(|_| is_rotary).map(rotary);
        let beside = Beside { gates: gates.cloned(), rotary, ..Default::default() };
        checkpointing::run(&self.layers[blocks], x, &beside, self.checkpointing, |layer, x, beside| {
            layer.forward(x, beside.rotary.as_ref(), beside.gates.as_ref())
        })
    }
}

impl EncoderLayer {
    fn init(config: &WhisperConfig, device: &Device) -> Self {
        let (d, std) = (config.d_model, config.init_std);
        let (heads, dropout) = (config.encoder_attention_heads, config.attention_dropout);
        let is_conformer = config.encoder_block == EncoderBlock::Conformer;
        Self {
            ffn1_layer_norm: is_conformer.then(|| LayerNorm::init(d, device)),
            ffn1: is_conformer.then(|| FeedForward::init(config, device)),
            self_attn: MultiHeadAttention::init(d, config.key_value_widths()[0], heads, dropout, std, device),
            self_attn_layer_norm: LayerNorm::init(d, device),
            conv_module: is_conformer.then(|| ConvolutionModule::init(config, device)),
            fc1: Linear::init(d, config.encoder_ffn_dim, true, std, device),
            fc2: Linear::init(config.encoder_ffn_dim, d, true, std, device),
            final_layer_norm: LayerNorm::init(d, device),
            dropout: config.dropout,
            activation_dropout: config.activation_dropout,
        }
    }

    /// Applies the block: `[batch, time, d_model]` → the same shape. `positions` are those of an encoder with rotary ones.
    pub fn forward(&self, x: Tensor<3>, positions: Option<&Rotary>, gates: Option<&Gates>) -> Tensor<3> {
        let x = match (&self.ffn1_layer_norm, &self.ffn1) {
            (Some(norm), Some(ffn1)) => {
                let h = ffn1.forward(norm.forward(x.clone()), gates);
                residual_dropout(x, h.mul_scalar(0.5), self.dropout)
            }
            _ => x,
        };
        let h = self.self_attn_layer_norm.forward(x.clone());
        let x = residual_dropout(x, self.self_attn.to_itself(h, positions, gates), self.dropout);
        let x = match &self.conv_module {
            Some(module) => residual_dropout(x.clone(), module.forward(x, gates), self.dropout),
            None => x,
        };
        let h = gelu(self.fc1.forward_lowered(self.final_layer_norm.forward(x.clone()), gates));
        let h = self.fc2.forward_gated(dropout(h, self.activation_dropout), gates);
        let h = if self.ffn1.is_some() { h.mul_scalar(0.5) } else { h };
        residual_dropout(x, h, self.dropout)
    }
}

/// Returns sine and cosine of `position · 10000^(-i / (d/2 - 1))`, sines first: `[length · d_model]`, row by row.
fn sinusoids(length: usize, d_model: usize) -> Vec<f32> {
    let half = d_model / 2;
    let step = 10_000_f64.ln() / (half as f64 - 1.0);
    (0..length)
        .flat_map(|position| {
            let angle = move |i: usize| position as f64 * (-step * i as f64).exp();
            (0..half).map(move |i| angle(i).sin() as f32).chain((0..half).map(move |i| angle(i).cos() as f32))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::sinusoids;

    #[test]
    fn sinusoids_put_sines_before_cosines() {
        let s = sinusoids(3, 4);
        assert_eq!(&s[..4], &[0.0, 0.0, 1.0, 1.0]);
        assert!((s[4] - 1.0_f32.sin()).abs() < 1e-7 && (s[5] - 1e-4_f32.sin()).abs() < 1e-7);
        assert!((s[10] - 2.0_f32.cos()).abs() < 1e-7);
    }
}
