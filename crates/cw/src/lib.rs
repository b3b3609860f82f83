//! Synthesised continuous-wave (Morse) audio: an unlimited number of labelled clips without a download.
//!
//! [`CwSynth::sample`] is a pure function of a seed, a [`CwConfig`] and an index, so a data set is a range of indices.
//! A clip is made in the same steps as on the air: a text is composed (`text`, `contest`, `callsign`) and keyed
//! (`keying`), and passes through the channel of [`radio`]. The [`CwTask`] selects the label: every
//! character, only the callsigns, a line of the log, plain English, or formal traffic.
//!
//! The crate is a source like any other: nothing in `undertone-data` depends on it, and it depends on no model, loader
//! or batch.
//!
//! ```
//! # use undertone_cw::{CwConfig, CwError, CwSynth};
//! # fn main() -> Result<(), CwError> {
//! let synth = CwSynth::new(CwConfig { wpm: [20.0, 25.0], ..CwConfig::default() }, 42)?;
//! let clip = synth.sample(0);
//! assert_eq!(clip.text.chars().count(), clip.marks.len());
//! # Ok(())
//! # }
//! ```

mod augment;
mod calls;
mod callsign;
mod carrier;
mod compose;
mod config;
mod contest;
mod english;
mod envelope;
mod expand;
mod habits;
mod idle;
mod info;
mod interference;
mod keying;
pub mod listen;
mod lists;
mod log;
mod message;
pub mod morse;
mod narrow;
pub mod radio;
mod reader;
mod repeats;
mod skimmer;
mod source;
mod spacing;
mod stream;
mod synth;
mod task;
mod text;
mod timing;
mod traffic;
mod transmitter;
mod utterances;
mod validate;

#[cfg(test)]
mod effect_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod tests;

pub use augment::RadioEffect;
pub use config::{CwChirp, CwChirpInfo, CwConfig, CwCut, CwFarnsworth, CwHand, CwHandInfo, CwMuting, CwText};
pub use habits::{CwHabits, CwHabitsInfo};
pub use idle::{CwIdle, CwIdleSound};
pub use info::CwInfo;
pub use interference::MorseStations;
pub use narrow::narrowed;
pub use reader::MorseReader;
pub use skimmer::{Station, stations};
pub use source::CwSource;
pub use synth::{CwMark, CwSample, CwSynth, SAMPLE_RATE};
pub use task::CwTask;
pub use timing::{ELEMENT_CLASSES, timing};
pub use transmitter::{CwBackwave, CwClicks, CwDistortion, CwRipple, CwTransmitter, CwTransmitterInfo};
pub use utterances::{MorseSource, register};
pub use validate::CwError;
