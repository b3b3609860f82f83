//! Network of a text encoder: embeddings, then post-norm blocks.

use super::{TextEncoderConfig, TextModelType};
use crate::adaptable::{Adaptable, Site};
use crate::adapters::Gates;
use crate::backbone::{Backbone, BackboneInput, WrongInput};
use crate::checkpointing::{self, Beside};
use crate::layers::{Embedding, LayerNorm, Linear};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use std::ops::Range;
use undertone_ops::{AttentionOptions, attention, dropout, gelu, residual_dropout};

/// Text encoder, from tokens to states. Module paths are the names of BERT's tensors in Hugging Face's files, except two that
/// Rust does not allow or recommend; see [`tensor_name`].
#[derive(Module, Debug)]
pub struct TextEncoder {
    /// Embeddings before the first block.
    pub embeddings: TextEmbeddings,
    /// Blocks.
    pub encoder: TextBlocks,
    #[module(skip)]
    model_type: TextModelType,
    #[module(skip)]
    checkpointing: Option<NonZeroUsize>,
}

/// Embeddings: the normalised sum of the vectors of token, position and segment.
#[derive(Module, Debug)]
pub struct TextEmbeddings {
    /// `[vocab_size, hidden_size]`.
    pub word_embeddings: Embedding,
    /// Learned positions, `[max_position_embeddings, hidden_size]`.
    pub position_embeddings: Embedding,
    /// `[type_vocab_size, hidden_size]`; DistilBERT has none.
    pub token_type_embeddings: Option<Embedding>,
    /// Norm of the sum.
    pub layer_norm: LayerNorm,
    /// RoBERTa's padding token: its positions start at the next number. BERT's start at 0.
    #[module(skip)]
    counted_from: Option<u32>,
    #[module(skip)]
    dropout: f64,
}

/// Stack of blocks.
#[derive(Module, Debug)]
pub struct TextBlocks {
    /// Blocks from the lowest to the highest.
    pub layer: Vec<TextBlock>,
}

/// Block: `x = norm(x + attention(x))`, then `norm(x + output(gelu(intermediate(x))))`.
#[derive(Module, Debug)]
pub struct TextBlock {
    /// Attention over all tokens that are not padding.
    pub attention: TextAttention,
    /// hidden_size → intermediate_size.
    pub intermediate: Intermediate,
    /// intermediate_size → hidden_size, added to the stream and normalised.
    pub output: AddNorm,
}

/// Self-attention, added to the stream and normalised.
#[derive(Module, Debug)]
pub struct TextAttention {
    /// Self-attention, Hugging Face's `self`.
    pub self_attention: SelfAttention,
    /// Output projection of the heads.
    pub output: AddNorm,
}

/// Projections to queries, keys and values.
#[derive(Module, Debug)]
pub struct SelfAttention {
    /// `[hidden_size, hidden_size]`.
    pub query: Linear,
    /// `[hidden_size, hidden_size]`.
    pub key: Linear,
    /// `[hidden_size, hidden_size]`.
    pub value: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    dropout: f64,
}

/// First feed-forward layer.
#[derive(Module, Debug)]
pub struct Intermediate {
    /// `[intermediate_size, hidden_size]`.
    pub dense: Linear,
}

/// Linear map whose output is added to the stream, followed by a norm.
#[derive(Module, Debug)]
pub struct AddNorm {
    /// Linear map.
    pub dense: Linear,
    /// Norm of the sum.
    pub layer_norm: LayerNorm,
    #[module(skip)]
    dropout: f64,
}

/// Returns Hugging Face's name for the parameter at a module path: `self_attention` is `self` there, `layer_norm` is `LayerNorm`,
/// and DistilBERT has names of its own.
pub fn tensor_name(path: &str, model_type: TextModelType) -> String {
    let segment = |name| match name {
        "self_attention" => "self",
        "layer_norm" => "LayerNorm",
        other => other,
    };
    let name = path.split('.').map(segment).collect::<Vec<_>>().join(".");
    match model_type {
        TextModelType::Distilbert => OF_DISTILBERT.iter().fold(name, |name, (berts, own)| name.replace(berts, own)),
        _ => name,
    }
}

/// Parts of BERT's names, and DistilBERT's. Those of the attention come first: their ends are like those of the feed-forward layers.
const OF_DISTILBERT: [(&str, &str); 9] = [
    ("encoder.layer.", "transformer.layer."),
    ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"),
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"),
    ("output.dense", "ffn.lin2"),
    ("output.LayerNorm", "output_layer_norm"),
];

impl TextEncoderConfig {
    /// Creates a model; [`undertone_ops::seed`] determines its weights. On an autodiff device it can be trained.
    pub fn init(&self, device: &Device) -> TextEncoder {
        let layer = (0..self.num_hidden_layers).map(|_| TextBlock::init(self, device)).collect();
        let (embeddings, encoder) = (TextEmbeddings::init(self, device), TextBlocks { layer });
        TextEncoder { embeddings, encoder, model_type: self.model_type, checkpointing: None }
    }

    fn layer_norm(&self, device: &Device) -> LayerNorm {
        LayerNorm::init(self.hidden_size, device).with_epsilon(self.layer_norm_eps)
    }
}

impl TextEncoder {
    /// Sets gradient checkpointing: only the input of every `every` blocks is kept for the backward pass, which runs
    /// them again. `None` keeps everything.
    pub fn with_gradient_checkpointing(mut self, every: Option<NonZeroUsize>) -> Self {
        self.set_gradient_checkpointing(every);
        self
    }

    /// Returns the states of every token: [`embed`](Self::embed), then all [`blocks`](Self::blocks).
    ///
    /// # Panics
    /// If a sequence is longer than [`max_tokens`](Self::max_tokens).
    pub fn forward(
        &self,
        ids: Tensor<2, Int>,
        type_ids: Option<Tensor<2, Int>>,
        padding: Option<&Tensor<2, Bool>>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        self.blocks(self.embed(ids, type_ids, padding), 0..self.encoder.layer.len(), padding, gates)
    }

    /// Returns the stream before the first block. Tokens without a segment id belong to segment 0.
    ///
    /// RoBERTa's positions count the tokens that are not padding: according to `padding` if it is given, else all
    /// tokens except `pad_token_id`. BERT's positions count from the left edge, so `padding` does not affect them.
    ///
    /// # Shapes
    /// - `ids`, `type_ids`: `[batch, tokens]`; `padding`: `[batch, tokens]`, true where a token is padding
    /// - output: `[batch, tokens, hidden_size]`
    ///
    /// # Panics
    /// If a sequence is longer than [`max_tokens`](Self::max_tokens).
    pub fn embed(
        &self,
        ids: Tensor<2, Int>,
        type_ids: Option<Tensor<2, Int>>,
        padding: Option<&Tensor<2, Bool>>,
    ) -> Tensor<3> {
        self.embeddings.forward(ids, type_ids, padding)
    }

    /// Applies the given blocks: `[batch, tokens, hidden_size]` → the same shape. Padded tokens are not attended to;
    /// each sequence must have one that is not padding.
    ///
    /// # Panics
    /// If `blocks` is out of range.
    pub fn blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: Option<&Tensor<2, Bool>>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        let beside = Beside { gates: gates.cloned(), padding: padding.cloned(), ..Default::default() };
        checkpointing::run(&self.encoder.layer[blocks], x, &beside, self.checkpointing, |block, x, beside| {
            block.forward(x, beside.padding.as_ref(), beside.gates.as_ref())
        })
    }

    /// Maximum sequence length in tokens, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.embeddings.max_tokens()
    }
}

impl TextEmbeddings {
    fn init(config: &TextEncoderConfig, device: &Device) -> Self {
        let table = |rows| Embedding::init(rows, config.hidden_size, config.initializer_range, device);
        Self {
            word_embeddings: table(config.vocab_size),
            position_embeddings: table(config.max_position_embeddings),
            token_type_embeddings: config.has_types().then(|| table(config.type_vocab_size)),
            layer_norm: config.layer_norm(device),
            counted_from: (config.first_position() > 0).then_some(config.pad_token_id),
            dropout: config.hidden_dropout_prob,
        }
    }

    fn forward(
        &self,
        ids: Tensor<2, Int>,
        type_ids: Option<Tensor<2, Int>>,
        padding: Option<&Tensor<2, Bool>>,
    ) -> Tensor<3> {
        let tokens = ids.dims()[1];
        let longest = self.max_tokens();
        assert!(tokens <= longest, "{tokens} tokens exceed the text encoder's {longest} positions");
        let positions = match self.counted_from {
            None => self.position_embeddings.rows(0, tokens).unsqueeze(),
            Some(pad) => self.position_embeddings.forward(counted_positions(&ids, pad, padding)),
        };
        // RoBERTa's texts are all of type 0, whatever the tokenizer says: transformers passes none of its types on.
        let segments = |table: &Embedding| match type_ids.filter(|_| self.counted_from.is_none()) {
            None => table.rows(0, 1).unsqueeze(),
            Some(type_ids) => table.forward(type_ids),
        };
        let words = self.word_embeddings.forward(ids);
        let x = match &self.token_type_embeddings {
            Some(table) => words + segments(table),
            None => words,
        };
        dropout(self.layer_norm.forward(x + positions), self.dropout)
    }

    fn max_tokens(&self) -> usize {
        self.position_embeddings.weight.dims()[0] - self.counted_from.map_or(0, |pad| pad as usize + 1)
    }
}

/// Returns the positions `pad + 1, pad + 2, …` for tokens that are not padding, and `pad` for padding.
fn counted_positions(ids: &Tensor<2, Int>, pad: u32, padding: Option<&Tensor<2, Bool>>) -> Tensor<2, Int> {
    let counted = match padding {
        Some(padding) => padding.clone().bool_not(),
        None => ids.clone().not_equal_scalar(pad),
    };
    let counted = counted.int();
    (counted.clone().cumsum(1) * counted).add_scalar(pad)
}

impl TextBlock {
    fn init(config: &TextEncoderConfig, device: &Device) -> Self {
        let (d, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let projection = || Linear::init(d, d, true, std, device);
        let add_norm = |d_in| AddNorm {
            dense: Linear::init(d_in, d, true, std, device),
            layer_norm: config.layer_norm(device),
            dropout: config.hidden_dropout_prob,
        };
        let self_attention = SelfAttention {
            query: projection(),
            key: projection(),
            value: projection(),
            heads: config.num_attention_heads,
            dropout: config.attention_probs_dropout_prob,
        };
        Self {
            attention: TextAttention { self_attention, output: add_norm(d) },
            intermediate: Intermediate { dense: Linear::init(d, inner, true, std, device) },
            output: add_norm(inner),
        }
    }

    /// Applies the block: `[batch, tokens, hidden_size]` → the same shape.
    pub fn forward(&self, x: Tensor<3>, padding: Option<&Tensor<2, Bool>>, gates: Option<&Gates>) -> Tensor<3> {
        let mixed = self.attention.self_attention.forward(x.clone(), padding, gates);
        let x = self.attention.output.forward(mixed, x, gates);
        let h = gelu(self.intermediate.dense.forward_lowered(x.clone(), gates));
        self.output.forward(h, x, gates)
    }
}

impl SelfAttention {
    fn forward(&self, x: Tensor<3>, padding: Option<&Tensor<2, Bool>>, gates: Option<&Gates>) -> Tensor<3> {
        let options = AttentionOptions::new(self.heads).with_dropout(self.dropout).with_key_padding(padding.cloned());
        let [query, key, value] =
            [&self.query, &self.key, &self.value].map(|projection| projection.forward_lowered(x.clone(), gates));
        attention(query, key, value, options)
    }
}

impl AddNorm {
    fn forward(&self, h: Tensor<3>, residual: Tensor<3>, gates: Option<&Gates>) -> Tensor<3> {
        self.layer_norm.forward(residual_dropout(residual, self.dense.forward_gated(h, gates), self.dropout))
    }
}

impl Backbone for TextEncoder {
    fn token_embedding(&self) -> &Embedding {
        &self.embeddings.word_embeddings
    }

    fn block_count(&self) -> usize {
        self.encoder.layer.len()
    }

    fn embed(&self, input: BackboneInput, padding: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput> {
        let (ids, types) = input.tokens()?;
        Ok(self.embeddings.forward(ids, Some(types), Some(padding)))
    }

    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        self.blocks(x, blocks, Some(padding), gates)
    }

    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        self.checkpointing = every;
    }

    fn forward_flops(&self, length: usize, _: usize) -> f64 {
        TextEncoder::forward_flops(self, length)
    }
}

impl Adaptable for TextEncoder {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        let model_type = self.model_type;
        let blocks = self.encoder.layer.iter_mut().enumerate();
        let found = blocks.flat_map(move |(block, TextBlock { attention, intermediate, output })| {
            let SelfAttention { query, key, value, .. } = &mut attention.self_attention;
            let maps = [
                ("attention.self.query", query),
                ("attention.self.key", key),
                ("attention.self.value", value),
                ("attention.output.dense", &mut attention.output.dense),
                ("intermediate.dense", &mut intermediate.dense),
                ("output.dense", &mut output.dense),
            ];
            let path = move |name| tensor_name(&format!("encoder.layer.{block}.{name}"), model_type);
            maps.map(|(name, linear)| (Site { path: path(name), block }, linear))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptable::adapt;
    use crate::adapters::lora::LoraConfig;
    use crate::testing::values;
    use undertone_store::parameter_infos;

    fn config(model_type: TextModelType) -> TextEncoderConfig {
        TextEncoderConfig {
            model_type,
            vocab_size: 30,
            max_position_embeddings: 12,
            pad_token_id: 1,
            initializer_range: 0.5,
            ..TextEncoderConfig::new(16, 24, 2, 2)
        }
    }

    fn ids(rows: &[&[i64]], device: &Device) -> Tensor<2, Int> {
        Tensor::<1, Int>::from_ints(rows.concat().as_slice(), device).reshape([rows.len(), rows[0].len()])
    }

    #[test]
    fn padding_changes_nothing_for_the_other_tokens() {
        let device = Device::default();
        for model_type in [TextModelType::Bert, TextModelType::Roberta] {
            let model = config(model_type).init(&device);
            let alone = model.forward(ids(&[&[3, 4, 5]], &device), None, None, None);
            let batch = ids(&[&[3, 4, 5, 1, 1], &[6, 7, 8, 9, 10]], &device);
            let padding = batch.clone().equal_scalar(1);
            let together = model.forward(batch, None, Some(&padding), None).narrow(0, 0, 1).narrow(1, 0, 3);
            let (alone, together) = (values(alone), values(together));
            assert!(alone.iter().zip(&together).all(|(a, b)| (a - b).abs() < 1e-5), "{alone:?} became {together:?}");
        }
    }

    #[test]
    fn types_of_texts_are_berts_alone() {
        let device = Device::default();
        for (model_type, differ) in
            [(TextModelType::Bert, true), (TextModelType::Distilbert, false), (TextModelType::Roberta, false)]
        {
            let model = config(model_type).init(&device);
            let states = |types| values(model.forward(ids(&[&[3, 4, 5]], &device), types, None, None));
            let typed = states(Some(ids(&[&[0, 0, 1]], &device)));
            assert_eq!(typed != states(None), differ, "{model_type:?}");
        }
    }

    #[test]
    fn adapters_of_distilbert_have_the_names_of_its_maps() {
        let mut model = config(TextModelType::Distilbert).init(&Device::default());
        let paths: Vec<String> = model.linears().into_iter().take(6).map(|(site, _)| site.path).collect();
        let maps =
            ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2"];
        assert_eq!(paths, maps.map(|map| format!("transformer.layer.0.{map}")));
    }

    #[test]
    fn roberta_counts_positions_over_what_is_no_padding() {
        let device = Device::default();
        let ids = ids(&[&[1, 1, 5, 6, 7], &[5, 6, 7, 1, 1]], &device);
        let padding = ids.clone().equal_scalar(1);
        for found in [counted_positions(&ids, 1, None), counted_positions(&ids, 1, Some(&padding))] {
            let found: Vec<i64> = found.into_data().iter().collect();
            assert_eq!(found, [1, 1, 2, 3, 4, 2, 3, 4, 1, 1]);
        }
        let tokens = |model_type| {
            let config = config(model_type);
            (config.max_tokens(), config.init(&device).max_tokens())
        };
        assert_eq!((tokens(TextModelType::Bert), tokens(TextModelType::Roberta)), ((12, 12), (10, 10)));
    }

    #[test]
    #[should_panic(expected = "11 tokens exceed the text encoder's 10 positions")]
    fn a_sequence_beyond_the_positions_is_refused() {
        let device = Device::default();
        let _ = config(TextModelType::Roberta).init(&device).embed(ids(&[&[5; 11]], &device), None, None);
    }

    #[test]
    fn dropout_acts_in_training_only() {
        let device = Device::default();
        let model = TextEncoderConfig { hidden_dropout_prob: 0.5, ..config(TextModelType::Bert) }.init(&device);
        let run =
            |model: &TextEncoder, device: &Device| values(model.forward(ids(&[&[3, 4, 5]], device), None, None, None));
        let states = run(&model, &device);
        assert_eq!(states, run(&model, &device));
        let (model, device) = (model.train(), device.autodiff());
        assert_ne!(run(&model, &device), run(&model, &device));
        assert_eq!(states, run(&model.valid(), &device.inner()));
    }

    #[test]
    fn adapters_go_on_every_map_and_train_alone() {
        let device = Device::default();
        let mut model = config(TextModelType::Bert).init(&device).no_grad();
        let target_modules = ["query", "key", "value", "dense"].map(str::to_owned).to_vec();
        adapt(&mut model, &[LoraConfig { target_modules, ..Default::default() }], 1, &device).expect("adapted");
        let infos = parameter_infos(&model.clone().train());
        let trained: Vec<String> =
            infos.iter().filter(|p| p.trainable).map(|p| tensor_name(&p.name, TextModelType::Bert)).collect();
        let sites: Vec<String> =
            model.linears().into_iter().filter(|(s, _)| s.block == 1).map(|(s, _)| s.path).collect();
        assert_eq!(sites.len(), 6);
        let expected = sites.iter().flat_map(|path| ["a", "b"].map(|m| format!("{path}.lora.lora_{m}")));
        assert_eq!(trained, expected.collect::<Vec<_>>());
    }
}
