//! Floating-point operations of a forward pass.

use crate::layers::Linear;
use crate::text::TextEncoder;
use crate::whisper::{Whisper, WhisperDecoder, WhisperEncoder};

impl WhisperEncoder {
    /// Floating-point operations of the forward pass over a clip of `frames`. Only products count, with a
    /// multiplication and an addition as two operations; adapters are left out.
    pub fn forward_flops(&self, frames: usize) -> f64 {
        let positions = frames.div_ceil(2);
        let d_model = self.layer_norm.weight.dims()[0];
        let conv = |weight: [usize; 3], out: usize| 2.0 * (weight.iter().product::<usize>() * out) as f64;
        let front = conv(self.conv1.weight.dims(), frames) + conv(self.conv2.weight.dims(), positions);
        let block = self.layers.iter().map(|layer| {
            let (a, conv) = (&layer.self_attn, layer.conv_module.as_ref());
            let ffn1 = layer.ffn1.as_ref().map(|ffn| maps(positions, [&ffn.intermediate_dense, &ffn.output_dense]));
            let conv = conv.map(|conv| {
                let depthwise = 2.0 * (positions * conv.depthwise_conv.weight.dims().iter().product::<usize>()) as f64;
                maps(positions, [&conv.pointwise_conv1, &conv.pointwise_conv2]) + depthwise
            });
            maps(positions, [&a.q_proj, &a.k_proj, &a.v_proj, &a.out_proj, &layer.fc1, &layer.fc2])
                + attention(positions, positions, d_model)
                + ffn1.unwrap_or_default()
                + conv.unwrap_or_default()
        });
        front + block.sum::<f64>()
    }
}

impl WhisperDecoder {
    /// Floating-point operations of the forward pass over `tokens` that attend to `positions`, the output layer
    /// included.
    pub fn forward_flops(&self, tokens: usize, positions: usize) -> f64 {
        let (embedding, d_model) = (self.embed_tokens.weight.dims(), self.layer_norm.weight.dims()[0]);
        // Before the blocks and behind them.
        let mapping = self.embedding_hidden_mapping_in.as_ref().map_or(0.0, |mapping| 2.0 * maps(tokens, [mapping]));
        let block = self.layers.iter().map(|layer| {
            let (own, cross) = (&layer.self_attn, &layer.encoder_attn);
            let over_tokens = [&own.q_proj, &own.k_proj, &own.v_proj, &own.out_proj, &cross.q_proj, &cross.out_proj];
            maps(tokens, over_tokens)
                + maps(tokens, [&layer.fc1, &layer.fc2])
                + maps(positions, [&cross.k_proj, &cross.v_proj])
                + attention(tokens, tokens + positions, d_model)
        });
        block.sum::<f64>() + mapping + 2.0 * (tokens * embedding.iter().product::<usize>()) as f64
    }
}

impl Whisper {
    /// Floating-point operations of the forward pass over a clip of `frames` and `tokens` of its text.
    pub fn forward_flops(&self, frames: usize, tokens: usize) -> f64 {
        self.encoder.forward_flops(frames) + self.decoder.forward_flops(tokens, frames.div_ceil(2))
    }
}

impl TextEncoder {
    /// Floating-point operations of the forward pass over a text of `tokens`; adapters are left out.
    pub fn forward_flops(&self, tokens: usize) -> f64 {
        let d_model = self.embeddings.word_embeddings.weight.dims()[1];
        let block = self.encoder.layer.iter().map(|layer| {
            let own = &layer.attention.self_attention;
            maps(tokens, [&own.query, &own.key, &own.value, &layer.attention.output.dense])
                + maps(tokens, [&layer.intermediate.dense, &layer.output.dense])
                + attention(tokens, tokens, d_model)
        });
        block.sum()
    }
}

fn maps<const N: usize>(rows: usize, maps: [&Linear; N]) -> f64 {
    maps.iter().map(|map| 2.0 * (rows * map.weight.dims().iter().product::<usize>()) as f64).sum()
}

/// Scores and their product with the values.
fn attention(queries: usize, keys: usize, d_model: usize) -> f64 {
    4.0 * (queries * keys * d_model) as f64
}

#[cfg(test)]
mod tests {
    use crate::text::TextEncoderConfig;
    use crate::whisper::{EncoderBlock, PositionEmbeddings, WhisperConfig};
    use burn::tensor::Device;

    #[test]
    fn whispers_are_those_of_its_dimensions() {
        let (d, ffn, v, frames, tokens) = (16, 40, 60, 20, 7);
        let config = WhisperConfig { vocab_size: v, ..WhisperConfig::new(d, ffn, 2, [3, 2]) };
        let positions = frames / 2;
        let front = 2 * frames * 80 * d * 3 + 2 * positions * d * d * 3;
        let encoder = 3 * (2 * positions * (4 * d * d + 2 * d * ffn) + 4 * positions * positions * d);
        let decoder = 2
            * (2 * tokens * (6 * d * d + 2 * d * ffn)
                + 2 * positions * 2 * d * d
                + 4 * tokens * (tokens + positions) * d);
        let expected = front + encoder + decoder + 2 * tokens * d * v;
        assert_eq!(config.init(&Device::default()).forward_flops(frames, tokens), expected as f64);
    }

    #[test]
    fn options_count_as_they_are() {
        let (d, ffn, v, e, kernel, frames, tokens) = (16, 40, 60, 4, 5, 20, 7);
        let stock =
            WhisperConfig { vocab_size: v, decoder_attention_heads: 2, ..WhisperConfig::new(d, ffn, 4, [3, 2]) };
        let compact = WhisperConfig {
            encoder_block: EncoderBlock::Conformer,
            conv_kernel_size: Some(kernel),
            position_embeddings_type: PositionEmbeddings::Rotary,
            encoder_key_value_heads: Some(1),
            decoder_key_value_heads: Some(1),
            embedding_size: Some(e),
            ..stock.clone()
        };
        let [stock, compact] =
            [stock, compact].map(|config| config.init(&Default::default()).forward_flops(frames, tokens));
        let positions = frames / 2;
        let conformer = 3 * 2 * positions * (2 * d * ffn + 3 * d * d + kernel * d);
        let fewer_keys = 3 * 2 * positions * 2 * d * (d - d / 4) + 2 * 2 * (tokens + positions) * 2 * d * (d - d / 2);
        let embedding = 2 * tokens * 2 * d * e;
        let fewer_logits = 2 * tokens * v * (d - e);
        assert_eq!(compact - stock, (conformer + embedding) as f64 - (fewer_keys + fewer_logits) as f64);
    }

    #[test]
    fn a_text_encoders_are_those_of_its_dimensions() {
        let (d, ffn, tokens) = (16, 40, 7);
        let config = TextEncoderConfig { vocab_size: 50, ..TextEncoderConfig::new(d, ffn, 2, 3) };
        let expected = 3 * (2 * tokens * (4 * d * d + 2 * d * ffn) + 4 * tokens * tokens * d);
        assert_eq!(config.init(&Device::default()).forward_flops(tokens), expected as f64);
    }
}
