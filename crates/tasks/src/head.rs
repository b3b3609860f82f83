//! Network of a task.

use crate::{Answer, BoxError, DeviceArrays, GenerationSettings, TextSample};
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Bool, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::boxed::{Boxed, DynModule, Erase, Family};
use undertone_model::text::TextTokenizer;

/// Network that computes a task's answers from a backbone's states: a `#[derive(Module)]` struct that implements this
/// trait.
pub trait TaskHead: DynModule<TaskHeads> + Sync {
    /// Returns the loss on samples of its task, summed over their decisions.
    ///
    /// # Errors
    /// When the batch lacks an array.
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError>;

    /// Answers samples, which may be of another task if a router sent them here.
    ///
    /// # Errors
    /// When the batch lacks an array.
    fn answer(&self, input: HeadInput, context: &AnswerContext) -> Result<Vec<Answer>, BoxError>;

    /// Sets gradient checkpointing: only the input of every `every` blocks is kept for the backward pass, which runs
    /// them again. `None` keeps everything, as does a head without blocks.
    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        let _ = every;
    }
}

/// A head of any kind, as models hold it. Its parameters' paths begin with the name that it is given.
pub type BoxedHead = Boxed<TaskHeads>;

/// Family of the modules that are held as heads.
#[derive(Debug)]
pub struct TaskHeads;

impl Family for TaskHeads {
    type Object = dyn TaskHead;
}

impl<H: TaskHead + Module + ModuleDisplay> Erase<H> for TaskHeads {
    fn erase(module: Box<H>) -> Box<dyn TaskHead> {
        module
    }
}

/// Input of a head.
#[derive(Clone, Debug)]
pub struct HeadInput {
    /// Last states of the backbone, `[rows, tokens, d_model]`.
    pub states: Tensor<3>,
    /// Padding mask, `[rows, tokens]`, true where a sample has ended.
    pub padding: Tensor<2, Bool>,
    /// Tokens that the backbone read, `[rows, tokens]`.
    pub ids: Tensor<2, Int>,
    /// Arrays of the kind's `inputs`, and for a loss of its `labels` as well.
    pub arrays: DeviceArrays,
}

/// Further inputs of an answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerContext<'a> {
    /// Samples, in the order of the rows.
    pub samples: &'a [&'a TextSample],
    /// Tokenizer of the backbone.
    pub tokenizer: &'a TextTokenizer,
    /// Decoding settings.
    pub generation: &'a GenerationSettings,
}

/// Index of each row's maximum.
pub fn argmax(logits: Tensor<2>) -> Vec<usize> {
    logits.argmax(1).into_data().iter::<i64>().map(|column| column as usize).collect()
}
