//! A model of transform codecs: MP3, Vorbis, Opus and AAC.
//!
//! They all cut audio into frames that overlap by half, compute the modified discrete cosine transform of each
//! (Princen, Johnson and Bradley, ICASSP 1987), and quantise its lines as coarsely as masking allows. This model has
//! their audible artefacts: noise around every loud line, holes where nothing stood out, and echoes before each attack.

use std::f64::consts::PI;

use rustfft::num_complex::Complex;

use super::channel::RATE;
use undertone_data::fourier;

/// A transform codec.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransformCodec {
    /// Number of spectral lines per frame.
    pub lines: usize,
    /// Level of the noise below the signal of its band, in decibels: about 6 at the lowest bit rates, 20 at high ones.
    pub mask_db: f32,
    /// Sample rate of the audio, for the width of the critical bands.
    pub rate: f64,
}

/// Decrease of masking from a band to the next one above and below, in decibels: a tone masks higher frequencies more.
const ABOVE_DB: f64 = 12.0;
const BELOW_DB: f64 = 27.0;
/// Level relative to full scale below which nothing is coded: the threshold of hearing at usual loudness.
const SILENCE_DB: f64 = -90.0;

impl TransformCodec {
    /// Encodes and decodes in place; full scale is 1.
    pub fn apply(&self, audio: &mut [f32]) {
        let lines = self.lines;
        let transform = Mdct::new(lines);
        let edges = self.band_edges();
        // Padding of half a frame before and a whole one after, so that every sample is in two frames.
        let mut padded = vec![0.0; lines];
        padded.extend_from_slice(audio);
        padded.resize((audio.len() + lines).next_multiple_of(lines) + lines, 0.0);
        let mut decoded = vec![0.0; padded.len()];
        for at in (0..padded.len() - lines).step_by(lines) {
            let mut coded = transform.forward(&padded[at..at + 2 * lines]);
            self.quantise(&edges, &mut coded);
            transform.inverse(&coded, &mut decoded[at..at + 2 * lines]);
        }
        audio.copy_from_slice(&decoded[lines..lines + audio.len()]);
    }

    /// Returns the edges of the bands, in lines: 100 Hz wide at first, then a fifth of their frequency, as the critical
    /// bands of the ear (Zwicker).
    fn band_edges(&self) -> Vec<usize> {
        let line_hz = self.rate / 2.0 / self.lines as f64;
        let mut edges = vec![0];
        let mut at = 0.0;
        while at < self.lines as f64 {
            at += (100f64.max(0.2 * at * line_hz) / line_hz).max(4.0);
            edges.push((at as usize).min(self.lines));
        }
        edges
    }

    /// Rounds each line to steps whose noise is masked by the energy of its band and of its neighbours.
    fn quantise(&self, edges: &[usize], coded: &mut [f32]) {
        // An orthonormal transform of a sine at full scale, power 1/2, has about this energy in its band.
        let full = self.lines as f64 / 2.0;
        let silence = full * 10f64.powf(SILENCE_DB / 10.0);
        let ratio = |db: f64| 10f64.powf(-db / 10.0);
        let mut hidden: Vec<f64> = edges
            .windows(2)
            .map(|band| coded[band[0]..band[1]].iter().map(|line| f64::from(*line).powi(2)).sum::<f64>())
            .collect();
        for band in 1..hidden.len() {
            hidden[band] = hidden[band].max(hidden[band - 1] * ratio(ABOVE_DB));
        }
        for band in (1..hidden.len()).rev() {
            hidden[band - 1] = hidden[band - 1].max(hidden[band] * ratio(BELOW_DB));
        }
        for (band, energy) in edges.windows(2).zip(hidden) {
            let width = (band[1] - band[0]) as f64;
            let noise = (energy * ratio(self.mask_db.into())).max(silence) / width;
            // Rounding to steps of d gives noise of the power d²/12.
            let step = (12.0 * noise).sqrt() as f32;
            for line in &mut coded[band[0]..band[1]] {
                *line = (*line / step).round() * step;
            }
        }
    }
}

/// A modified discrete cosine transform with a sine window, by a complex transform of twice its size: the cosine of (n
/// + n0)(k + 1/2) π/M is the real part of a rotation by n/2 before, and one by n0 (k + 1/2) after.
struct Mdct {
    window: Vec<f32>,
    before: Vec<Complex<f32>>,
    after: Vec<Complex<f32>>,
}

impl Mdct {
    fn new(lines: usize) -> Self {
        let m = lines as f64;
        let turn = |angle: f64| Complex::new(angle.cos() as f32, angle.sin() as f32);
        let n0 = 0.5 + m / 2.0;
        Self {
            window: (0..2 * lines).map(|n| (PI * (n as f64 + 0.5) / (2.0 * m)).sin() as f32).collect(),
            before: (0..2 * lines).map(|n| turn(-PI * n as f64 / (2.0 * m))).collect(),
            after: (0..lines).map(|k| turn(-PI * n0 * (k as f64 + 0.5) / m) * (2.0 / m).sqrt() as f32).collect(),
        }
    }

    fn forward(&self, frame: &[f32]) -> Vec<f32> {
        let windowed = frame.iter().zip(&self.window).map(|(sample, window)| sample * window);
        let mut bins: Vec<Complex<f32>> = windowed.zip(&self.before).map(|(sample, turn)| turn * sample).collect();
        fourier::complex_forward(bins.len()).process(&mut bins);
        bins.iter().zip(&self.after).map(|(bin, turn)| (bin * turn).re).collect()
    }

    /// Adds a frame to those that it overlaps.
    fn inverse(&self, coded: &[f32], frame: &mut [f32]) {
        let mut bins: Vec<Complex<f32>> =
            coded.iter().zip(&self.after).map(|(line, turn)| turn.conj() * *line).collect();
        bins.resize(frame.len(), Complex::default());
        fourier::complex_inverse(bins.len()).process(&mut bins);
        for (((out, bin), turn), window) in frame.iter_mut().zip(&bins).zip(&self.before).zip(&self.window) {
            *out += (bin * turn.conj()).re * window;
        }
    }
}

impl Default for TransformCodec {
    fn default() -> Self {
        Self { lines: 512, mask_db: 12.0, rate: RATE }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::carrier;
    use super::*;
    use undertone_data::level;

    fn tone(samples: usize) -> Vec<f32> {
        carrier(700.0, 0.5, samples)
    }

    fn difference(a: &[f32], b: &[f32]) -> f64 {
        level::energy(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>()) / level::energy(b)
    }

    #[test]
    fn frames_overlap_to_what_they_were() {
        for lines in [256, 576] {
            let mut audio = tone(5000);
            TransformCodec { lines, mask_db: 100.0, ..TransformCodec::default() }.apply(&mut audio);
            assert!(difference(&audio, &tone(5000)) < 1e-7, "{}", difference(&audio, &tone(5000)));
        }
    }

    #[test]
    fn noise_is_as_far_below_as_masking_wants() {
        for mask_db in [6.0f32, 18.0] {
            let mut audio = tone(64_000);
            TransformCodec { mask_db, ..TransformCodec::default() }.apply(&mut audio);
            let db = 10.0 * difference(&audio, &tone(64_000)).log10() + f64::from(mask_db);
            assert!((-6.0..3.0).contains(&db), "{mask_db}: {db}");
        }
    }

    #[test]
    fn an_attack_is_heard_before_it_comes() {
        let mut audio = vec![0.0; 20_000];
        audio[10_000..].copy_from_slice(&tone(10_000));
        TransformCodec { lines: 1024, mask_db: 6.0, ..TransformCodec::default() }.apply(&mut audio);
        assert!(level::energy(&audio[9_500..10_000]) > 1e-4);
        assert_eq!(level::energy(&audio[..7_000]), 0.0);
    }
}
