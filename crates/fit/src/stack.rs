//! Blocks of an encoder or a decoder, as far as they affect memory.

use crate::execution::Execution;
use undertone_model::target::Target;
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
    /// Returns the sum of `parameters(in, out)` over the linear maps of all blocks that one of the targets names.
    pub fn adapted(&self, targets: &[Target], parameters: impl Fn(u64, u64) -> u64) -> u64 {
        let maps = self.maps();
        let named = |block| maps.iter().filter(move |map| map.is_named(self.attentions, block, targets));
        (0..self.layers).flat_map(named).map(|map| parameters(map.d_in, map.d_out)).sum()
    }

    /// Returns the linear maps of a block.
    fn maps(&self) -> Vec<Map> {
        let Self { width, keys, ffn, attentions, .. } = *self;
        let map = |whisper, bert, distilbert, d_in, d_out| Map { whisper, bert, distilbert, d_in, d_out };
        let mut maps = vec![
            map("self_attn.q_proj", "attention.self.query", "attention.q_lin", width, width),
            map("self_attn.k_proj", "attention.self.key", "attention.k_lin", width, keys),
            map("self_attn.v_proj", "attention.self.value", "attention.v_lin", width, keys),
            map("self_attn.out_proj", "attention.output.dense", "attention.out_lin", width, width),
            map("fc1", "intermediate.dense", "ffn.lin1", width, ffn),
            map("fc2", "output.dense", "ffn.lin2", ffn, width),
        ];
        let of_whisper = |whisper, d_in, d_out| Map { whisper, bert: "", distilbert: "", d_in, d_out };
        if attentions > 1 {
            maps.push(of_whisper("encoder_attn.q_proj", width, width));
            maps.push(of_whisper("encoder_attn.k_proj", width, keys));
            maps.push(of_whisper("encoder_attn.v_proj", width, keys));
            maps.push(of_whisper("encoder_attn.out_proj", width, width));
        }
        if self.conformer {
            maps.push(of_whisper("ffn1.intermediate_dense", width, ffn));
            maps.push(of_whisper("ffn1.output_dense", ffn, width));
            maps.push(of_whisper("conv_module.pointwise_conv1", width, 2 * width));
            maps.push(of_whisper("conv_module.pointwise_conv2", width, width));
        }
        maps
    }

    /// Returns the number of elements of the linear maps of all blocks.
    pub fn matrices(&self) -> u64 {
        self.layers * self.maps().iter().map(|map| map.d_in * map.d_out).sum::<u64>()
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

/// Linear map of a block.
struct Map {
    /// Its paths below a block of Whisper, BERT and DistilBERT; empty where there is no such map.
    whisper: &'static str,
    bert: &'static str,
    distilbert: &'static str,
    d_in: u64,
    d_out: u64,
}

impl Map {
    /// Returns whether one of the targets names it in a block of a stack with so many attentions: a decoder has two.
    fn is_named(&self, attentions: u64, block: u64, targets: &[Target]) -> bool {
        let stack = if attentions > 1 { "decoder" } else { "encoder" };
        let paths = [
            (self.whisper, format!("{stack}.layers.{block}.{}", self.whisper)),
            (self.bert, format!("encoder.layer.{block}.{}", self.bert)),
            (self.distilbert, format!("transformer.layer.{block}.{}", self.distilbert)),
        ];
        let named = |path: &str| targets.iter().any(|target| target.names(path));
        paths.iter().any(|(map, path)| !map.is_empty() && named(path))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Execution, Footprint, TrainedPart};
    use undertone_model::adaptable::{Adaptable, adapt};
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
        let targets = |targets: &[&str]| targets.iter().map(|target| (*target).to_owned()).collect();
        let some = [
            targets(&["all-linear"]),
            targets(&["encoder_attn.q_proj", "fc1"]),
            targets(&[".*decoder.*(self_attn|encoder_attn).*(q_proj|v_proj)$", "v_proj"]),
            targets(&[r"model\.encoder\.layers\.0\..*"]),
        ];
        for target_modules in std::iter::once(target_modules).chain(some) {
            let lora = LoraConfig { r: 3, target_modules, ..Default::default() };
            adapt(&mut model, std::slice::from_ref(&lora), 0, &device).expect("adapted");
            let adapted = footprint.training_part(&TrainedPart::Adapters(vec![lora.clone().into()]));
            assert_eq!(adapted.trainable, count(&model) - whole, "{lora:?}");
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
