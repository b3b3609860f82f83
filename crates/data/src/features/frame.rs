//! Division of a signal into frames.

/// Samples between two frames: 10 ms at 16 kHz.
pub const HOP: usize = 160;
/// Samples in a frame: 25 ms at 16 kHz.
pub const FRAME: usize = 400;
