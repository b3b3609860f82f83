//! Parts of a Conformer block (Gulati et al., 2020), under the names of transformers' `Wav2Vec2Conformer`.

use super::WhisperConfig;
use crate::adapters::Gates;
use crate::layers::{LayerNorm, Linear, normal};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use undertone_ops::{depthwise_conv1d, dropout, gelu, glu, silu};

/// Convolution module: a gate, a convolution of each channel over its neighbourhood, and a norm, between two linear maps.
///
/// The norm is over the channels of a position and not over a batch, so that a recording has the same states in any
/// batch; it has the name that it has in `SeamlessM4Tv2`.
#[derive(Module, Debug)]
pub struct ConvolutionModule {
    /// Norm of the input.
    pub layer_norm: LayerNorm,
    /// d_model → 2 · d_model, values and gates; no bias.
    pub pointwise_conv1: Linear,
    /// Convolution over time.
    pub depthwise_conv: DepthwiseConv1d,
    /// Norm after the convolution.
    pub depthwise_layer_norm: LayerNorm,
    /// d_model → d_model, no bias.
    pub pointwise_conv2: Linear,
}

/// Convolution of each channel by itself.
#[derive(Module, Debug)]
pub struct DepthwiseConv1d {
    /// `[d_model, 1, kernel]`.
    pub weight: Param<Tensor<3>>,
}

/// Feed-forward layers of a half step, with Whisper's GELU.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// d_model → ffn.
    pub intermediate_dense: Linear,
    /// ffn → d_model.
    pub output_dense: Linear,
    #[module(skip)]
    activation_dropout: f64,
}

impl ConvolutionModule {
    pub(super) fn init(config: &WhisperConfig, device: &Device) -> Self {
        let (d, std) = (config.d_model, config.init_std);
        Self {
            layer_norm: LayerNorm::init(d, device),
            pointwise_conv1: Linear::init(d, 2 * d, false, std, device),
            depthwise_conv: DepthwiseConv1d { weight: normal([d, 1, config.conv_kernel()], std, device) },
            depthwise_layer_norm: LayerNorm::init(d, device),
            pointwise_conv2: Linear::init(d, d, false, std, device),
        }
    }

    /// Returns what the module adds to the stream: `[batch, time, d_model]` → the same shape.
    pub fn forward(&self, x: Tensor<3>, gates: Option<&Gates>) -> Tensor<3> {
        let h = glu(self.pointwise_conv1.forward_gated(self.layer_norm.forward(x), gates));
        let h = depthwise_conv1d(h, self.depthwise_conv.weight.val());
        self.pointwise_conv2.forward_gated(silu(self.depthwise_layer_norm.forward(h)), gates)
    }
}

impl FeedForward {
    pub(super) fn init(config: &WhisperConfig, device: &Device) -> Self {
        let (d, ffn, std) = (config.d_model, config.encoder_ffn_dim, config.init_std);
        Self {
            intermediate_dense: Linear::init(d, ffn, true, std, device),
            output_dense: Linear::init(ffn, d, true, std, device),
            activation_dropout: config.activation_dropout,
        }
    }

    /// Applies the layers: `[batch, time, d_model]` → the same shape.
    pub fn forward(&self, x: Tensor<3>, gates: Option<&Gates>) -> Tensor<3> {
        let h = gelu(self.intermediate_dense.forward_lowered(x, gates));
        self.output_dense.forward_gated(dropout(h, self.activation_dropout), gates)
    }
}
