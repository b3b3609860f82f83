//! The mel filter bank: triangles on Slaney's mel scale, each of unit area.

use super::FRAME;
use super::spectrum::{BINS, LANES};
use crate::audio::SAMPLE_RATE;

/// Triangles over the power spectrum, without their zeros.
///
/// Of the 80 × 201 weights all but some 400 are zero, so each triangle is kept as where it starts and its weights.
pub(super) struct MelFilters {
    triangles: Vec<Triangle>,
}

struct Triangle {
    start: usize,
    weights: Vec<f32>,
}

impl MelFilters {
    /// `bins` triangles, evenly spaced in mel between 0 and half the sampling rate.
    pub(super) fn new(bins: usize) -> Self {
        let nyquist = f64::from(SAMPLE_RATE) / 2.0;
        let step = hz_to_mel(nyquist) / (bins + 1) as f64;
        let corner = |i: usize| mel_to_hz(step * i as f64);
        let triangles = (0..bins).map(|i| Triangle::new(corner(i), corner(i + 1), corner(i + 2))).collect();
        Self { triangles }
    }

    pub(super) fn bins(&self) -> usize {
        self.triangles.len()
    }

    /// The energy under triangle `bin`, for every lane of a block of power spectra.
    pub(super) fn apply(&self, bin: usize, power: &[[f32; LANES]]) -> [f32; LANES] {
        let Triangle { start, weights } = &self.triangles[bin];
        let mut energy = [0.0; LANES];
        for (weight, power) in weights.iter().zip(&power[*start..]) {
            for (energy, power) in energy.iter_mut().zip(power) {
                *energy += weight * power;
            }
        }
        energy
    }
}

impl Triangle {
    /// Rises from `low` to `centre` and falls to `high`, in Hz.
    fn new(low: f64, centre: f64, high: f64) -> Self {
        let area = 2.0 / (high - low);
        let weight = |bin: usize| {
            let hz = bin as f64 * f64::from(SAMPLE_RATE) / FRAME as f64;
            let (up, down) = ((hz - low) / (centre - low), (high - hz) / (high - centre));
            (up.min(down).max(0.0) * area) as f32
        };
        let start = (0..BINS).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
        Self { start, weights: (start..BINS).map(weight).take_while(|&w| w > 0.0).collect() }
    }
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
