//! Background of a receiver: noise of any colour, and hum.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rustfft::num_complex::Complex;
use serde::Serialize;

use super::DrawnBand;
use super::channel::{RATE, amplitude};
use undertone_data::effect;
use undertone_data::random::{Range, between, chance, pick};
use undertone_data::{fourier, level};

/// Centres and widths of coloured bands in hertz, drawn by octaves.
const CENTRES_HZ: Range = [200.0, 4000.0];
const WIDTHS_HZ: Range = [50.0, 4000.0];
/// Decibels per octave by which noise falls: blue noise has -3, pink 3, brown 6.
const SLOPES: Range = [-3.0, 9.0];

effect! {
    /// Noise after the receiver's filters (`receiver.floor`), with a spectrum that each clip draws: white, pink, brown,
    /// blue, a band of any position and width, or everything but such a band. Its level is independent of `snr_db`.
    pub struct Floor at "receiver.floor" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Its power over all frequencies relative to that of the carrier, in decibels.
        pub level_db: Range = [-70.0, -10.0], range(-120.0, 20.0);
    }
}

effect! {
    /// Hum of the mains (`receiver.hum`): 50 or 60 Hz and its harmonics.
    pub struct Hum at "receiver.hum" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Its power relative to that of the carrier, in decibels.
        pub level_db: Range = [-50.0, -15.0], range(-100.0, 20.0);
    }
}

/// Spectrum of a noise floor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Colour {
    /// Falls by this many decibels per octave: 0 is white, 3 pink, 6 brown, -3 blue.
    Slope(f32),
    /// Only this band.
    Band(DrawnBand),
    /// Everything but this band.
    Hollow(DrawnBand),
}

/// Noise floor of one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnFloor {
    /// Its spectrum.
    pub colour: Colour,
    /// Level relative to the carrier, in decibels.
    pub level_db: f32,
}

/// Hum in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnHum {
    /// 50 or 60 Hz.
    pub mains_hz: f32,
    /// Level relative to the carrier, in decibels.
    pub level_db: f32,
}

impl Floor {
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> Option<DrawnFloor> {
        chance(rng, self.probability).then(|| {
            let band = DrawnBand {
                centre_hz: super::band::octaves(rng, CENTRES_HZ),
                width_hz: super::band::octaves(rng, WIDTHS_HZ),
                shape: between(rng, [1.1, 4.0]),
                floor_db: between(rng, [-80.0, -20.0]),
            };
            let slope = Colour::Slope(between(rng, SLOPES));
            // Slopes and bands twice as often as white noise and as noise with a hole.
            let colour = pick(
                rng,
                &[Colour::Slope(0.0), slope, slope, Colour::Band(band), Colour::Band(band), Colour::Hollow(band)],
            );
            DrawnFloor { colour, level_db: between(rng, self.level_db) }
        })
    }
}

impl Hum {
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> Option<DrawnHum> {
        chance(rng, self.probability)
            .then(|| DrawnHum { mains_hz: pick(rng, &[50.0, 60.0]), level_db: between(rng, self.level_db) })
    }
}

/// Frequency below which sloped noise has a constant level, in hertz: receivers pass nothing below it.
const LOWEST_HZ: f64 = 50.0;

impl Colour {
    fn gain(&self, hz: f64) -> f64 {
        match self {
            Self::Slope(db) => amplitude(-db * (hz.max(LOWEST_HZ) / 1000.0).log2() as f32),
            Self::Band(band) => band.gain(hz),
            Self::Hollow(band) => (1.0 - band.gain(hz)).max(amplitude(band.floor_db)),
        }
    }
}

impl DrawnFloor {
    /// Adds the noise to a carrier of amplitude 1. The spectrum of Gaussian noise is Gaussian too, which saves half of
    /// the transforms.
    pub(super) fn add(&self, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        let length = fourier::padded(audio.len());
        let mut normal = || rng.sample::<f32, _>(StandardNormal);
        let mut bins: Vec<Complex<f32>> = (0..=length / 2).map(|_| Complex::new(normal(), normal())).collect();
        fourier::weigh(&mut bins, |frequency| self.colour.gain(frequency * RATE / 2.0));
        let noise = fourier::signal(&mut bins, length);
        add_scaled(&noise[..audio.len()], self.level_db, audio);
    }
}

impl DrawnHum {
    /// Number of harmonics; each is up to 30 dB below the strongest possible.
    const HARMONICS: usize = 12;
    /// Length of a table in samples, which contains 5 periods of 50 Hz, or 6 of 60 Hz.
    const TABLE: usize = 1600;

    /// Adds the hum to a carrier of amplitude 1.
    pub(super) fn add(&self, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        let mut table = vec![0.0; Self::TABLE];
        for harmonic in 1..=Self::HARMONICS {
            let (size, phase) = (amplitude(between(rng, [-30.0, 0.0])), TAU * rng.random::<f64>());
            let step = TAU * f64::from(self.mains_hz) * harmonic as f64 / RATE;
            for (n, sample) in table.iter_mut().enumerate() {
                *sample += (size * (step * n as f64 + phase).sin()) as f32;
            }
        }
        let hum: Vec<f32> = table.into_iter().cycle().take(audio.len().max(Self::TABLE)).collect();
        add_scaled(&hum, self.level_db, audio);
    }
}

/// Adds a sound whose mean power is `level_db` above that of a carrier of amplitude 1, which is 1/2.
fn add_scaled(sound: &[f32], level_db: f32, audio: &mut [f32]) {
    let power = level::energy(sound) / sound.len().max(1) as f64;
    if power > 0.0 {
        let scale = (amplitude(level_db) * (0.5 / power).sqrt()) as f32;
        audio.iter_mut().zip(sound).for_each(|(out, sample)| *out += scale * sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::random;

    fn db(audio: &[f32]) -> f64 {
        10.0 * (2.0 * level::energy(audio) / audio.len() as f64).log10()
    }

    #[test]
    fn floors_have_their_level_and_their_colour() {
        let band = DrawnBand { centre_hz: 600.0, width_hz: 400.0, shape: 1.5, floor_db: -60.0 };
        for (colour, share_outside_db) in
            [(Colour::Slope(0.0), -0.2), (Colour::Band(band), -40.0), (Colour::Hollow(band), -0.1)]
        {
            let mut audio = vec![0.0; 80_000];
            DrawnFloor { colour, level_db: -25.0 }.add(&mut random::stream(1, 2), &mut audio);
            assert!((db(&audio) + 25.0).abs() < 0.1, "{colour:?}: {}", db(&audio));
            fourier::filter(&mut audio, |f| if (0.0375..0.1125).contains(&f) { 0.0 } else { 1.0 });
            let outside = db(&audio[4000..76_000]) + 25.0;
            let fits = if share_outside_db < -1.0 { outside < share_outside_db } else { outside > -1.0 };
            assert!(fits, "{colour:?}: {outside}");
        }
    }

    #[test]
    fn hum_is_at_the_mains_frequency() {
        for mains_hz in [50.0, 60.0] {
            let mut audio = vec![0.0; 16_000];
            DrawnHum { mains_hz, level_db: -20.0 }.add(&mut random::stream(1, 2), &mut audio);
            assert!((db(&audio) + 20.0).abs() < 0.1);
            let bins = fourier::spectrum(&audio, 16_000);
            let off: f32 =
                bins.iter().enumerate().filter(|(n, _)| n % mains_hz as usize != 0).map(|(_, b)| b.norm_sqr()).sum();
            let all: f32 = bins.iter().map(|bin| bin.norm_sqr()).sum();
            assert!(off < 1e-3 * all, "{}", off / all);
        }
    }
}
