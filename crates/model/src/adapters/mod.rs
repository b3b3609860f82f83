//! Adapters: what is trained beside the frozen weights of a linear map. A [`Linear`](crate::layers::Linear) holds an
//! [`AdapterBank`], in which the adapters of all tasks are side by side, with gates for each sample.
//!
//! [LoRA](lora) is the built-in type. A type of another crate is two structs: its configuration, which implements
//! [`AdapterKind`] and which `adapter: {type: name, …}` stands for once it is [registered](register), and its bank,
//! which implements [`AdapterBank`].

mod bank;
mod kind;
pub mod lora;
mod registry;

pub use bank::{AdapterBank, AdapterBanks, BoxedAdapterBank, Gates, MapWeights, ReadTensor, changed};
pub use kind::{AdapterConfig, AdapterKind, AdapterKindConfig};
pub use registry::register;
pub use undertone_registry::NameTaken;
