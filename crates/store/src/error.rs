//! Errors of tensor files.

use std::path::PathBuf;

/// Why tensors could not be read or written. Each message names the file or the tensor.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation of the file system failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// `read`, `write`, `lock` or the like.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no safetensors file, or is cut short.
    #[error("`{}` is not a whole safetensors file ({reason}): fetch or write it again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        reason: String,
    },
    /// The file is not what was written.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is no file of torch that can be read without running code.
    #[error("`{}` cannot be read ({reason}): fetch it again, or convert it to safetensors", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the model needs is missing.
    #[error("tensor `{name}` is missing from {origin}: the file belongs to another model or is incomplete")]
    Missing {
        /// Name of the tensor.
        name: String,
        /// Where it was searched.
        origin: String,
    },
    /// A tensor's shape differs from the model's.
    #[error(
        "tensor `{name}` has shape {found:?} where the model has {expected:?}: the file belongs to another configuration"
    )]
    Shape {
        /// Name of the tensor.
        name: String,
        /// The model's shape.
        expected: Vec<usize>,
        /// The file's shape.
        found: Vec<usize>,
    },
    /// A tensor's elements are not floats.
    #[error("tensor `{name}` in `{}` holds {dtype}, not f32, f16 or bf16", path.display())]
    Type {
        /// Name of the tensor.
        name: String,
        /// The file.
        path: PathBuf,
        /// Its element type.
        dtype: String,
    },
}
