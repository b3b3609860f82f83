//! Whether training fits a device: how much memory it takes by arithmetic, and what to do where that is too much.
//!
//! [`Footprint`] is the memory model. [`DevicePreset`] splits an optimizer step by it for a card, [`MemoryAdvice`] says what
//! helps where memory runs out or by arithmetic will, and [`tune`] searches for the largest batch with probes in processes
//! of their own.
//!
//! It deliberately knows no experiment and runs no model: it is given plain values ([`RunSettings`], [`PresetModel`]), and
//! what a probe's process does is its caller's affair.
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
mod footprint;
mod preset;
mod trained;
pub mod tune;
mod workload;

pub use advice::{MemoryAdvice, RunSettings};
pub use footprint::{Execution, Footprint};
pub use preset::{DevicePreset, Preset, PresetContext, PresetModel, PresetSettings, PresetSplit};
pub use trained::{AdapterSize, TrainedPart};
pub use workload::{BatchSize, Workload, note_workload};
