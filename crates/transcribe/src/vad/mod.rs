//! Voice activity: where in a recording somebody speaks.

mod network;
mod speech;

pub use network::{FRAME, VadNetwork, VadState};
pub use speech::{SpeechFinder, Stretch, VadOptions, speech};
