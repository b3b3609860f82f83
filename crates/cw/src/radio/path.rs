//! Propagation between two antennas, beyond slow fading: flutter and echoes.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustfft::num_complex::Complex;
use serde::{Deserialize, Serialize};

use super::channel::{BLOCK, RATE, amplitude};
use super::stream::Stream;
use undertone_data::bounds::BoundsError;
use undertone_data::effect;
use undertone_data::fourier;
use undertone_data::random::{Range, between, chance, either_way, whole};

/// Effects of the ionosphere on a signal (`path`). Both are off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Path {
    /// Fast fading.
    pub flutter: Flutter,
    /// Delayed copies of the signal.
    pub echo: Echo,
}

effect! {
    /// Fast fading, as over the poles: part of the signal arrives by many ways whose lengths change.
    pub struct Flutter at "path.flutter" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Maximum frequency shift of a way, in hertz; the level changes about as often per second.
        pub hz: Range = [3.0, 20.0], range(0.1, 100.0) => between;
        /// Share of the power that is scattered: 0 is a steady signal, 1 has no steady part (Rayleigh fading).
        pub scattered: Range = [0.2, 0.9], range(0.0, 1.0) => between;
    }

    /// Flutter in one clip.
    pub struct DrawnFlutter;
}

effect! {
    /// Echoes: a signal that went round the earth (138 ms) or took a second hop (milliseconds).
    pub struct Echo at "path.echo" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Minimum and maximum number of echoes.
        pub echoes: [usize; 2] = [1, 2], count(0, 8);
        /// Delay of each echo, in milliseconds.
        pub delay_ms: Range = [1.0, 200.0], range(0.1, 1000.0);
        /// Level of each relative to the signal, in decibels.
        pub level_db: Range = [-30.0, -6.0], range(-60.0, 0.0);
    }
}

/// One echo in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnEcho {
    /// Delay, in milliseconds.
    pub delay_ms: f32,
    /// Amplitude relative to the signal's; negative if the echo is inverted.
    pub gain: f32,
}

/// The path of one clip.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DrawnPath {
    /// Fast fading.
    pub flutter: Option<DrawnFlutter>,
    /// Echoes.
    pub echoes: Vec<DrawnEcho>,
}

impl Path {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `path`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        self.flutter.validate()?;
        self.echo.validate()
    }

    /// Draws the path of a clip.
    pub fn draw(&self, draw: u64) -> DrawnPath {
        let echoing = &mut Stream::Echo.of(draw);
        let [least, most] = self.echo.echoes;
        let echoes = if chance(echoing, self.echo.probability) { whole(echoing, least..=most) } else { 0 };
        let echoes = (0..echoes).map(|_| {
            let gain = amplitude(between(echoing, self.echo.level_db)) as f32;
            DrawnEcho { delay_ms: between(echoing, self.echo.delay_ms), gain: either_way(echoing, [gain, gain]) }
        });
        DrawnPath { flutter: self.flutter.draw(&mut Stream::Flutter.of(draw)), echoes: echoes.collect() }
    }
}

impl DrawnPath {
    /// Returns whether it leaves a signal unchanged.
    pub fn is_clear(&self) -> bool {
        self.flutter.is_none() && self.echoes.is_empty()
    }

    /// Applies the path to a signal; `draw` is that of the clip.
    pub fn apply(&self, draw: u64, audio: &mut [f32]) {
        if let Some(flutter) = self.flutter {
            scatter(flutter, &mut Stream::Ways.of(draw), audio);
        }
        if !self.echoes.is_empty() {
            let direct = audio.to_vec();
            for echo in &self.echoes {
                let delay = (f64::from(echo.delay_ms) / 1000.0 * RATE).round() as usize;
                for (out, sample) in audio.iter_mut().skip(delay).zip(&direct) {
                    *out += echo.gain * sample;
                }
            }
        }
    }
}

/// Multiplies the analytic signal by the sum of a steady part and one rotating phasor per way (Jakes' model: Microwave
/// Mobile Communications, 1974). The mean power stays the same.
fn scatter(flutter: DrawnFlutter, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    const WAYS: usize = 8;
    let scattered = f64::from(flutter.scattered);
    let each = (scattered / WAYS as f64).sqrt();
    let mut ways: Vec<(Complex<f64>, Complex<f64>)> = (0..WAYS)
        .map(|_| {
            let shift = f64::from(flutter.hz) * (TAU * rng.random::<f64>()).cos();
            let turn = Complex::from_polar(1.0, TAU * shift * BLOCK as f64 / RATE);
            (Complex::from_polar(each, TAU * rng.random::<f64>()), turn)
        })
        .collect();
    let mut next = || {
        let sum = ways.iter().fold(Complex::from((1.0 - scattered).sqrt()), |sum, (way, _)| sum + way);
        ways.iter_mut().for_each(|(way, turn)| *way *= *turn);
        Complex::new(sum.re as f32, sum.im as f32)
    };
    let turning = fourier::analytic(audio);
    let mut from = next();
    for (out, turning) in audio.chunks_mut(BLOCK).zip(turning.chunks(BLOCK)) {
        let to = next();
        let slope = (to - from) / BLOCK as f32;
        for (out, signal) in out.iter_mut().zip(turning) {
            *out = (signal * from).re;
            from += slope;
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::carrier;
    use super::*;
    use undertone_data::level;

    fn tone(samples: usize) -> Vec<f32> {
        carrier(700.0, 1.0, samples)
    }

    #[test]
    fn an_echo_comes_later_and_weaker() {
        let echo = Echo { probability: 1.0, echoes: [1, 1], delay_ms: [100.0, 100.0], level_db: [-12.0, -12.0] };
        let mut audio = tone(1600);
        audio.resize(8000, 0.0);
        Path { echo, ..Path::default() }.draw(3).apply(3, &mut audio);
        assert!((level::energy(&audio[1600..3200]) / level::energy(&audio[..1600]) - 10f64.powf(-1.2)).abs() < 1e-3);
        assert_eq!(level::energy(&audio[3200..]), 0.0);
    }

    #[test]
    fn flutter_changes_the_level_about_as_often_as_it_says() {
        let flutter = Flutter { probability: 1.0, hz: [10.0, 10.0], scattered: [1.0, 1.0] };
        let mut audio = tone(160_000);
        Path { flutter, ..Path::default() }.draw(3).apply(3, &mut audio);
        assert!((level::energy(&audio) / level::energy(&tone(160_000)) - 1.0).abs() < 0.5);
        let levels: Vec<bool> = audio.chunks(160).map(|piece| level::energy(piece) > 40.0).collect();
        // Rayleigh fading rises through half its mean power 1.1 times per hertz of shift: 2.5 sqrt(r) exp(-r), r = 1/2.
        let crossings = levels.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        assert!((50..250).contains(&crossings), "{crossings} in 10 s");
    }

    #[test]
    fn by_default_a_path_is_clear() {
        assert!((0..100).all(|draw| Path::default().draw(draw).is_clear()));
    }

    #[test]
    fn refusals_name_the_key() {
        let path = Path { echo: Echo { delay_ms: [5.0, 1.0], ..Echo::default() }, ..Path::default() };
        assert!(path.validate().unwrap_err().to_string().starts_with("path.echo.delay_ms is [5, 1]"));
    }
}
