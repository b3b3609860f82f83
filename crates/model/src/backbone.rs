//! Backbones: a stack of blocks over an embedding, of any architecture.

use crate::adaptable::{Adaptable, unload};
use crate::adapters::Gates;
use crate::boxed::{Boxed, DynModule, Erase, Family};
use crate::folder::{FolderError, object, write};
use crate::layers::Embedding;
use crate::whisper::WhisperDecoder;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Bool, Int, Tensor};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use undertone_store::{Dtype, parameters};

/// A network that task heads are built on: a `#[derive(Module)]` struct that implements this trait. The router reads
/// the states between two of its blocks, adapters are added to the linear maps above ([`Adaptable`]), and heads read
/// its last states.
pub trait Backbone: DynModule<Backbones> + Adaptable + Sync {
    /// Returns the token embedding, `[vocabulary, d_model]`: heads that write text share it, and it is the output layer
    /// of a backbone that is trained by CTC. In training its weight may be held in half precision, as
    /// [`undertone_ops::linear`] and [`embedding`](undertone_ops::embedding) take it.
    fn token_embedding(&self) -> &Embedding;

    /// Number of blocks.
    fn block_count(&self) -> usize;

    /// Returns the residual stream before the first block, `[batch, time, d_model]`. `padding`, `[batch, time]`, is
    /// true behind an input's end.
    ///
    /// # Errors
    /// When the backbone reads another kind of input.
    fn embed(&self, input: BackboneInput, padding: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput>;

    /// Applies the given blocks, with the adapters that `gates` selects: `[batch, time, d_model]` → the same shape.
    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3>;

    /// Applies the operations after the last block: a norm, if there is one.
    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        x
    }

    /// Returns the backbone's own decoder, if it has one.
    fn decoder(&self) -> Option<&WhisperDecoder> {
        None
    }

    /// Whether it writes text by itself: with a decoder, or by [`logits`](Self::logits) (CTC). Heads then only tell it
    /// their task.
    fn writes_text(&self) -> bool {
        self.decoder().is_some()
    }

    /// Returns the scores of each token of its vocabulary at each position, `[batch, time, vocabulary]`, from its last
    /// states, `[batch, time, d_model]`. A backbone that is trained by CTC overrides it if its output layer has a bias.
    fn logits(&self, states: Tensor<3>) -> Tensor<3> {
        undertone_ops::linear(states, self.token_embedding().weight.val(), None)
    }

    /// Paths of parameters that no stage trains, such as computed positions.
    fn constants(&self) -> &'static [&'static str] {
        &[]
    }

    /// Sets gradient checkpointing: only the input of every `every` blocks is kept for the backward pass, which runs
    /// them again. With `None`, everything is kept, as always in a backbone that cannot run blocks again.
    fn set_gradient_checkpointing(&mut self, every: Option<NonZeroUsize>) {
        let _ = every;
    }

    /// Floating-point operations of a sample's forward pass. `length` is in frames of 10 ms or tokens; `written` is the
    /// number of answer tokens if the backbone writes it. 0 if unknown: then no utilisation is shown.
    fn forward_flops(&self, length: usize, written: usize) -> f64 {
        let _ = (length, written);
        0.0
    }

    /// Floating-point operations of its encoder alone: all of a forward pass, unless it writes answers by a decoder.
    fn encoder_flops(&self, length: usize) -> f64 {
        self.forward_flops(length, 0)
    }

    /// Width of its states: that of the token embedding, unless overridden.
    fn d_model(&self) -> usize {
        self.token_embedding().weight.dims()[1]
    }
}

/// A backbone of any architecture, as models hold it. Its parameters' paths begin with the name that it is given.
pub type BoxedBackbone = Boxed<Backbones>;

/// Family of the modules that are held as backbones.
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

/// Input of a backbone.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one in a batch
pub enum BackboneInput {
    /// Log-mel features, `[batch, mel bins, frames]`, and the encoder position of their first state.
    Mel(Tensor<3>, usize),
    /// Tokens and their types, `[batch, tokens]` each.
    Tokens(Tensor<2, Int>, Tensor<2, Int>),
}

/// The input is not of the kind that the backbone reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this backbone reads {expected}, and was given {found}: take a backbone for that, or other data")]
pub struct WrongInput {
    /// Kind of input that it reads.
    pub expected: &'static str,
    /// Kind of input that it was given.
    pub found: &'static str,
}

impl BackboneInput {
    /// Returns log-mel features and their first position.
    ///
    /// # Errors
    /// When the input is of another kind.
    pub fn mel(self) -> Result<(Tensor<3>, usize), WrongInput> {
        match self {
            Self::Mel(mel, start) => Ok((mel, start)),
            other => Err(WrongInput { expected: MEL, found: other.name() }),
        }
    }

    /// Returns tokens and their types.
    ///
    /// # Errors
    /// When the input is of another kind.
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

/// Returns the path of a parameter in its backbone, given that in the box, whose name comes first.
pub fn own_path(path: &str) -> &str {
    path.split_once('.').map_or(path, |(_, own)| own)
}

/// Writes the [small files](crate::read_files) of a model and the weights of its network, without adapters, atomically.
/// The tensors are named by the paths of the parameters without the name of the box.
///
/// # Errors
/// When `config.json` is not a JSON object, or the file system reports an error.
pub fn write_folder(
    dir: &Path,
    mut files: BTreeMap<String, Vec<u8>>,
    network: &BoxedBackbone,
    dtype: Dtype,
) -> Result<(), FolderError> {
    let config = files.remove("config.json").map(|bytes| object(&dir.join("config.json"), &bytes)).transpose()?;
    let mut network = network.valid();
    unload(&mut *network);
    let tensors = parameters(&network).into_iter().map(|(name, tensor)| (own_path(&name).to_owned(), tensor)).collect();
    Ok(write(dir, config.unwrap_or_default(), files, &tensors, dtype)?)
}
