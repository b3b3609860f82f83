//! Banks of low-rank adapters: the updates of a linear map by all tasks' adapters side by side, with gates per sample.
//!
//! While PEFT's LoRA (Hu et al., 2022) has one active adapter per batch, a bank computes
//! `y = W x + ((drop(x) · Aᵀ) ⊙ g) · Bᵀ`. `A: [ΣR, in]` and `B: [out, ΣR]` are the stacked matrices of all adapters.
//! `g: [batch, ΣR]` is each sample's gate, repeated over the adapter's rank and multiplied by its scale. A gate of 1
//! for one adapter is PEFT's LoRA; other gates mix adapters, sample by sample.

mod bank;
mod config;
mod kind;

pub use bank::LoraBank;
pub use config::LoraConfig;
