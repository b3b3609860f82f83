//! Audio, features, Morse synthesis, data sets and the loader: everything up to a batch in host memory.
//!
//! Samples are [`clips`] of recordings or come from the [`cw`] synthesiser; [`audio`] decodes and resamples, [`cut`] makes
//! long recordings fit, [`augment`] makes many samples of one, [`features`] computes Whisper's log-mel spectrogram, a
//! [`cache`] keeps what is slow to compute, and the [`loader`] makes batches ahead of time in an order that depends on seed
//! and epoch alone. [`text`] has Whisper's text normalisers. [`records`] reads the data sets of text tasks.
//!
//! It deliberately knows no model and no tensor: what a batch looks like is the collator's business, and batches are
//! plain host memory.
//!
//! ```
//! use undertone_data::cw::{CwConfig, CwSynth};
//! use undertone_data::features::LogMel;
//!
//! let clip = CwSynth::new(CwConfig::default(), 42)?.sample(7);
//! let mel = LogMel::new(80)?.features(&clip.audio);
//! assert_eq!((mel.bins, mel.frames), (80, clip.audio.len() / 160));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audio;
pub mod augment;
pub mod cache;
pub mod clips;
pub mod cut;
pub mod cw;
pub mod features;
mod fourier;
mod guarded;
mod level;
pub mod limits;
pub mod loader;
pub mod records;
pub mod text;

pub use guarded::silence_reader_panics;
