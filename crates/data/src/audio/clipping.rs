//! Clipping of a recording.

/// Share of a recording's samples that are clipped, counted as they come. It is counted at the recording's own rate: resampling rounds flat
/// tops off.
#[derive(Default)]
pub(super) struct Clipping {
    /// Samples so far.
    samples: usize,
    /// Clipped samples so far, without those of the run that is going on.
    clipped: usize,
    /// Last sample.
    last: f32,
    /// Samples at full scale that are equal to the last one.
    run: usize,
}

/// Minimum magnitude that counts as full scale: the largest value that 16 bits hold, with a margin for rounding.
const FULL_SCALE: f32 = 0.999;
/// Largest difference of samples that are cut off at the same value: one step of 16 bits. The samples of a low tone at full scale differ
/// by more.
const EQUAL: f32 = 1.0 / 32_768.0;
/// Minimum number of equal samples at full scale that count as clipped: a tone that only just touches it has one or two.
const FLAT: usize = 3;

impl Clipping {
    /// Takes the next samples, at a full scale of 1.
    pub fn push(&mut self, samples: &[f32]) {
        self.samples += samples.len();
        for &sample in samples {
            if sample.abs() < FULL_SCALE {
                self.end_run();
            } else if self.run > 0 && is_same_top(self.last, sample) {
                self.run += 1;
            } else {
                self.end_run();
                self.run = 1;
            }
            self.last = sample;
        }
    }

    /// Returns the share of the samples that are clipped, from 0 to 1.
    pub fn share(mut self) -> f64 {
        self.end_run();
        self.clipped as f64 / self.samples.max(1) as f64
    }

    fn end_run(&mut self) {
        if self.run >= FLAT {
            self.clipped += self.run;
        }
        self.run = 0;
    }
}

/// Whether two samples at full scale were cut off at the same value. What codecs made of a flat top has ripples, which go beyond full scale.
fn is_same_top(a: f32, b: f32) -> bool {
    (a - b).abs() <= EQUAL || a.min(b) >= 1.0 || a.max(b) <= -1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of a tone, cut off at full scale, that counts as clipped.
    fn share(hertz: f32, rate: f32, amplitude: f32) -> f64 {
        let step = hertz / rate * std::f32::consts::TAU;
        let tone: Vec<f32> = (0..rate as u32).map(|n| (amplitude * (step * n as f32).sin()).clamp(-1.0, 1.0)).collect();
        let mut clipping = Clipping::default();
        tone.chunks(1000).for_each(|part| clipping.push(part));
        clipping.share()
    }

    #[test]
    fn flat_tops_with_the_ripples_of_a_codec_are_clipped() {
        let mut clipping = Clipping::default();
        clipping.push(&[0.9, 1.02, 1.0, 1.05, 0.8, -1.01, -1.1, -1.0, 0.0, 1.2]);
        assert!((clipping.share() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn tones_are_clipped_when_they_are_cut_off_at_any_rate() {
        for rate in [8_000.0, 16_000.0, 44_100.0, 96_000.0] {
            for hertz in [110.0, 200.0, 600.0] {
                assert!(share(hertz, rate, 1.0) < 1e-3, "{hertz} Hz at {rate}: a tone at full scale is whole");
                // A tone of amplitude a is above 1 in 1 - 2 asin(1 / a) / pi of the time.
                let expected = 1.0 - 2.0 * (1.0 / 1.3_f64).asin() / std::f64::consts::PI;
                let share = share(hertz, rate, 1.3);
                assert!((share - expected).abs() < 0.1, "{hertz} Hz at {rate}: {share} instead of {expected}");
            }
        }
    }
}
