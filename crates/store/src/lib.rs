//! A module's parameters by name, and named tensors on disk as safetensors.
//!
//! Models and checkpoints both use this crate, and do not depend on each other. A parameter's name is its path in the
//! module (`encoder.layers.0.self_attn.q_proj.weight`). If a file uses other names, the caller maps them. Writes are
//! atomic: a file is written beside its place, synced and renamed. A [`DirectoryLock`] allows one writer per directory.
//!
//! This is deliberately not a checkpoint format: the crate has no notion of steps, optimizers, models or folder
//! layouts.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use undertone_store::{Dtype, TensorFile, load_parameters, parameters, write_tensors};
//!
//! let device = burn::tensor::Device::default();
//! let module = LinearConfig::new(3, 2).init(&device);
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("model.safetensors");
//! write_tensors(&path, &parameters(&module), Dtype::F32)?;
//! let file = TensorFile::open(&path)?;
//! let same = load_parameters(LinearConfig::new(3, 2).init(&device), |name| file.read(name))?;
//! assert_eq!(parameters(&same), parameters(&module));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod directory;
mod error;
mod file;
mod header;
mod host;
mod lock;
mod mapped;
mod parameters;
mod temporary;
mod torch;
mod visit;

pub use directory::{is_blank, remove_leftovers, replace_directory, write_directory};
pub use error::StoreError;
pub use file::{TensorFile, write_atomically, write_json, write_streamed, write_tensors};
pub use host::{Dtype, HostTensor, TensorSource};
pub use lock::{DirectoryLock, LockError};
pub use mapped::MappedFile;
pub use parameters::{
    ParameterInfo, frozen_checksum, load_parameters, load_trainable, parameter_infos, parameters, set_trainable,
    trainable_parameters,
};
pub use temporary::is_temporary;
pub use torch::TorchFile;
pub use visit::{MapParameter, VisitParameter, map, visit};
