//! The receiver's filter.

use std::f64::consts::{PI, TAU};

use super::RATE;

/// The receiver's band-pass filter, four equal resonators in series: close to a Gaussian filter, so it does not ring
/// even if it is narrow.
pub struct Filter {
    /// Gain of each resonator's zeros, at 0 Hz and half the sample rate.
    zeros: f32,
    /// Feedback of the last sample and of the one before.
    feedback: [f32; 2],
    /// Delay at the centre, in samples.
    pub delay: usize,
}

impl Filter {
    const RESONATORS: usize = 4;

    /// Returns a filter that is 3 dB down at both ends of `width_hz` around `centre_hz`.
    pub fn new(centre_hz: f64, width_hz: f64) -> Self {
        // n equal resonators in series have sqrt(2^(1/n) - 1) times the width of one of them: 0.435 for four.
        let each_hz = width_hz / (2f64.powf(1.0 / Self::RESONATORS as f64) - 1.0).sqrt();
        let half = (PI * each_hz / RATE).tan();
        let radius = (1.0 - half) / (1.0 + half);
        Self {
            zeros: ((1.0 - radius) / 2.0) as f32,
            feedback: [((TAU * centre_hz / RATE).cos() * (1.0 + radius)) as f32, -radius as f32],
            delay: (Self::RESONATORS as f64 / half).round() as usize,
        }
    }

    /// Filters in place; the output is `delay` samples late.
    pub fn apply(&self, audio: &mut [f32]) {
        let Self { zeros, feedback: [last, before], .. } = *self;
        let mut state = [[0f32; 2]; Self::RESONATORS];
        for sample in audio {
            for [first, second] in &mut state {
                let input = zeros * *sample;
                *sample = input + *first;
                *first = last * *sample + *second;
                *second = before * *sample - input;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(filter: &Filter, hz: f64) -> f64 {
        let mut audio: Vec<f32> = (0..16_000).map(|n| (TAU * hz * n as f64 / RATE).sin() as f32).collect();
        filter.apply(&mut audio);
        let tail = &audio[8000..];
        10.0 * (tail.iter().map(|x| f64::from(x * x)).sum::<f64>() / tail.len() as f64 * 2.0).log10()
    }

    #[test]
    fn the_filter_is_as_wide_as_it_says() {
        for width in [100.0, 500.0] {
            let filter = Filter::new(700.0, width);
            assert!(response(&filter, 700.0).abs() < 0.05);
            // Band edges of a resonator are symmetric on a logarithmic scale: their product is the centre squared.
            let upper = (width + (width * width + 4.0 * 700.0 * 700.0f64).sqrt()) / 2.0;
            assert!((response(&filter, upper) + 3.0).abs() < 0.3, "{width}: {}", response(&filter, upper));
            assert!((response(&filter, upper - width) + 3.0).abs() < 0.3);
        }
    }

    #[test]
    fn the_filter_delays_by_what_it_says() {
        let filter = Filter::new(700.0, 300.0);
        let keyed =
            |n: usize| if (4000..4640).contains(&n) { (TAU * 700.0 * n as f64 / RATE).sin() as f32 } else { 0.0 };
        let mut audio: Vec<f32> = (0..9000).map(keyed).collect();
        filter.apply(&mut audio);
        let power: f64 = audio.iter().map(|x| f64::from(x * x)).sum();
        let middle: f64 = audio.iter().enumerate().map(|(n, x)| n as f64 * f64::from(x * x)).sum::<f64>() / power;
        let delay = middle - 4319.5;
        assert!((delay - filter.delay as f64).abs() < 3.0, "{delay} and not {}", filter.delay);
    }
}
