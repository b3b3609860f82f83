//! Passband of a receiver: steep filters, and the limits of an audio band.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::channel::{RATE, amplitude};
use undertone_data::effect;
use undertone_data::fourier;
use undertone_data::random::{Range, between, chance, either_way};

effect! {
    /// A steep filter around or beside the wanted pitch (`receiver.band`), as of crystals or a signal processor. It does
    /// not delay, and a narrow and steep one rings before and after, as linear-phase filters do.
    pub struct SteepBand at "receiver.band" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Width between the -6 dB points, in hertz, drawn uniformly on a logarithmic scale.
        pub width_hz: Range = [50.0, 3000.0], range(20.0, 8000.0);
        /// Distance of the pitch from the middle, upwards or downwards: 0 in the middle, 1 at a -6 dB point.
        pub offset: Range = [0.0, 0.8], range(0.0, 1.0);
        /// Shape factor: the width between the -60 dB points over that between the -6 dB points. 1.2 is a good signal
        /// processor, 2 a good crystal filter.
        pub shape: Range = [1.1, 4.0], range(1.05, 10.0);
        /// Level far outside of the band, relative to the middle, in decibels.
        pub floor_db: Range = [-80.0, -20.0], range(-120.0, 0.0);
    }
}

effect! {
    /// Lower and upper limit of the sound of a receiver or a recording (`receiver.audio`), and its spectral tilt.
    pub struct AudioBand at "receiver.audio" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Lower -6 dB point, in hertz.
        pub low_hz: Range = [20.0, 400.0], range(0.0, 2000.0);
        /// Upper -6 dB point, in hertz; a clip's pitch always passes.
        pub high_hz: Range = [1500.0, 7900.0], range(500.0, 8000.0);
        /// Level of each octave relative to the one below, in decibels: louder (bright) or weaker (dull), with equal
        /// probability.
        pub tilt_db: Range = [0.0, 6.0], range(0.0, 24.0);
    }
}

/// A steep filter in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnBand {
    /// Middle, in hertz.
    pub centre_hz: f32,
    /// Width between the -6 dB points, in hertz.
    pub width_hz: f32,
    /// Shape factor.
    pub shape: f32,
    /// Stopband level, in decibels.
    pub floor_db: f32,
}

/// The audio band of one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnAudioBand {
    /// Lower -6 dB point, in hertz.
    pub low_hz: f32,
    /// Upper -6 dB point, in hertz.
    pub high_hz: f32,
    /// Tilt, in decibels per octave.
    pub tilt_db: f32,
    /// The pitch, whose level the tilt does not change, in hertz.
    pub pitch_hz: f32,
}

impl SteepBand {
    pub(super) fn draw(&self, pitch_hz: f32, rng: &mut ChaCha8Rng) -> Option<DrawnBand> {
        chance(rng, self.probability).then(|| {
            let width_hz = octaves(rng, self.width_hz);
            DrawnBand {
                centre_hz: pitch_hz + either_way(rng, self.offset) * width_hz / 2.0,
                width_hz,
                shape: between(rng, self.shape),
                floor_db: between(rng, self.floor_db),
            }
        })
    }
}

impl AudioBand {
    pub(super) fn draw(&self, pitch_hz: f32, rng: &mut ChaCha8Rng) -> Option<DrawnAudioBand> {
        chance(rng, self.probability).then(|| DrawnAudioBand {
            low_hz: between(rng, self.low_hz).min(0.8 * pitch_hz),
            high_hz: between(rng, self.high_hz).max(1.2 * pitch_hz),
            tilt_db: either_way(rng, self.tilt_db),
            pitch_hz,
        })
    }
}

impl DrawnBand {
    /// Returns the gain at a frequency: 6 dB down at a distance d of 1 from the middle, half the width, and 60 dB down
    /// at the shape factor s. An attenuation of 6 d^n decibels has both properties if s^n = 10.
    pub(super) fn gain(&self, hz: f64) -> f64 {
        let power = 10f64.ln() / f64::from(self.shape).ln();
        let distance = 2.0 * (hz - f64::from(self.centre_hz)).abs() / f64::from(self.width_hz);
        amplitude((-6.0 * distance.powf(power)).max(self.floor_db.into()) as f32)
    }

    pub(super) fn apply(&self, audio: &mut [f32]) {
        fourier::filter(audio, |frequency| self.gain(frequency * RATE / 2.0));
    }
}

impl DrawnAudioBand {
    /// Steepness of the limits, in decibels per octave below and in decibels per hundredth of the frequency above:
    /// audio stages are coupled by capacitors, and end in a sampler's steep filter.
    const LOW_DB: f64 = 36.0;
    const HIGH_DB: f64 = 6.0;

    fn gain(&self, hz: f64) -> f64 {
        let (low, high) = (f64::from(self.low_hz), f64::from(self.high_hz));
        let octaves_below = if low == 0.0 { 0.0 } else { (low / hz.max(1.0)).log2().max(-1.0 / 6.0) + 1.0 / 6.0 };
        let above = 100.0 * (hz / high - 0.99).max(0.0);
        let tilt = f64::from(self.tilt_db) * (hz.max(50.0) / f64::from(self.pitch_hz)).log2();
        amplitude((tilt - Self::LOW_DB * octaves_below - Self::HIGH_DB * above).max(-120.0) as f32)
    }

    pub(super) fn apply(&self, audio: &mut [f32]) {
        fourier::filter(audio, |frequency| self.gain(frequency * RATE / 2.0));
    }
}

/// Returns a value from the range, uniformly distributed on a logarithmic scale.
pub(super) fn octaves(rng: &mut ChaCha8Rng, range: Range) -> f32 {
    between(rng, range.map(f32::log2)).exp2().clamp(range[0], range[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_as_wide_and_as_steep_as_it_says() {
        let band = DrawnBand { centre_hz: 600.0, width_hz: 500.0, shape: 2.0, floor_db: -70.0 };
        let db = |hz| 20.0 * band.gain(hz).log10();
        assert!(db(600.0).abs() < 1e-6 && (db(850.0) + 6.0).abs() < 1e-6 && (db(350.0) + 6.0).abs() < 1e-6);
        assert!((db(1100.0) + 60.0).abs() < 1e-6 && (db(4000.0) + 70.0).abs() < 1e-6);
    }

    #[test]
    fn an_audio_band_ends_where_it_says() {
        let band = DrawnAudioBand { low_hz: 300.0, high_hz: 2700.0, tilt_db: 0.0, pitch_hz: 700.0 };
        let db = |hz| 20.0 * band.gain(hz).log10();
        assert!((db(300.0) + 6.0).abs() < 0.1 && (db(2700.0) + 6.0).abs() < 0.1, "{} {}", db(300.0), db(2700.0));
        assert!(db(700.0).abs() < 0.1 && db(2500.0).abs() < 0.1 && db(3000.0) < -60.0);
        let tilted = DrawnAudioBand { tilt_db: -6.0, ..band };
        assert!((20.0 * tilted.gain(1400.0).log10() + 6.0).abs() < 0.1);
    }

    #[test]
    fn filtering_leaves_what_passes() {
        let tone = |hz: f64| -> Vec<f32> {
            (0..32_000).map(|n| (std::f64::consts::TAU * hz * f64::from(n) / RATE).sin() as f32).collect()
        };
        let (inside, outside) = (tone(640.0), tone(1600.0));
        let mut audio: Vec<f32> = inside.iter().zip(&outside).map(|(a, b)| a + b).collect();
        DrawnBand { centre_hz: 600.0, width_hz: 300.0, shape: 1.5, floor_db: -80.0 }.apply(&mut audio);
        let worst = audio.iter().zip(&inside).map(|(a, b)| (a - b).abs()).skip(4000).take(24_000).fold(0.0, f32::max);
        assert!(worst < 0.02, "{worst}");
    }
}
