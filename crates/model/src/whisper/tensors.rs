//! Tensors of a Whisper, as its configuration describes them.

use super::WhisperConfig;
use super::options::{EncoderBlock, PositionEmbeddings};
use crate::shapes::{Asked, Axis, linear, norm};

impl WhisperConfig {
    /// Number of parameters, including the positions, which are never trained.
    pub fn parameters(&self) -> u128 {
        let count = |tensors: Vec<Asked>| tensors.iter().map(Asked::count).fold(0, u128::saturating_add);
        let layers = |one: Vec<Asked>, layers: usize| count(one).saturating_mul(layers as u128);
        let blocks = layers(self.encoder_layer(0), self.encoder_layers)
            .saturating_add(layers(self.decoder_layer(0), self.decoder_layers));
        count(self.outer_tensors()).saturating_add(blocks)
    }

    /// Tensors of the network with their paths.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = Asked> {
        let encoder = (0..self.encoder_layers).flat_map(|layer| self.encoder_layer(layer));
        let decoder = (0..self.decoder_layers).flat_map(|layer| self.decoder_layer(layer));
        self.outer_tensors().into_iter().chain(encoder).chain(decoder)
    }

    /// All tensors except those of the blocks.
    fn outer_tensors(&self) -> Vec<Asked> {
        let (d, mel) = (("d_model", self.d_model), ("num_mel_bins", self.num_mel_bins));
        let conv = |path: &str, into| {
            [Asked::new(format!("{path}.weight"), &[d, into, ("", 3)]), Asked::new(format!("{path}.bias"), &[d])]
        };
        let matrix = |path: &str, rows, columns| Asked::new(format!("{path}.weight"), &[rows, columns]);
        let mut tensors = vec![
            matrix("decoder.embed_tokens", ("vocab_size", self.vocab_size), self.token_axis()),
            matrix("decoder.embed_positions", ("max_target_positions", self.max_target_positions), d),
        ];
        if self.position_embeddings_type == PositionEmbeddings::Absolute {
            tensors
                .insert(0, matrix("encoder.embed_positions", ("max_source_positions", self.max_source_positions), d));
        }
        if self.is_factorised() {
            tensors.push(matrix("decoder.embedding_hidden_mapping_in", d, self.token_axis()));
        }
        tensors.extend([conv("encoder.conv1", mel), conv("encoder.conv2", d)].concat());
        tensors.extend([norm("encoder.layer_norm", d), norm("decoder.layer_norm", d)].concat());
        tensors
    }

    fn encoder_layer(&self, layer: usize) -> Vec<Asked> {
        let at = format!("encoder.layers.{layer}");
        let keys = ("encoder_key_value_heads", self.key_value_widths()[0]);
        let ffn = ("encoder_ffn_dim", self.encoder_ffn_dim);
        let mut tensors = [self.attention(&at, "self_attn", keys), self.feed_forward(&at, ffn)].concat();
        if self.encoder_block == EncoderBlock::Conformer {
            tensors.extend(self.conformer(&at, ffn));
        }
        tensors
    }

    fn decoder_layer(&self, layer: usize) -> Vec<Asked> {
        let at = format!("decoder.layers.{layer}");
        let keys = ("decoder_key_value_heads", self.key_value_widths()[1]);
        let attentions = ["self_attn", "encoder_attn"].map(|name| self.attention(&at, name, keys)).concat();
        [attentions, self.feed_forward(&at, ("decoder_ffn_dim", self.decoder_ffn_dim))].concat()
    }

    /// Tensors of an attention whose keys and values have the width `keys`.
    fn attention(&self, at: &str, name: &str, keys: Axis) -> Vec<Asked> {
        let d = ("d_model", self.d_model);
        let keys = if keys.1 == self.d_model { d } else { keys };
        let maps = [("q_proj", d, d), ("k_proj", keys, d), ("v_proj", keys, d), ("out_proj", d, d)];
        let maps = maps.map(|(map, out, into)| linear(&format!("{at}.{name}.{map}"), out, into));
        let has_bias = |tensor: &Asked| !tensor.path.ends_with("k_proj.bias");
        let maps = maps.concat().into_iter().filter(has_bias);
        maps.chain(norm(&format!("{at}.{name}_layer_norm"), d)).collect()
    }

    fn feed_forward(&self, at: &str, ffn: Axis) -> Vec<Asked> {
        let d = ("d_model", self.d_model);
        let (fc1, fc2) = (linear(&format!("{at}.fc1"), ffn, d), linear(&format!("{at}.fc2"), d, ffn));
        [fc1, fc2, norm(&format!("{at}.final_layer_norm"), d)].concat()
    }

    /// Tensors that a Conformer block has beyond those of a Transformer block.
    fn conformer(&self, at: &str, ffn: Axis) -> Vec<Asked> {
        let (d, kernel) = (("d_model", self.d_model), ("conv_kernel_size", self.conv_kernel()));
        let (ffn1, conv) = (format!("{at}.ffn1"), format!("{at}.conv_module"));
        let dense =
            [linear(&format!("{ffn1}.intermediate_dense"), ffn, d), linear(&format!("{ffn1}.output_dense"), d, ffn)];
        let norms = ["ffn1_layer_norm", "conv_module.layer_norm", "conv_module.depthwise_layer_norm"];
        let norms = norms.map(|name| norm(&format!("{at}.{name}"), d));
        let convolutions = [
            Asked::new(format!("{conv}.pointwise_conv1.weight"), &[("", 2 * self.d_model), d]),
            Asked::new(format!("{conv}.depthwise_conv.weight"), &[d, ("", 1), kernel]),
            Asked::new(format!("{conv}.pointwise_conv2.weight"), &[d, d]),
        ];
        [dense.concat(), norms.concat(), convolutions.into()].concat()
    }
}
