//! The decoder: learned positions, causal self-attention, cross-attention to the encoder, tied output.

use super::{KeyValue, MultiHeadAttention, WhisperConfig};
use crate::adapters::Gates;
use crate::checkpointing::{self, Beside};
use crate::layers::{Embedding, LayerNorm, Linear};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_ops::{dropout, gelu, linear, prefers_states, residual_dropout};

/// Decoder, from tokens and encoder states to states. The token embedding is also the output layer.
#[derive(Module, Debug)]
pub struct WhisperDecoder {
    /// Token embedding, `[vocab_size, embedding_size]`.
    pub embed_tokens: Embedding,
    /// embedding_size → d_model, no bias; None if these are equal.
    pub embedding_hidden_mapping_in: Option<Linear>,
    /// Learned positions, `[max_target_positions, d_model]`.
    pub embed_positions: Embedding,
    /// Blocks.
    pub layers: Vec<DecoderLayer>,
    /// Norm after the last block.
    pub layer_norm: LayerNorm,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    embed_scale: f64,
    #[module(skip)]
    pub(super) checkpointing: Option<NonZeroUsize>,
}

/// Block: causal self-attention, cross-attention and feed-forward layers, each behind a norm and added to the stream.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Self-attention over the tokens so far.
    pub self_attn: MultiHeadAttention,
    /// Norm before the self-attention.
    pub self_attn_layer_norm: LayerNorm,
    /// Cross-attention over the encoder's states.
    pub encoder_attn: MultiHeadAttention,
    /// Norm before the cross-attention.
    pub encoder_attn_layer_norm: LayerNorm,
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

/// Key-value cache of decoding: the encoder's states, and the keys and values of past tokens. Where a few queries cannot
/// attend to the states themselves, they are projected for every layer.
#[derive(Clone, Debug)]
pub struct DecoderCache {
    /// Its states are `None` once they are projected.
    beside: Beside,
    /// Empty before the first tokens.
    layers: Vec<LayerCache>,
    length: usize,
    start: Option<Tensor<3>>,
}

#[derive(Clone, Debug)]
struct LayerCache {
    /// Keys and values of the encoder's states, if they are projected.
    cross: Option<KeyValue>,
    past: Option<KeyValue>,
}

/// Most tokens at a time that attend to states as they are. `n` of them cost `n · heads` products with each state, keys and
/// values `d_model`, where heads are 64 wide and larger products are faster.
const FEW_TOKENS: usize = 32;

impl DecoderCache {
    /// Adds `task`, `[batch, d_model]`, to the embedding of each sequence's first token. So a learned task vector tells
    /// a frozen decoder what to write (prompt tuning, Lester et al., 2021, at the start token).
    pub fn with_start(mut self, task: Tensor<2>) -> Self {
        self.start = Some(task.unsqueeze_dim(1));
        self
    }

    /// Hides padded encoder states from the decoder: `mask`, `[batch, time]`, is true where a state is padding. Each
    /// row must leave a state visible.
    pub fn with_padding(mut self, mask: Tensor<2, Bool>) -> Self {
        self.beside.padding = Some(mask.inner());
        self
    }

    /// Selects batch rows in the given order, for sequences that leave the batch and beams that branch.
    pub fn select(self, rows: Tensor<1, Int>) -> Self {
        let keep = |kv: KeyValue| kv.select(rows.clone());
        let layer = |l: LayerCache| LayerCache { cross: l.cross.map(keep), past: l.past.map(keep) };
        Self {
            beside: Beside {
                states: self.beside.states.map(|states| states.select(0, rows.clone())),
                gates: self.beside.gates.map(|gates| gates.select(rows.clone())),
                padding: self.beside.padding.map(|mask| mask.select(0, rows.clone())),
                rotary: None,
            },
            layers: self.layers.into_iter().map(layer).collect(),
            length: self.length,
            start: self.start.map(|start| start.select(0, rows.clone())),
        }
    }

    /// As [`select`](Self::select), if every row is replaced by one of the same sample: everything that depends on the
    /// sample alone stays unchanged, which is most of the cache.
    pub(super) fn branch(mut self, rows: Tensor<1, Int>) -> Self {
        for layer in &mut self.layers {
            layer.past = layer.past.take().map(|past| past.select(rows.clone()));
        }
        self
    }

    /// Number of rows; `None` for a decoder without blocks.
    pub(super) fn batch(&self) -> Option<usize> {
        let projected = self.layers.first().and_then(|layer| layer.cross.as_ref()).map(|memory| &memory.key);
        projected.or(self.beside.states.as_ref()).map(|x| x.dims()[0])
    }

    /// Whether the layers attend to the encoder's states as they are.
    #[cfg(test)]
    pub(super) fn holds_states(&self) -> bool {
        self.beside.states.is_some() && !self.layers.is_empty()
    }

    /// Number of decoded tokens.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl WhisperDecoder {
    pub(super) fn init(config: &WhisperConfig, device: &Device) -> Self {
        let embed_tokens = Embedding::init(config.vocab_size, config.embedding_width(), config.init_std, device);
        Self::with_embeddings(embed_tokens, config, device)
    }

    /// As [`init`](Self::init), with existing token embeddings.
    pub(crate) fn with_embeddings(embed_tokens: Embedding, config: &WhisperConfig, device: &Device) -> Self {
        let (d, std) = (config.d_model, config.init_std);
        // At this deviation the projection keeps the scale of an embedding, and of a state's products with embeddings.
        let scale = (config.embedding_width() as f64).powf(-0.5);
        let mapping = || Linear::init(config.embedding_width(), d, false, scale, device);
        Self {
            embed_tokens,
            embedding_hidden_mapping_in: config.is_factorised().then(mapping),
            embed_positions: Embedding::init(config.max_target_positions, d, std, device),
            layers: (0..config.decoder_layers).map(|_| DecoderLayer::init(config, device)).collect(),
            layer_norm: LayerNorm::init(d, device),
            dropout: config.dropout,
            embed_scale: if config.scale_embedding { (d as f64).sqrt() } else { 1.0 },
            checkpointing: None,
        }
    }

    /// Sets gradient checkpointing of [`forward_all`](Self::forward_all): only the input of every `every` blocks is
    /// kept for the backward pass, which runs them again. `None` keeps everything.
    pub fn with_gradient_checkpointing(self, every: Option<NonZeroUsize>) -> Self {
        Self { checkpointing: every, ..self }
    }

    /// Creates a cache for decoding from `encoder_states`, `[batch, time, d_model]`, with the adapters that `gates`
    /// selects.
    pub fn cache(&self, encoder_states: Tensor<3>, gates: Option<Gates>) -> DecoderCache {
        let beside = Beside { gates, states: Some(encoder_states), ..Default::default() };
        DecoderCache { beside, layers: Vec::new(), length: 0, start: None }
    }

    /// Prepares attention to the encoder's states once for every layer.
    pub(super) fn prepare(&self, cache: &mut DecoderCache) {
        let Some(states) = cache.beside.states.as_ref().filter(|_| cache.layers.is_empty()) else { return };
        let devices = [states.device(), self.embed_tokens.weight.val().device()];
        if cache.beside.gates.is_some() || !devices.iter().all(prefers_states) {
            return self.project(cache);
        }
        cache.layers = self.layers.iter().map(|_| LayerCache { cross: None, past: None }).collect();
    }

    /// Projects the encoder's states for every layer.
    fn project(&self, cache: &mut DecoderCache) {
        let Some(states) = cache.beside.states.take() else { return };
        let gates = cache.beside.gates.as_ref();
        let cross = |layer: &DecoderLayer| Some(layer.encoder_attn.key_value(states.clone(), gates));
        cache.layers = self.layers.iter().map(|layer| LayerCache { cross: cross(layer), past: None }).collect();
    }

    /// Returns the states of `ids`, which continue the cache's tokens: `[batch, tokens]` → `[batch, tokens, d_model]`.
    ///
    /// # Panics
    /// If the sequence grows beyond `max_target_positions`.
    pub fn forward(&self, ids: Tensor<2, Int>, cache: &mut DecoderCache) -> Tensor<3> {
        self.prepare(cache);
        let tokens = ids.dims()[1];
        let mut x = self.embed(ids, cache);
        for (layer, layer_cache) in self.layers.iter().zip(&mut cache.layers) {
            x = layer.forward(x, layer_cache, &cache.beside);
        }
        cache.length += tokens;
        self.layer_norm.forward(x)
    }

    /// Returns the states of whole sequences, as [`forward`](Self::forward), but keeps nothing for later tokens.
    /// Training calls this.
    ///
    /// # Panics
    /// If the sequence is longer than `max_target_positions`.
    pub fn forward_all(&self, ids: Tensor<2, Int>, mut cache: DecoderCache) -> Tensor<3> {
        if !cache.layers.is_empty() {
            return self.forward(ids, &mut cache);
        }
        let x = self.embed(ids, &cache);
        let x = checkpointing::run(&self.layers, x, &cache.beside, self.checkpointing, DecoderLayer::forward_all);
        self.layer_norm.forward(x)
    }

    /// Returns how the tokens of whole sequences attend to the encoder's states in some heads, each given by its layer and
    /// its number: `[batch, heads, tokens, time]`, with a sum of 1 over time. Heads that do not exist are left out.
    ///
    /// # Panics
    /// If the sequence is longer than `max_target_positions`, or none of the heads exists.
    pub fn cross_attention(&self, ids: Tensor<2, Int>, mut cache: DecoderCache, heads: &[(usize, usize)]) -> Tensor<4> {
        self.project(&mut cache);
        let mut x = self.embed(ids, &cache);
        let mut found = Vec::new();
        let last = heads.iter().map(|(layer, _)| *layer).max().unwrap_or_default();
        let layers = self.layers.iter().zip(&mut cache.layers).take(last + 1);
        for (index, (layer, layer_cache)) in layers.enumerate() {
            x = layer.attend(x, layer_cache, cache.beside.gates.as_ref());
            let own = heads.iter().filter(|(of, head)| *of == index && *head < layer.encoder_attn.heads());
            let own: Vec<usize> = own.map(|(_, head)| *head).collect();
            if let Some(memory) = layer_cache.cross.as_ref().filter(|_| !own.is_empty()) {
                let h = layer.encoder_attn_layer_norm.forward(x.clone());
                found.push(layer.encoder_attn.weights(h, memory, &own, cache.beside.gates.as_ref()));
            }
            x = layer.attend_across(x, layer_cache.cross.as_ref(), &cache.beside);
            x = layer.feed(x, cache.beside.gates.as_ref());
        }
        Tensor::cat(found, 1)
    }

    /// Returns the stream before the first block.
    fn embed(&self, ids: Tensor<2, Int>, cache: &DecoderCache) -> Tensor<3> {
        let tokens = ids.dims()[1];
        let mut x = self.embed_tokens.forward(ids);
        if let Some(mapping) = &self.embedding_hidden_mapping_in {
            x = mapping.forward(x);
        }
        if self.embed_scale != 1.0 {
            x = x.mul_scalar(self.embed_scale);
        }
        if let Some(start) = cache.start.clone().filter(|_| cache.length == 0) {
            let rest = x.clone().narrow(1, 1, tokens - 1);
            x = Tensor::cat(vec![x.narrow(1, 0, 1) + start, rest], 1);
        }
        dropout(x + self.embed_positions.rows(cache.length, tokens).unsqueeze(), self.dropout)
    }

    /// Returns the logits of states by the tied embedding: `[.., d_model]` → `[.., vocab_size]`.
    pub fn logits<const D: usize>(&self, states: Tensor<D>) -> Tensor<D> {
        linear(self.as_embeddings(states), self.embed_tokens.weight.val(), None)
    }

    /// Brings states to the width of the token embedding, for a loss of their products with it: `[.., d_model]` → `[..,
    /// embedding_size]`. If these differ, by the transposed projection, which is tied, too.
    pub fn as_embeddings<const D: usize>(&self, states: Tensor<D>) -> Tensor<D> {
        match &self.embedding_hidden_mapping_in {
            Some(mapping) => linear(states, mapping.weight.val().transpose(), None),
            None => states,
        }
    }
}

impl DecoderLayer {
    fn init(config: &WhisperConfig, device: &Device) -> Self {
        let (d, std) = (config.d_model, config.init_std);
        let (keys, heads) = (config.key_value_widths()[1], config.decoder_attention_heads);
        let attention = || MultiHeadAttention::init(d, keys, heads, config.attention_dropout, std, device);
        Self {
            self_attn: attention(),
            self_attn_layer_norm: LayerNorm::init(d, device),
            encoder_attn: attention(),
            encoder_attn_layer_norm: LayerNorm::init(d, device),
            fc1: Linear::init(d, config.decoder_ffn_dim, true, std, device),
            fc2: Linear::init(config.decoder_ffn_dim, d, true, std, device),
            final_layer_norm: LayerNorm::init(d, device),
            dropout: config.dropout,
            activation_dropout: config.activation_dropout,
        }
    }

    /// Runs the block on a whole sequence with the encoder's states.
    fn forward_all(&self, x: Tensor<3>, beside: &Beside) -> Tensor<3> {
        self.forward(x, &mut LayerCache { cross: Some(self.projected(beside)), past: None }, beside)
    }

    fn forward(&self, x: Tensor<3>, cache: &mut LayerCache, beside: &Beside) -> Tensor<3> {
        let x = self.attend(x, cache, beside.gates.as_ref());
        self.feed(self.attend_across(x, cache.cross.as_ref(), beside), beside.gates.as_ref())
    }

    /// Returns keys and values of the encoder's states.
    fn projected(&self, beside: &Beside) -> KeyValue {
        self.encoder_attn.key_value(states(beside), beside.gates.as_ref())
    }

    /// Adds the self-attention over the cache's tokens and these.
    fn attend(&self, x: Tensor<3>, cache: &mut LayerCache, gates: Option<&Gates>) -> Tensor<3> {
        let h = self.self_attn_layer_norm.forward(x.clone());
        let new = self.self_attn.key_value(h.clone(), gates);
        let memory = match cache.past.take() {
            Some(past) => past.append(new),
            None => new,
        };
        cache.past = Some(memory.clone());
        residual_dropout(x, self.self_attn.forward(h, memory, true, gates), self.dropout)
    }

    /// Adds the cross-attention over the encoder's states.
    fn attend_across(&self, x: Tensor<3>, projected: Option<&KeyValue>, beside: &Beside) -> Tensor<3> {
        let (attention, padding, gates) = (&self.encoder_attn, beside.padding.as_ref(), beside.gates.as_ref());
        let h = self.encoder_attn_layer_norm.forward(x.clone());
        let mixed = match projected {
            Some(memory) => attention.cross(h, memory.clone(), padding, gates),
            None if x.dims()[1] <= FEW_TOKENS => attention.to_states(h, states(beside), padding),
            None => attention.cross(h, self.projected(beside), padding, gates),
        };
        residual_dropout(x, mixed, self.dropout)
    }

    /// Adds the feed-forward layers.
    fn feed(&self, x: Tensor<3>, gates: Option<&Gates>) -> Tensor<3> {
        let h = gelu(self.fc1.forward_lowered(self.final_layer_norm.forward(x.clone()), gates));
        residual_dropout(x, self.fc2.forward_gated(dropout(h, self.activation_dropout), gates), self.dropout)
    }
}

/// Returns the encoder's states, which a decoder always has until it has projected them.
fn states(beside: &Beside) -> Tensor<3> {
    beside.states.clone().expect("a decoder attends to an encoder's states")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen_dtype::{FrozenDtype, loaded_in};

    const TIME: usize = 70;

    fn decoder(device: &Device) -> WhisperDecoder {
        undertone_ops::seed(5);
        let config = WhisperConfig {
            vocab_size: 20,
            max_target_positions: 64,
            init_std: 0.4,
            ..WhisperConfig::new(24, 32, 3, [0, 2])
        };
        WhisperDecoder::init(&config, device)
    }

    fn ids(rows: usize, tokens: usize, device: &Device) -> Tensor<2, Int> {
        let ids: Vec<i64> = (0..rows * tokens).map(|i| (i * 7 % 20) as i64).collect();
        Tensor::<1, Int>::from_ints(ids.as_slice(), device).reshape([rows, tokens])
    }

    /// Bits of the two ways differ, but not by more than their rounding.
    fn assert_same(one: Tensor<3>, other: Tensor<3>) {
        let worst: f32 = (one - other).abs().max().into_scalar();
        assert!(worst < 1e-4, "{worst}");
    }

    #[test]
    fn attention_to_states_equals_attention_to_their_keys_and_values() {
        let device = Device::default();
        let decoder = decoder(&device);
        let states = undertone_ops::normal([3, TIME, 24], 1.0, &device);
        let mask: Vec<bool> = (0..3 * TIME).map(|i| i % TIME >= [TIME, 31, 2][i / TIME]).collect();
        let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device).reshape([3, TIME]);
        for padded in [false, true] {
            let cache = decoder.cache(states.clone(), None);
            let mut as_they_are = if padded { cache.with_padding(mask.clone()) } else { cache };
            let mut projected = as_they_are.clone();
            decoder.prepare(&mut as_they_are);
            decoder.project(&mut projected);
            let ways = [&as_they_are, &projected].map(|cache| cache.layers[0].cross.is_none());
            assert_eq!(ways, [prefers_states(&device), false]);
            // Few tokens, many, and one; then rows that leave, come twice, and change places.
            for tokens in [2, FEW_TOKENS + 1, 1] {
                let ids = ids(3, tokens, &device);
                let [one, other] = [&mut as_they_are, &mut projected].map(|cache| decoder.forward(ids.clone(), cache));
                assert_same(one, other);
            }
            let rows = Tensor::<1, Int>::from_ints([2, 0, 2, 1], &device);
            let [one, other] = [as_they_are, projected].map(|cache| {
                let mut cache = cache.select(rows.clone());
                assert_eq!(cache.batch(), Some(4));
                decoder.forward(ids(4, 1, &device), &mut cache)
            });
            assert_same(one, other);
        }
    }

    #[test]
    fn a_decoder_that_is_held_in_half_precision_attends_to_the_states_as_well() {
        let device = Device::default();
        let states = undertone_ops::normal([2, TIME, 24], 1.0, &device);
        for dtype in [FrozenDtype::Bf16, FrozenDtype::F16].into_iter().filter(|dtype| dtype.is_on(&device)) {
            let held = loaded_in(dtype, || decoder(&device));
            let mut as_they_are = held.cache(states.clone(), None);
            let mut projected = as_they_are.clone();
            held.project(&mut projected);
            let [one, other] = [&mut as_they_are, &mut projected].map(|cache| held.forward(ids(2, 3, &device), cache));
            assert_same(one, other);
        }
    }
}
