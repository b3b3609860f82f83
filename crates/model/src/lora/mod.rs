//! Banks of low-rank adapters: every task's update of a linear map side by side, with a gate for each sample.
//!
//! Where PEFT's LoRA (Hu et al., 2022) has one active adapter for a batch, a bank computes
//! `y = W x + ((drop(x) · Aᵀ) ⊙ g) · Bᵀ`, with `A: [ΣR, in]` and `B: [out, ΣR]` the stacked matrices of all adapters and
//! `g: [batch, ΣR]` each sample's gate repeated over the adapter's rank and multiplied by its scale. A gate of 1 for one
//! adapter is PEFT's LoRA; anything else mixes adapters, sample by sample.

mod bank;
mod config;
mod sites;

pub use bank::{Gates, LoraBank};
pub use config::{LoraConfig, LoraConfigError};
pub use sites::{
    AdaptError, Adaptable, Site, adapt, adapter_parameters, load_adapter, merge, merge_and_unload,
    set_adapters_trainable, unmerge,
};
