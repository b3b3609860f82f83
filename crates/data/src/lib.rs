//! Audio, features, text, data sets and the loader: everything up to a batch in host memory.
//!
//! Samples are [`clips`] of recordings or the output of a synthesiser. [`audio`] decodes and resamples, [`cut`] divides
//! long recordings into pieces that fit the model, [`augment`] changes training samples and
//! [`features`] computes Whisper's log-mel spectrogram. A [`cache`] keeps results that are slow to compute.
//! The [`loader`] makes batches ahead of time, in an order that depends on seed and epoch alone. [`text`] has Whisper's
//! text normalisers. [`records`] reads the data sets of text tasks. With the Cargo feature `burn`, `interop` adapts
//! Burn's datasets to this crate and this crate's loader to Burn.
//!
//! The crate depends on no model and no tensor library: the collator decides the form of a batch, and batches are plain
//! host memory. A synthesiser is a crate of its own on top of this one; it registers itself as a [`source`].
//!
//! ```
//! use undertone_data::augment::{Augment, AugmentConfig, VolumeConfig};
//! use undertone_data::features::LogMel;
//!
//! let mut audio: Vec<f32> = (0..16_000).map(|n| 0.1 * (n as f32 * 0.2).sin()).collect();
//! let volume = VolumeConfig { p: 1.0, db: [6.0, 6.0] };
//! Augment::new(&AugmentConfig { volume, ..AugmentConfig::default() }, 480_000)?.audio(&mut audio, 7);
//! let mel = LogMel::new(80)?.features(&audio);
//! assert_eq!((mel.bins, mel.frames), (80, audio.len() / 160));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audio;
pub mod augment;
pub mod bounds;
pub mod cache;
pub mod clips;
pub mod cut;
pub mod features;
pub mod fourier;
mod guarded;
#[cfg(feature = "burn")]
pub mod interop;
pub mod level;
pub mod limits;
pub mod loader;
pub mod random;
pub mod reader;
pub mod records;
mod shared;
pub mod source;
#[cfg(test)]
mod testing;
pub mod text;

pub use undertone_registry::options;

pub use guarded::silence_reader_panics;
