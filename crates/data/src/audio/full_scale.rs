//! Full scale of samples that are floats.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Range of a recording's float samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatRange {
    /// Largest magnitude, as stored.
    pub peak: f32,
    /// Divisor of the samples: 1, or the full scale of the integers that they are.
    pub full_scale: f32,
}

/// Scales floats to a full scale of 1. Values of up to eight times full scale are loud and stay as they are. Programs
/// that store integers as floats write values of up to 32,768 and further; these are divided by the full scale of the
/// integers.
///
/// The first second decides the divisor: there, samples above 1 that are all whole numbers are quiet integers of 16
/// bits, and no loud floats. Later samples that are too large for the divisor select a larger one from there on: the first of them, if all
/// samples before it were whole numbers (or silence), and otherwise only if there are more than [`FEW`] within a second: up to so many are
/// a click, and are cut off at full scale. So a stream, whose later samples are not known, gives the same result as a file.
pub(super) struct FullScale {
    path: PathBuf,
    /// Divisor; none in the first second.
    divisor: Option<f32>,
    /// Samples that wait for the divisor.
    held: Vec<f32>,
    /// Number of samples to wait for.
    ahead: usize,
    peak: f32,
    /// Whether all samples so far are whole numbers, or halves, as the mean of two channels may be.
    are_whole: bool,
    /// Number of samples that are too large for the divisor, since there was none for a second.
    beyond: usize,
    /// Number of samples since the last of them.
    since: usize,
}

/// Maximum magnitude of samples relative to their full scale.
const ROOM: f32 = 8.0;
/// Most samples beyond it of a click, at 16 kHz and below: 2 ms. At higher rates there are as many more.
const FEW: usize = 32;
/// Full scale of floats, and of integers of 16, 24 and 32 bits.
const FULL_SCALES: [f32; 4] = [1.0, 32_768.0, 8_388_608.0, 2_147_483_648.0];
/// Whether a division has been reported: one warning is enough for a whole corpus of such recordings.
static SAID: AtomicBool = AtomicBool::new(false);

impl FullScale {
    /// State before the first sample, at `rate` samples per second.
    pub fn new(path: &Path, rate: u32) -> Self {
        Self {
            path: path.into(),
            divisor: None,
            held: Vec::new(),
            ahead: rate as usize,
            peak: 0.0,
            are_whole: true,
            beyond: 0,
            since: 0,
        }
    }

    /// Takes finite samples, and returns those whose scale is known.
    pub fn push(&mut self, samples: Vec<f32>) -> Vec<f32> {
        if self.divisor.is_some() {
            return self.divided(samples);
        }
        self.held.extend(samples);
        if self.held.len() < self.ahead { Vec::new() } else { self.finish() }
    }

    /// Returns the samples that are still held.
    pub fn finish(&mut self) -> Vec<f32> {
        let held = std::mem::take(&mut self.held);
        if self.divisor.is_none() {
            let first = &held[..self.ahead.min(held.len())];
            let are_whole = first.iter().all(is_whole);
            let has_faults = !are_whole && first.iter().filter(|sample| sample.abs() > ROOM).count() <= self.few();
            let sizes = first.iter().map(|sample| sample.abs()).filter(|size| !has_faults || *size <= ROOM);
            let peak = sizes.fold(0.0, f32::max);
            let are_integers = peak > 1.0 && are_whole;
            self.are_whole = are_whole;
            self.divide_by(full_scale_of(peak).max(if are_integers { FULL_SCALES[1] } else { 1.0 }));
        }
        self.divided(held)
    }

    /// Returns the range of the samples so far.
    pub fn range(&self) -> FloatRange {
        FloatRange { peak: self.peak, full_scale: self.divisor.unwrap_or(1.0) }
    }

    fn divided(&mut self, mut samples: Vec<f32>) -> Vec<f32> {
        let mut divisor = self.range().full_scale;
        for sample in &mut samples {
            let size = sample.abs();
            self.peak = self.peak.max(size);
            self.since += 1;
            if size > ROOM * divisor {
                self.beyond = if self.since > self.ahead { 1 } else { self.beyond + 1 };
                self.since = 0;
                if self.are_whole && is_whole(sample) || self.beyond > self.few() {
                    divisor = full_scale_of(size);
                    self.beyond = 0;
                    self.divide_by(divisor);
                } else {
                    *sample = divisor.copysign(*sample);
                }
            }
            self.are_whole &= is_whole(sample);
            *sample /= divisor;
        }
        samples
    }

    /// Most samples of a click.
    fn few(&self) -> usize {
        FEW.max(self.ahead / 500)
    }

    fn divide_by(&mut self, divisor: f32) {
        self.divisor = Some(divisor);
        if divisor > 1.0 && !SAID.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: its samples are floats far beyond full scale, which is 1: they are divided by {divisor}; other \
                 recordings like it are, too, and are not named",
                self.path.display()
            );
        }
    }
}

fn is_whole(sample: &f32) -> bool {
    (2.0 * sample).fract() == 0.0
}

/// Returns the full scale of floats of this magnitude.
fn full_scale_of(size: f32) -> f32 {
    FULL_SCALES.into_iter().find(|full_scale| size <= ROOM * full_scale).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scaled(samples: &[f32], cuts: usize) -> (Vec<f32>, FloatRange) {
        let mut scale = FullScale::new(Path::new("a.wav"), 10);
        let mut all: Vec<f32> = samples.chunks(cuts.max(1)).flat_map(|part| scale.push(part.to_vec())).collect();
        all.extend(scale.finish());
        (all, scale.range())
    }

    #[test]
    fn loud_floats_stay_and_integers_are_divided() {
        let tone = [0.0_f32, 0.5, -1.2, 3.0];
        assert_eq!(scaled(&tone, 1), (tone.to_vec(), FloatRange { peak: 3.0, full_scale: 1.0 }));
        for full_scale in [32_768.0, 8_388_608.0] {
            let integers: Vec<f32> = [0.0, 0.5, -1.0, 0.25].map(|x: f32| x * full_scale).to_vec();
            let (found, range) = scaled(&integers, 3);
            assert_eq!(
                (found.as_slice(), range),
                (&[0.0, 0.5, -1.0, 0.25][..], FloatRange { peak: full_scale, full_scale })
            );
        }
        assert!(scaled(&[], 1).0.is_empty());
    }

    #[test]
    fn quiet_integers_are_no_loud_floats() {
        let samples = [4.0, -3.0, 0.0, 2.5, 4.0, 0.0, 0.0, 1.0, -4.0, 0.0, 9000.0];
        let (found, range) = scaled(&samples, 3);
        assert_eq!(range.full_scale, 32_768.0);
        assert!(found.iter().zip(samples).all(|(found, sample)| *found == sample / 32_768.0), "{found:?}");
        // A square wave at full scale.
        assert_eq!(scaled(&[1.0, -1.0, 1.0, -1.0], 2).1.full_scale, 1.0);
    }

    #[test]
    fn what_begins_with_silence_is_divided_from_its_first_sound_on() {
        let mut samples = vec![0.0; 25];
        samples.extend([16_384.0, -8_192.0]);
        let (found, range) = scaled(&samples, 4);
        assert_eq!((&found[25..], range.full_scale), (&[0.5, -0.25][..], 32_768.0));
    }

    #[test]
    fn a_click_leaves_the_rest_as_it_is() {
        for at in [3, 40] {
            let mut samples = [0.25, -0.3].repeat(50);
            samples[at] = -9.0;
            let (found, range) = scaled(&samples, 7);
            samples[at] = -1.0;
            assert_eq!((found, range), (samples, FloatRange { peak: 9.0, full_scale: 1.0 }), "{at}");
        }
        let mut many = [0.25, -0.3].repeat(500);
        many.iter_mut().step_by(20).for_each(|sample| *sample = 9.5);
        assert_eq!(scaled(&many, 7).1.full_scale, 1.0, "clicks that are apart");
        // Integers that were resampled, after a quiet second.
        let mut samples = [0.25, -0.3].repeat(50);
        samples.extend([9000.25; 40]);
        let (found, range) = scaled(&samples, 7);
        assert_eq!((range.full_scale, found[131], found[139]), (32_768.0, 1.0, 9000.25 / 32_768.0));
    }

    proptest! {
        #[test]
        fn the_sizes_of_blocks_change_nothing(samples in prop::collection::vec(-1e6_f32..1e6, 0..60), cuts in 1_usize..60) {
            let (whole, range) = scaled(&samples, samples.len());
            prop_assert_eq!(scaled(&samples, cuts), (whole.clone(), range));
            prop_assert_eq!(whole.len(), samples.len());
            prop_assert!(whole.iter().all(|sample| sample.abs() <= ROOM));
        }
    }
}
