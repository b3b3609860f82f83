//! Blocks of an encoder or a decoder, as far as they affect memory.

use crate::execution::Execution;
use undertone_model::adaptable::ALL_LINEAR;
use undertone_ops::Implementation;

/// Blocks of the encoder or of the decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stack {
    pub layers: u64,
    pub width: u64,
    /// Width of keys and values.
    pub keys: u64,
    pub ffn: u64,
    pub heads: u64,
    /// Number of attentions in a block.
    pub attentions: u64,
    /// Whether they are blocks of a Conformer.
    pub conformer: bool,
    /// Maximum sequence length, in positions.
    pub positions: u64,
    /// Whether attention weights have dropout, which a composed kernel applies to the weights of all queries at once.
    pub drops: bool,
}

impl Stack {
    /// Returns the sum of `parameters(in, out)` over the linear maps of all blocks that a name refers to.
    pub fn adapted(&self, target: &str, parameters: impl Fn(u64, u64) -> u64) -> u64 {
        let maps = self.maps().into_iter().filter(|map| map.is_named(target));
        self.layers * maps.map(|map| map.count * parameters(map.d_in, map.d_out)).sum::<u64>()
    }

    /// Returns the linear maps of a block.
    fn maps(&self) -> Vec<Maps> {
        let Self { width, keys, ffn, attentions, .. } = *self;
        let map = |names, count, d_in, d_out| Maps { names, count, d_in, d_out };
        let mut maps = vec![
            map(&["q_proj", "query", "q_lin"], attentions, width, width),
            map(&["k_proj", "key", "k_lin"], attentions, width, keys),
            map(&["v_proj", "value", "v_lin"], attentions, width, keys),
            map(&["out_proj", "dense", "out_lin"], attentions, width, width),
            map(&["fc1", "intermediate", "dense", "lin1"], 1, width, ffn),
            map(&["fc2", "output", "dense", "lin2"], 1, ffn, width),
        ];
        if self.conformer {
            maps.push(map(&["intermediate_dense"], 1, width, ffn));
            maps.push(map(&["output_dense"], 1, ffn, width));
            maps.push(map(&["pointwise_conv1"], 1, width, 2 * width));
            maps.push(map(&["pointwise_conv2"], 1, width, width));
        }
        maps
    }

    /// Returns the number of elements of the linear maps of all blocks.
    pub fn matrices(&self) -> u64 {
        self.layers * self.maps().iter().map(|map| map.count * map.d_in * map.d_out).sum::<u64>()
    }

    /// Returns the bytes kept by all blocks. With a `memory` of that many positions each block has cross-attention.
    pub fn kept(&self, memory: u64, execution: &Execution) -> u128 {
        let [layers, width, ffn, positions] = [self.layers, self.width, self.ffn, self.positions].map(u128::from);
        let (row, keys) = (width * positions, u128::from(self.keys) * positions);
        // Residual stream and its norm, queries, keys, values and the attention output; stream and norm again; then the
        // wide layer before and after its GELU. Cross-attention adds stream, norm, queries and attention output.
        // Of shared keys and values fewer are kept, unless the attention is causal, and the attention output in two orders.
        let all = match (self.keys < self.width, memory > 0) {
            (false, false) => 8 * row,
            (false, true) => 12 * row,
            (true, false) => 7 * row + 2 * keys,
            (true, true) => 13 * row,
        };
        // In half precision, too, residual streams stay in f32, and on CubeCL attention outputs, which have a copy for their maps.
        let streams = if memory > 0 { 3 } else { 2 };
        let copied = match execution.implementation {
            Implementation::Cube if execution.is_half() => (streams - 1) * row,
            _ => 0,
        };
        let element_bytes = u128::from(execution.element_bytes);
        let full = streams * row + copied;
        let block = 4 * full + element_bytes * (all - streams * row + 2 * ffn * positions);
        // Stream, norm and the wide layer twice; then stream, norm, values and gates, and what the convolution, its norm,
        // SiLU and the last map take.
        let conformer = if self.conformer { 4 * 10 * row + element_bytes * 2 * ffn * positions } else { 0 };
        // A composed norm keeps its input centred, squared and scaled.
        let unfused = match execution.implementation {
            Implementation::Composed if self.conformer => 15 * row,
            Implementation::Composed => 6 * row,
            Implementation::Host | Implementation::Cube => 0,
        };
        let block = block + conformer + 4 * unfused;
        if execution.checkpointed { 4 * layers * row + block } else { layers * block }
    }

    /// Returns the bytes of the gradients of a wide feed-forward layer that exist at the same time.
    pub fn gradients(&self, execution: &Execution) -> u64 {
        (4 * execution.fitted().gradients).saturating_mul(self.ffn).saturating_mul(self.positions)
    }
}

/// Linear maps of the same size in a block.
struct Maps {
    /// Their names, in Whisper, BERT or DistilBERT.
    names: &'static [&'static str],
    count: u64,
    d_in: u64,
    d_out: u64,
}

impl Maps {
    /// Whether the last part of a path is one of the names, or all maps are meant.
    fn is_named(&self, target: &str) -> bool {
        target == ALL_LINEAR || self.names.contains(&target.rsplit('.').next().unwrap_or(target))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Execution, Footprint, TrainedPart};
    use undertone_model::adaptable::{ALL_LINEAR, Adaptable, adapt};
    use undertone_model::adapters::lora::LoraConfig;
    use undertone_model::whisper::{EncoderBlock, PositionEmbeddings, WhisperConfig};
    use undertone_store::parameter_infos;

    fn compact() -> WhisperConfig {
        WhisperConfig {
            d_model: 24,
            embedding_size: Some(8),
            encoder_block: EncoderBlock::Conformer,
            conv_kernel_size: Some(7),
            position_embeddings_type: PositionEmbeddings::Rotary,
            encoder_key_value_heads: Some(2),
            decoder_key_value_heads: Some(1),
            encoder_ffn_dim: 40,
            decoder_ffn_dim: 32,
            vocab_size: 50,
            ..Default::default()
        }
    }

    #[test]
    fn parameters_are_those_of_the_network_and_its_adapters() {
        let (config, device) = (compact(), Default::default());
        let footprint = Footprint::whisper(&config);
        let mut model = config.init(&device);
        let count =
            |model: &_| parameter_infos(model).iter().map(|p| p.shape.iter().product::<usize>() as u64).sum::<u64>();
        let whole = count(&model);
        assert_eq!((footprint.parameters, footprint.trainable), (whole, whole));
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let mut target_modules: Vec<String> = model.linears().iter().map(|(site, _)| last(&site.path)).collect();
        target_modules.sort();
        target_modules.dedup();
        let lora = LoraConfig { r: 3, target_modules, ..Default::default() };
        adapt(&mut model, std::slice::from_ref(&lora), 0, &device).expect("adapted");
        let all = LoraConfig { target_modules: vec![ALL_LINEAR.into()], ..lora.clone() };
        for lora in [lora, all] {
            let adapted = footprint.training_part(&TrainedPart::Adapters(vec![lora.into()]));
            assert_eq!(adapted.trainable, count(&model) - whole);
        }
    }

    #[test]
    fn every_option_counts() {
        let bytes = |change: fn(&mut WhisperConfig)| {
            let mut config = WhisperConfig { vocab_size: 50_000, d_model: 384, encoder_ffn_dim: 1536, ..compact() };
            change(&mut config);
            Footprint::whisper(&config).bytes(4, 4, &Execution::GPU)
        };
        let all = bytes(|_| ());
        assert!(bytes(|c| c.encoder_block = EncoderBlock::Transformer) < all);
        assert!(bytes(|c| c.encoder_key_value_heads = None) > all);
        assert!(bytes(|c| c.decoder_key_value_heads = None) > all);
        assert!(bytes(|c| c.embedding_size = None) > all);
        assert!(bytes(|c| c.max_target_positions = 256) < all);
    }
}
