//! Decoder that writes text over a text backbone.

use super::seq2seq_text;
use crate::{Answer, AnswerContext, BoxError, HeadInput, TaskHead};
use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::text_decoder::row_norm;
use undertone_model::whisper::{DecoderCache, GenerateOptions, WhisperDecoder};
use undertone_ops::linear_cross_entropy;

/// A small decoder that reads, for every source token, the backbone's state and the token's own embedding. The states
/// of an encoder that was trained for another task encode the topic of a text rather than its words, and a summary or a
/// translation has to repeat some of the words.
#[derive(Module, Debug)]
pub struct TextWriter {
    /// Decoder.
    pub decoder: WhisperDecoder,
    /// Factor that brings embeddings to the scale of a normed state, whose elements have variance 1.
    #[module(skip)]
    scale: f64,
}

impl TextWriter {
    /// Wraps a new decoder and initialises its cross-attention to copy: value and output projections start as the
    /// identity, at the scale of embeddings, so that the decoder writes the token that it attends to. Only the
    /// attention weights have to be learned, for which a few thousand texts are enough.
    pub fn new(mut decoder: WhisperDecoder, device: &Device) -> Self {
        let d_model = decoder.embed_tokens.weight.dims()[1];
        let norm = row_norm(&decoder.embed_tokens);
        let scale = if norm > 0.0 { (d_model as f64).sqrt() / norm } else { 1.0 };
        let passes = |factor: f64| Param::from_tensor(Tensor::<2>::eye(d_model, device).mul_scalar(factor));
        for layer in &mut decoder.layers {
            layer.encoder_attn.v_proj.weight = passes(scale.recip());
            layer.encoder_attn.out_proj.weight = passes(1.0);
        }
        Self { decoder, scale }
    }

    /// Creates a cache for decoding: `states`, `[batch, tokens, d_model]`, are the backbone's states of `ids`, `[batch,
    /// tokens]`.
    pub fn cache(&self, states: Tensor<3>, ids: Tensor<2, Int>, padding: Tensor<2, Bool>) -> DecoderCache {
        let words = self.decoder.embed_tokens.forward(ids).mul_scalar(self.scale);
        self.decoder.cache(states + words, None).with_padding(padding)
    }
}

impl TaskHead for TextWriter {
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
        let (inputs, labels) = (input.arrays.ints::<2>("inputs")?, input.arrays.ints::<1>("labels")?);
        let cache = self.cache(input.states, input.ids, input.padding);
        let hidden = self.decoder.forward_all(inputs, cache);
        let [rows, length, d_model] = hidden.dims();
        let embedding = self.decoder.embed_tokens.weight.val();
        let hidden = hidden.reshape([rows * length, d_model]);
        Ok(linear_cross_entropy(hidden, embedding, None, labels, Default::default()).sum)
    }

    fn answer(&self, input: HeadInput, context: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        let (decoder, tokenizer) = (&self.decoder, context.tokenizer);
        let positions = decoder.embed_positions.weight.dims()[0];
        let prompts = vec![vec![tokenizer.cls()]; context.samples.len()];
        let options = GenerateOptions {
            suppress: vec![tokenizer.pad(), tokenizer.cls()],
            ..GenerateOptions::new(tokenizer.sep(), positions)
        };
        let options = context.generation.applied(options, positions, 1);
        let written = decoder.generate(self.cache(input.states, input.ids, input.padding), &prompts, &options);
        Ok(written.iter().map(|tokens| Answer::text(seq2seq_text(tokenizer, tokens).trim())).collect())
    }

    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        // Clones share their tensors.
        self.decoder = self.decoder.clone().with_gradient_checkpointing(every);
    }
}
