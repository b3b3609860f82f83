//! What tasks stand on: a stack of blocks over what was embedded, whatever the architecture.

use crate::boxed::{Boxed, DynModule, Erase, Family};
use crate::layers::Embedding;
use crate::lora::{Adaptable, Gates};
use crate::whisper::WhisperDecoder;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Bool, Int, Tensor};
use std::num::NonZeroUsize;
use std::ops::Range;

/// A network that tasks stand on: a `#[derive(Module)]` struct with this beside it. The router reads the states between two of
/// its blocks, adapters go on the linear maps above ([`Adaptable`]), heads read its last states.
pub trait Backbone: DynModule<Backbones> + Adaptable + Sync {
    /// The table that turns tokens into vectors, `[vocabulary, d_model]`; heads that write text share it.
    fn token_embedding(&self) -> &Embedding;

    /// How many blocks there are.
    fn block_count(&self) -> usize;

    /// The stream before the first block, `[batch, time, d_model]`. `padding`: `[batch, time]`, true where an input has ended.
    ///
    /// # Errors
    /// When it reads something else.
    fn embed(&self, input: BackboneInput, padding: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput>;

    /// The stream after the given blocks, `[batch, time, d_model]` → the same, with the adapters that have a gate.
    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3>;

    /// What is done to the stream after the last block: a norm, where there is one.
    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        x
    }

    /// What writes text of the last states, in a backbone that does so by itself.
    fn decoder(&self) -> Option<&WhisperDecoder> {
        None
    }

    /// The paths of parameters that no stage trains, like positions that are computed.
    fn constants(&self) -> &'static [&'static str] {
        &[]
    }

    /// Keeps only the input of every `every` blocks for the backward pass, which runs them again; none keeps everything, which
    /// a backbone that cannot run blocks again does anyway.
    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        let _ = every;
    }

    /// Floating-point operations of a sample's forward pass: `length` is frames of 10 ms or tokens, `written` the tokens of its
    /// answer where the backbone writes it. What is not known is 0, and then no utilisation is shown.
    fn forward_flops(&self, length: usize, written: usize) -> f64 {
        let _ = (length, written);
        0.0
    }

    /// What PEFT puts before the paths of its linear maps in an adapter's file.
    fn peft_prefix(&self) -> &'static str {
        "base_model.model."
    }

    /// The width of its states.
    fn d_model(&self) -> usize {
        self.token_embedding().weight.dims()[1]
    }
}

/// A backbone of any architecture, as models hold it. Its parameters' paths begin with the name that it is given.
pub type BoxedBackbone = Boxed<Backbones>;

/// That modules are held as backbones.
#[derive(Debug)]
pub struct Backbones;

impl Family for Backbones {
    type Object = dyn Backbone;
}

impl<B: Backbone + Module + ModuleDisplay> Erase<B> for Backbones {
    fn erase(module: Box<B>) -> Box<dyn Backbone> {
        module
    }
}

/// What a backbone reads.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one in a batch
pub enum BackboneInput {
    /// Log-mel features, `[batch, mel bins, frames]`, and the encoder position that they begin at.
    Mel(Tensor<3>, usize),
    /// Tokens and their types, `[batch, tokens]` each.
    Tokens(Tensor<2, Int>, Tensor<2, Int>),
}

/// A backbone was given what it does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this backbone reads {expected}, and was given {found}: take a backbone for that, or other data")]
pub struct WrongInput {
    /// What it reads.
    pub expected: &'static str,
    /// What it was given.
    pub found: &'static str,
}

impl BackboneInput {
    /// Log-mel features and where they begin.
    ///
    /// # Errors
    /// When it is something else.
    pub fn mel(self) -> Result<(Tensor<3>, usize), WrongInput> {
        match self {
            Self::Mel(mel, start) => Ok((mel, start)),
            other => Err(WrongInput { expected: MEL, found: other.name() }),
        }
    }

    /// Tokens and their types.
    ///
    /// # Errors
    /// When it is something else.
    pub fn tokens(self) -> Result<(Tensor<2, Int>, Tensor<2, Int>), WrongInput> {
        match self {
            Self::Tokens(ids, types) => Ok((ids, types)),
            other => Err(WrongInput { expected: TOKENS, found: other.name() }),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Mel(..) => MEL,
            Self::Tokens(..) => TOKENS,
        }
    }
}

const MEL: &str = "log-mel features";
const TOKENS: &str = "tokens";
