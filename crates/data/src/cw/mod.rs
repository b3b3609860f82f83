//! Continuous-wave (Morse) audio, synthesised: labelled clips without end, and nothing to download.
//!
//! [`CwSynth::sample`] is a pure function of a seed, a [`CwConfig`] and an index, so a data set is a range of numbers.
//! A clip is made the way one comes about on the air: somebody has something to say (`text`, `contest`, `callsign`),
//! keys it (`keying`), and it reaches the listener through a `channel`. What the listener is to write down is the
//! [`CwTask`]: every character, only the callsigns, a line of the log, plain English, or formal traffic.
//!
//! ```no_run
//! # use undertone_data::cw::{CwConfig, CwError, CwSynth};
//! # fn main() -> Result<(), CwError> {
//! let synth = CwSynth::new(CwConfig { wpm: [20.0, 25.0], ..CwConfig::default() }, 42)?;
//! let clip = synth.sample(0);
//! println!("{} samples say {:?}", clip.audio.len(), clip.text);
//! # Ok(())
//! # }
//! ```

mod calls;
mod callsign;
mod channel;
mod config;
mod contest;
mod expand;
mod info;
mod keying;
mod lists;
mod log;
pub mod morse;
pub(crate) mod random;
mod recording;
mod synth;
mod task;
mod text;
mod traffic;
mod validate;

#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod tests;

pub use config::{CwChirp, CwConfig, CwDrift, CwFarnsworth, CwFilter, CwHand, CwQrm, CwQrn, CwQsb, CwText, Range};
pub use info::{CwChirpInfo, CwDriftInfo, CwHandInfo, CwInfo, CwQrmInfo, CwQrnInfo, CwQsbInfo};
pub use recording::CwChannel;
pub use synth::{CwMark, CwSample, CwSynth, SAMPLE_RATE};
pub use task::CwTask;
pub use text::CwSource;
pub use validate::CwError;
