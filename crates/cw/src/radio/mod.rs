//! Simulation of a radio path: the effects on a signal between the transmitter and the loudspeaker.
//!
//! The frequency drifts ([`Drift`]), the signal fades ([`Fading`]), lightning causes static ([`Static`]), other
//! stations send nearby ([`Interference`]) and the receiver filters ([`ReceiverFilter`]). The signal flutters and
//! echoes on its way ([`Path`]), a real [`Receiver`] has further effects besides its filter, and a [`Recorder`] has a
//! sample rate and a codec. [`RadioChannel`] applies all of them to a recording; a synthesiser uses the same settings
//! and functions.
//!
//! The other stations come from a synthesiser, which implements [`OtherStations`].

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
pub use config::{DrawnDrift, DrawnStatic, Drift, Fading, Interference, ReceiverFilter, Static};
pub use drawn::{DrawnFading, DrawnStation};
pub use filter::Filter;
pub use floor::{Colour, DrawnFloor, DrawnHum, Floor, Hum};
pub use gain::{Agc, DrawnAgc, DrawnGate, Gate};
pub use path::{DrawnEcho, DrawnFlutter, DrawnPath, Echo, Flutter, Path};
pub use receiver::{DrawnOverload, DrawnReceiver, Overload, Receiver};
pub use recorder::{Codec, DrawnRate, DrawnRecorder, LowRate, Recorder};
pub(crate) use recording::{Line, carriers, line};
pub use recording::{RadioChannel, carrier_pitch};

use rand_chacha::ChaCha8Rng;

/// Synthesiser of other stations: the signals of [`Interference`].
pub trait OtherStations: Send + Sync {
    /// Adds every station's signal to `audio` at 16 kHz, in which the wanted carrier has amplitude 1. All randomness
    /// comes from `rng`.
    fn add(&self, stations: &[DrawnStation], rng: &mut ChaCha8Rng, audio: &mut [f32]);
}
