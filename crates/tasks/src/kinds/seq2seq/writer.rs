//! The decoder that writes over a text backbone.

use super::seq2seq_text;
use crate::{Answer, AnswerContext, BoxError, HeadInput, TaskHead};
use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::text_decoder::row_norm;
use undertone_model::whisper::{DecoderCache, GenerateOptions, WhisperDecoder};
use undertone_ops::linear_cross_entropy;

/// A small decoder that reads, at every token of the source, the backbone's state and the token's own embedding beside
/// it: states of an encoder that was trained for something else say what a text is about rather than its words, and a
/// summary or a translation has to repeat some of those.
#[derive(Module, Debug)]
pub struct TextWriter {
    /// What writes.
    pub decoder: WhisperDecoder,
    /// Brings embeddings to the scale of a normed state: numbers of variance 1.
    #[module(skip)]
    scale: f64,
}

impl TextWriter {
    /// Around a fresh decoder, whose attention to the source begins as one that repeats: values pass through as they are,
    /// at the scale of embeddings, so that where it looks is what it says. Only where to look is left to be found, and
    /// that a few thousand texts can teach.
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

    /// Ready to write: `states`, `[batch, tokens, d_model]`, are the backbone's for `ids`, `[batch, tokens]`.
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
        // Copies share their tensors.
        self.decoder = self.decoder.clone().with_gradient_checkpointing(every);
    }
}
