//! What goes wrong with files of tensors.

use std::path::PathBuf;

/// Why tensors could not be read or written. Each names the file or the tensor.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// `read`, `write`, `lock` or the like.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no safetensors file, or is cut short.
    #[error("`{}` is not a whole safetensors file ({reason}): fetch or write it again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A tensor that the model needs is not there.
    #[error("tensor `{name}` is missing from {origin}: the file belongs to another model or is incomplete")]
    Missing {
        /// The tensor.
        name: String,
        /// Where it was looked for.
        origin: String,
    },
    /// A tensor has another shape than the model's.
    #[error(
        "tensor `{name}` has shape {found:?} where the model has {expected:?}: the file belongs to another configuration"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// The model's shape.
        expected: Vec<usize>,
        /// The file's shape.
        found: Vec<usize>,
    },
    /// A tensor holds something that is not a float.
    #[error("tensor `{name}` in `{}` holds {dtype}, not f32, f16 or bf16", path.display())]
    Type {
        /// The tensor.
        name: String,
        /// The file.
        path: PathBuf,
        /// Its element type.
        dtype: String,
    },
}
