//! Background noise.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use realfft::num_complex::Complex;

use super::library::{self, HOURS};
use super::{AugmentError, NoiseColour, NoiseConfig};
use crate::audio::SAMPLE_RATE;
use crate::fourier;
use crate::level::{energy, peak, ratio, signal_power};
use crate::random::{Range, between, chance};

/// Below this frequency in hertz, coloured noise rises no further: such frequencies are inaudible, and would take up
/// all the power.
const LOWEST_HZ: f32 = 20.0;

pub(super) struct Noise {
    p: f32,
    snr_db: Range,
    origin: Origin,
}

enum Origin {
    Generated(NoiseColour),
    /// Recordings in 16 bits, each scaled to its own peak, because the level follows from the ratio to the signal.
    Recorded(Vec<Vec<i16>>),
}

impl Noise {
    pub fn new(config: &NoiseConfig) -> Result<Self, AugmentError> {
        let origin = match &config.path {
            Some(path) if config.p > 0.0 => Origin::Recorded(recordings(path)?),
            _ => Origin::Generated(config.kind.unwrap_or_default()),
        };
        Ok(Self { p: config.p, snr_db: config.snr_db, origin })
    }

    /// Adds noise with the configured probability; returns whether it did.
    pub fn apply(&self, audio: &mut [f32], rng: &mut ChaCha8Rng) -> bool {
        if !chance(rng, self.p) {
            return false;
        }
        let snr_db = between(rng, self.snr_db);
        let power = signal_power(audio);
        if power == 0.0 {
            return false;
        }
        let noise = match &self.origin {
            Origin::Generated(colour) => coloured(*colour, audio.len(), rng),
            Origin::Recorded(recordings) => stretch(recordings, audio.len(), rng),
        };
        let noise_power = energy(&noise) / noise.len() as f64;
        if noise_power == 0.0 {
            return false;
        }
        let gain = (power / ratio(snr_db) / noise_power).sqrt() as f32;
        for (sample, noise) in audio.iter_mut().zip(noise) {
            *sample += gain * noise;
        }
        true
    }
}

fn recordings(path: &crate::records::Paths) -> Result<Vec<Vec<i16>>, AugmentError> {
    let key = "noise.path";
    library::load(key, path, HOURS * 3600 * SAMPLE_RATE as usize, |path, audio| {
        let peak = peak(&audio);
        if peak == 0.0 {
            return Err(AugmentError::Silent { key, path: path.into() });
        }
        Ok(audio.iter().map(|sample| (sample / peak * f32::from(i16::MAX)) as i16).collect())
    })
}

/// Returns `length` samples of one of the recordings, from a random position on.
fn stretch(recordings: &[Vec<i16>], length: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let recording = &recordings[rng.random_range(0..recordings.len())];
    let places = if recording.len() > length { recording.len() - length + 1 } else { recording.len() };
    let from = rng.random_range(0..places);
    recording.iter().cycle().skip(from).take(length).map(|sample| f32::from(*sample)).collect()
}

/// Returns Gaussian noise whose spectrum is drawn bin by bin (Timmer & König, Astronomy and Astrophysics 300, 1995).
fn coloured(colour: NoiseColour, length: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let size = length.next_power_of_two().max(2);
    let hz = SAMPLE_RATE as f32 / size as f32;
    let mut spectrum: Vec<Complex<f32>> = (0..=size / 2)
        .map(|bin| {
            let frequency = (bin as f32 * hz).max(LOWEST_HZ);
            let amplitude = match colour {
                NoiseColour::White => 1.0,
                NoiseColour::Pink => frequency.sqrt().recip(),
                NoiseColour::Brown => frequency.recip(),
            };
            Complex::new(rng.sample(StandardNormal), rng.sample(StandardNormal)) * amplitude
        })
        .collect();
    spectrum[0] = Complex::default();
    let mut noise = fourier::signal(&mut spectrum, size);
    noise.truncate(length);
    noise
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// Power between two frequencies, in decibels.
    fn band(noise: &[f32], low_hz: f32, high_hz: f32) -> f64 {
        let size = noise.len().next_power_of_two();
        let bin = |hz: f32| (hz * size as f32 / SAMPLE_RATE as f32) as usize;
        let spectrum = fourier::spectrum(noise, size);
        10.0 * spectrum[bin(low_hz)..bin(high_hz)].iter().map(|bin| f64::from(bin.norm_sqr())).sum::<f64>().log10()
    }

    #[test]
    fn colours_fall_by_their_decibels_per_octave() {
        for (colour, per_octave) in [(NoiseColour::White, 3.0), (NoiseColour::Pink, 0.0), (NoiseColour::Brown, -3.0)] {
            let noise = coloured(colour, 100_000, &mut random::stream(3, 4));
            // An octave is twice as wide as the one below it, which adds 3 dB.
            for low in [125.0, 500.0, 2000.0] {
                let fall = band(&noise, 2.0 * low, 4.0 * low) - band(&noise, low, 2.0 * low);
                assert!((fall - per_octave).abs() < 0.6, "{colour:?} from {low} Hz: {fall} dB");
            }
        }
    }

    #[test]
    fn a_short_recording_is_repeated_and_a_long_one_cut() {
        let recording: Vec<i16> = (0..100).collect();
        let rng = &mut random::stream(1, 1);
        for length in [1, 99, 100, 350] {
            let noise = stretch(std::slice::from_ref(&recording), length, rng);
            assert_eq!(noise.len(), length);
            assert!(noise.windows(2).all(|pair| pair[1] == (pair[0] + 1.0) % 100.0));
            assert!(length > 100 || noise[0] + length as f32 <= 100.0 || length == 100);
        }
    }
}
