//! Whisper as a backbone. It stands beside the folder `whisper`, whose decoder the trait names.

use crate::adapters::Gates;
use crate::backbone::{Backbone, BackboneInput, WrongInput};
use crate::layers::Embedding;
use crate::whisper::{Whisper, WhisperDecoder};
use burn::tensor::{Bool, Tensor};
use std::num::NonZeroUsize;
use std::ops::Range;

impl Backbone for Whisper {
    fn token_embedding(&self) -> &Embedding {
        &self.decoder.embed_tokens
    }

    fn block_count(&self) -> usize {
        self.encoder.layers.len()
    }

    fn embed(&self, input: BackboneInput, _: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput> {
        let (mel, start) = input.mel()?;
        Ok(self.encoder.front_end(mel, start))
    }

    /// Whisper attends to padding as well: it was trained on whole windows.
    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        _: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        self.encoder.blocks(x, blocks, gates)
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        self.encoder.layer_norm.forward(x)
    }

    fn decoder(&self) -> Option<&WhisperDecoder> {
        Some(&self.decoder)
    }

    fn constants(&self) -> &'static [&'static str] {
        &["encoder.embed_positions.weight"]
    }

    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        Whisper::set_gradient_checkpointing(self, every);
    }

    fn forward_flops(&self, length: usize, written: usize) -> f64 {
        Whisper::forward_flops(self, length, written)
    }

    fn encoder_flops(&self, length: usize) -> f64 {
        self.encoder.forward_flops(length)
    }

    fn d_model(&self) -> usize {
        self.encoder.layer_norm.weight.dims()[0]
    }
}
