//! The mel filter bank: triangles on Slaney's mel scale, each of unit area.

use super::frame::FRAME;
use crate::audio::SAMPLE_RATE;
use undertone_kernels::filter_bank::Filter;

/// Number of frequencies in a spectrum, 0 to 8 kHz in steps of 40 Hz.
pub const FREQUENCIES: usize = FRAME / 2 + 1;

/// Returns `bins` triangles, evenly spaced in mel between 0 and half the sampling rate.
///
/// Of 80 × 201 weights all but some 400 are zero.
pub(super) fn filters(bins: usize) -> Vec<Filter> {
    let nyquist = f64::from(SAMPLE_RATE) / 2.0;
    let step = hz_to_mel(nyquist) / (bins + 1) as f64;
    let corner = |i: usize| mel_to_hz(step * i as f64);
    (0..bins).map(|i| triangle(corner(i), corner(i + 1), corner(i + 2))).collect()
}

/// Returns a triangle that rises from `low` to `centre` and falls to `high`, in Hz.
fn triangle(low: f64, centre: f64, high: f64) -> Filter {
    let area = 2.0 / (high - low);
    let weight = |frequency: usize| {
        let hz = frequency as f64 * f64::from(SAMPLE_RATE) / FRAME as f64;
        let (up, down) = ((hz - low) / (centre - low), (high - hz) / (high - centre));
        (up.min(down).max(0.0) * area) as f32
    };
    let start = (0..FREQUENCIES).find(|&frequency| weight(frequency) > 0.0).unwrap_or(0);
    Filter { start, weights: (start..FREQUENCIES).map(weight).take_while(|&w| w > 0.0).collect() }
}

// Slaney's scale is linear up to 1 kHz (15 mel), then logarithmic with 27 mel to a factor of 6.4.
const KNEE_HZ: f64 = 1000.0;
const KNEE_MEL: f64 = 15.0;

fn hz_to_mel(hz: f64) -> f64 {
    if hz < KNEE_HZ { hz * KNEE_MEL / KNEE_HZ } else { KNEE_MEL + (hz / KNEE_HZ).ln() * 27.0 / 6.4f64.ln() }
}

fn mel_to_hz(mel: f64) -> f64 {
    if mel < KNEE_MEL { mel * KNEE_HZ / KNEE_MEL } else { KNEE_HZ * ((mel - KNEE_MEL) * 6.4f64.ln() / 27.0).exp() }
}
