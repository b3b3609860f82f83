//! A radio path: what happens to a signal between the transmitter and the loudspeaker.
//!
//! The frequency drifts ([`Drift`]), the signal fades ([`Fading`]), lightning crashes ([`Static`]), other stations send
//! nearby ([`Interference`]) and the receiver filters ([`ReceiverFilter`]). It flutters and echoes on its way ([`Path`]), a real
//! [`Receiver`] does much more to it than filter, and a [`Recorder`] has a sample rate and a codec. [`RadioChannel`] does all of
//! that to a recording; a synthesiser draws from the same settings and calls the same functions.
//!
//! What other stations send is not known here: who can key a station implements [`OtherStations`].

mod band;
pub mod channel;
mod codec;
mod config;
mod drawn;
mod filter;
mod floor;
mod gain;
mod mdct;
mod path;
mod receiver;
mod recorder;
mod recording;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

pub use band::{AudioBand, DrawnAudioBand, DrawnBand, SteepBand};
pub use channel::RATE;
pub use codec::{CodecKinds, DrawnCodec};
pub use config::{Drift, Fading, Interference, ReceiverFilter, Static};
pub use drawn::{DrawnDrift, DrawnFading, DrawnStatic, DrawnStation};
pub use filter::Filter;
pub use floor::{Colour, DrawnFloor, DrawnHum, Floor, Hum};
pub use gain::{Agc, DrawnAgc, DrawnGate, Gate};
pub use path::{DrawnEcho, DrawnFlutter, DrawnPath, Echo, Flutter, Path};
pub use receiver::{DrawnOverload, DrawnReceiver, Overload, Receiver};
pub use recorder::{Codec, DrawnRate, DrawnRecorder, LowRate, Recorder};
pub use recording::{RadioChannel, carrier_pitch};

use rand_chacha::ChaCha8Rng;

/// Puts other stations on the air: the signals of [`Interference`].
pub trait OtherStations: Send + Sync {
    /// Adds every station's signal to `audio` at 16 kHz, in which the wanted carrier has amplitude 1. All that is random
    /// comes from `rng`.
    fn add(&self, stations: &[DrawnStation], rng: &mut ChaCha8Rng, audio: &mut [f32]);
}
