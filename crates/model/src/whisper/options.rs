//! Values of the options beyond OpenAI's architecture.

use serde::{Deserialize, Serialize};

/// Kind of an encoder's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EncoderBlock {
    /// OpenAI's: attention, then feed-forward layers.
    #[default]
    Transformer,
    /// Half a step of feed-forward layers, attention, a convolution over neighbouring positions, and half a step of
    /// feed-forward layers (Gulati et al., 2020).
    Conformer,
}

/// Positions of an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PositionEmbeddings {
    /// OpenAI's: sinusoids that are added before the first block.
    #[default]
    Absolute,
    /// Relative: queries and keys are turned by an angle for their position (Su et al., 2021).
    Rotary,
}

/// Keys of the options.
pub(super) const OPTIONS: [&str; 6] = [
    "embedding_size", "encoder_block", "conv_kernel_size", "position_embeddings_type", "encoder_key_value_heads",
    "decoder_key_value_heads",
];
