//! The network of a task.

use crate::{Answer, BoxError, DeviceArrays, GenerationSettings, TextSample};
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Bool, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::boxed::{Boxed, DynModule, Erase, Family};
use undertone_model::text::TextTokenizer;

/// The network that makes a task's answers of a backbone's states: a `#[derive(Module)]` struct with this beside it.
pub trait TaskHead: DynModule<TaskHeads> {
    /// The loss on samples of its task, summed over their decisions.
    ///
    /// # Errors
    /// When the batch lacks what it asks for.
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError>;

    /// Its answers to samples, which may be of another task where a router sent them here.
    ///
    /// # Errors
    /// When the batch lacks what it asks for.
    fn answer(&self, input: HeadInput, context: &AnswerContext) -> Result<Vec<Answer>, BoxError>;

    /// Keeps only the input of every `every` of its blocks for the backward pass, which runs them again; none keeps
    /// everything. A head without blocks keeps everything anyway.
    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        let _ = every;
    }
}

/// A head of any kind, as models hold it. Its parameters' paths begin with the name that it is given.
pub type BoxedHead = Boxed<TaskHeads>;

/// That modules are held as heads.
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

/// What a head reads.
#[derive(Clone, Debug)]
pub struct HeadInput {
    /// The backbone's last states, `[rows, tokens, d_model]`.
    pub states: Tensor<3>,
    /// True where a sample has ended, `[rows, tokens]`.
    pub padding: Tensor<2, Bool>,
    /// The tokens that the backbone read, `[rows, tokens]`.
    pub ids: Tensor<2, Int>,
    /// What its kind made of the samples: `inputs`, and for a loss `labels` as well.
    pub arrays: DeviceArrays,
}

/// What an answer is made with besides.
#[derive(Clone, Copy, Debug)]
pub struct AnswerContext<'a> {
    /// The samples, in the order of the rows.
    pub samples: &'a [&'a TextSample],
    /// The backbone's tokenizer.
    pub tokenizer: &'a TextTokenizer,
    /// How text is decoded.
    pub generation: &'a GenerationSettings,
}

/// The column of each row's largest number.
pub fn argmax(logits: Tensor<2>) -> Vec<usize> {
    logits.argmax(1).into_data().iter::<i64>().map(|column| column as usize).collect()
}
