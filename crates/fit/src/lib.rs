//! Fits training to the memory of a device: estimates the memory that training takes, and advises if it is too much.
//!
//! [`Footprint`] is the memory estimate. [`DevicePreset`] uses it to split an optimizer step for a card.
//! [`MemoryAdvice`] lists remedies if memory runs out or is estimated to. [`tune`] searches for the largest batch with
//! probes in processes of their own. [`search_rates`] searches for a learning rate.
//!
//! This crate deliberately does not know experiments and runs no model: you pass plain values ([`RunSettings`],
//! [`PresetModel`]), and the caller determines the work of a probe's process.
//!
//! ```
//! use undertone_fit::{Execution, Footprint};
//! use undertone_model::whisper::WhisperConfig;
//!
//! let tiny = Footprint::whisper(&WhisperConfig::default());
//! let batch = tiny.largest_batch(8_000_000_000, 1, &Execution::CPU);
//! assert!(tiny.bytes(batch, 1, &Execution::CPU) <= 8_000_000_000);
//! ```

mod advice;
mod execution;
mod footprint;
mod preset;
mod rates;
mod stack;
mod trained;
pub mod tune;
mod workload;

pub use advice::{MemoryAdvice, RunSettings};
pub use execution::Execution;
pub use footprint::Footprint;
pub use preset::{DevicePreset, Preset, PresetContext, PresetModel, PresetSettings, PresetSplit, usable_bytes};
pub use rates::{RateError, RateOptions, RateSearch, RateTrial, search_rates};
pub use trained::TrainedPart;
pub use workload::{BatchSize, Workload, note_workload};
