//! A radio path: what happens to a signal between the transmitter and the loudspeaker.
//!
//! The frequency drifts ([`Drift`]), the signal fades ([`Fading`]), lightning crashes ([`Static`]), other stations send
//! nearby ([`Interference`]) and the receiver filters ([`ReceiverFilter`]). [`RadioChannel`] does all of that to a recording;
//! a synthesiser draws from the same settings and calls the same [`channel`] functions.
//!
//! What other stations send is not known here: who can key a station implements [`OtherStations`].

pub mod channel;
mod config;
mod drawn;
mod filter;
mod recording;
#[cfg(test)]
pub(crate) mod testing;

pub use channel::RATE;
pub use config::{Drift, Fading, Interference, ReceiverFilter, Static};
pub use drawn::{DrawnDrift, DrawnFading, DrawnStatic, DrawnStation};
pub use filter::Filter;
pub use recording::{RadioChannel, carrier_pitch};

use rand_chacha::ChaCha8Rng;

/// Puts other stations on the air: the signals of [`Interference`].
pub trait OtherStations: Send + Sync {
    /// Adds every station's signal to `audio` at 16 kHz, in which the wanted carrier has amplitude 1. All that is random
    /// comes from `rng`.
    fn add(&self, stations: &[DrawnStation], rng: &mut ChaCha8Rng, audio: &mut [f32]);
}
