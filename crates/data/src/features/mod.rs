//! Log-mel spectrograms with the same values as Hugging Face's `WhisperFeatureExtractor`.
//!
//! A frame is 400 samples (25 ms) under a periodic Hann window. Frames are 160 samples (10 ms) apart and centred (the
//! signal is mirrored at both ends), and the last frame is dropped, so `n` samples give `n / 160` frames. Each frame's
//! power spectrum passes through Slaney-normalised triangular filters from 0 to 8 kHz. The base-10 logarithm is clamped
//! to at most 8 below the maximum of the whole window, then mapped by `(x + 4) / 4`.

mod frame;
mod mel;
mod padded;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_kernels::filter_bank::{FilterBank, LANES, Scratch, log10_above};

pub use frame::{FRAME, HOP};
pub use mel::FREQUENCIES;
use padded::Padded;

/// Minimum power (-100 dB), so that the logarithm stays finite.
const SILENCE: f32 = 1e-10;
/// Smallest power kept, relative to the largest: 8 in base-10 logarithm, or 80 dB.
const RANGE: f32 = 1e-8;

/// Error of features that could not be computed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FeatureError {
    /// The number of bins is neither 80 nor 128, the only ones that Whisper has.
    #[error("{0} mel bins are not supported: use 80 (Whisper up to large-v2) or 128 (large-v3 and turbo)")]
    Bins(usize),
    /// The size of a buffer is not that of the features.
    #[error("the buffer holds {given} values where {needed} are needed: make it mel bins × frames × clips long")]
    Buffer {
        /// Number of values in the buffer.
        given: usize,
        /// Number of values in the features.
        needed: usize,
    },
}

/// Settings of a [`LogMel`]; the other constants are the same for every Whisper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogMelConfig {
    /// Mel bins: 80 (Whisper up to large-v2) or 128 (large-v3 and turbo).
    pub bins: usize,
}

impl Default for LogMelConfig {
    fn default() -> Self {
        Self { bins: 80 }
    }
}

impl LogMelConfig {
    /// Fails unless `bins` is 80 or 128.
    pub fn validate(&self) -> Result<(), FeatureError> {
        match self.bins {
            80 | 128 => Ok(()),
            bins => Err(FeatureError::Bins(bins)),
        }
    }

    /// Makes the extractor of these settings; fails as [`LogMelConfig::validate`] does.
    pub fn init(&self) -> Result<LogMel, FeatureError> {
        LogMel::new(self.bins)
    }
}

/// The log-mel features of one clip.
#[derive(Debug, Clone, PartialEq)]
pub struct Mel {
    /// Mel bins: rows of `data`.
    pub bins: usize,
    /// Frames of 10 ms: columns of `data`.
    pub frames: usize,
    /// The values, `[bins, frames]`, row after row.
    pub data: Vec<f32>,
}

impl Mel {
    /// Returns an upper bound of the audio's number of samples, less than 10 ms too high. Valid for features of
    /// [`LogMel::features_and_silence`].
    pub fn samples(&self) -> usize {
        (self.frames.saturating_sub(1) * HOP).saturating_sub(FRAME / 2)
    }

    /// Writes `[bins, frames]` of a window, filled up with silence or cut. Valid for features of
    /// [`LogMel::features_and_silence`].
    pub fn pad_into(&self, frames: usize, out: &mut [f32]) {
        for (row, out) in self.data.chunks_exact(self.frames.max(1)).zip(out.chunks_exact_mut(frames.max(1))) {
            let kept = self.frames.min(frames);
            out[..kept].copy_from_slice(&row[..kept]);
            out[kept..].fill(row.last().copied().unwrap_or_default());
        }
    }
}

/// Computes log-mel features; build it once, then share it among threads by reference.
///
/// Audio is 16 kHz mono, nominally in `[-1, 1]`, and finite, as [`crate::audio::load`] returns it.
pub struct LogMel {
    bank: FilterBank,
}

impl LogMel {
    /// Returns an extractor for 80 or 128 mel bins; any other number is an error.
    pub fn new(bins: usize) -> Result<Self, FeatureError> {
        LogMelConfig { bins }.validate()?;
        let turn = std::f64::consts::TAU / FRAME as f64;
        let hann = (0..FRAME).map(|i| (0.5 - 0.5 * (turn * i as f64).cos()) as f32).collect();
        Ok(Self { bank: FilterBank::new(hann, HOP, mel::filters(bins)) })
    }

    /// Mel bins: rows of the features.
    pub fn bins(&self) -> usize {
        self.bank.filters()
    }

    /// Returns the number of frames in `n_samples` of audio: one per whole hop, as Whisper counts them (480 000 samples
    /// give 3000).
    pub fn frames(n_samples: usize) -> usize {
        n_samples / HOP
    }

    /// Returns the features of the audio, unpadded: `[bins, audio.len() / 160]`, for any length.
    ///
    /// The same as `WhisperFeatureExtractor` called with `padding=False`, except for its 30 s limit: the mirrored edge
    /// is the clip's own end, not the silence of a padded window. A tail shorter than 10 ms gets no frame of its own,
    /// and audio shorter than that gives no frames; pad it first if it must be kept.
    pub fn features(&self, audio: &[f32]) -> Mel {
        self.features_padded(audio, audio.len())
    }

    /// Returns the features of the audio padded with silence, or cut, to `n_samples`: `[bins, n_samples / 160]`.
    ///
    /// With 480 000 samples (30 s) this is what `WhisperFeatureExtractor` does by default.
    pub fn features_padded(&self, audio: &[f32], n_samples: usize) -> Mel {
        let frames = Self::frames(n_samples);
        let mut data = vec![0.0; self.bins() * frames];
        self.write(audio, n_samples, &mut data);
        Mel { bins: self.bins(), frames, data }
    }

    /// Returns the features of the audio followed by silence, and of one frame of that silence. From them
    /// [`Mel::pad_into`] makes the features of any longer window without the audio.
    pub fn features_and_silence(&self, audio: &[f32]) -> Mel {
        // Up to and including the frame after the last one that overlaps the audio.
        let frames = (audio.len() + FRAME / 2).div_ceil(HOP) + 1;
        self.features_padded(audio, frames * HOP)
    }

    /// Writes [`LogMel::features_padded`] to a buffer of exactly `bins · (n_samples / 160)` values; fails on another
    /// size.
    pub fn features_padded_into(&self, audio: &[f32], n_samples: usize, out: &mut [f32]) -> Result<(), FeatureError> {
        let needed = self.bins() * Self::frames(n_samples);
        if out.len() != needed {
            return Err(FeatureError::Buffer { given: out.len(), needed });
        }
        self.write(audio, n_samples, out);
        Ok(())
    }

    /// Returns [`LogMel::features_padded`] of several clips at once, on rayon's threads: `[clips, bins, n_samples /
    /// 160]`.
    ///
    /// The values do not depend on the number of threads.
    pub fn batch_padded<C: AsRef<[f32]> + Sync>(&self, clips: &[C], n_samples: usize) -> Vec<f32> {
        let size = self.bins() * Self::frames(n_samples);
        let mut out = vec![0.0; size * clips.len()];
        // A window without frames has no chunks to hand out, and rayon takes no chunk size of zero.
        out.par_chunks_mut(size.max(1)).zip(clips).for_each(|(out, clip)| self.write(clip.as_ref(), n_samples, out));
        out
    }

    /// Writes `[bins, frames]` to `out`, which has that size.
    ///
    /// The clamp needs the maximum of the whole window. So the first pass writes powers to `out`, and the second takes
    /// their logarithm. Clamping before the logarithm gives the same result, because the logarithm is monotonic.
    fn write(&self, audio: &[f32], n_samples: usize, out: &mut [f32]) {
        thread_local!(static SCRATCH: RefCell<Scratch> = RefCell::default());

        let frames = Self::frames(n_samples);
        if frames == 0 {
            return;
        }
        let signal = Padded::new(audio, n_samples);
        // Frame t covers samples 160t - 200 .. 160t + 200: from here on all of them are padding, hence constant.
        let sounding = (signal.sounding() + FRAME / 2).div_ceil(HOP).min(frames);

        let mut edge = vec![0.0; self.bank.span()];
        let peak = SCRATCH.with_borrow_mut(|scratch| {
            let mut peak = 0.0f32;
            for first in (0..sounding).step_by(LANES) {
                let samples = signal.around((first * HOP) as isize - (FRAME / 2) as isize, &mut edge);
                let columns = first..sounding.min(first + LANES);
                peak = peak.max(self.bank.energies(samples, scratch, columns, out, frames));
            }
            peak
        });

        let floor = (peak * RANGE).max(SILENCE);
        let mut silence = [floor];
        log10_above(floor, 4.0, 0.25, &mut silence);
        for row in out.chunks_exact_mut(frames) {
            let (heard, padding) = row.split_at_mut(sounding);
            log10_above(floor, 4.0, 0.25, heard);
            padding.fill(silence[0]);
        }
    }
}

/// Returns the weights of all frequencies in each filter, zeros included: `[bins, FREQUENCIES]`. Files of models contain
/// them in this form.
///
/// # Errors
/// Unless `bins` is 80 or 128.
pub fn mel_weights(bins: usize) -> Result<Vec<f32>, FeatureError> {
    LogMelConfig { bins }.validate()?;
    let mut weights = vec![0.0; bins * FREQUENCIES];
    for (row, filter) in weights.chunks_exact_mut(FREQUENCIES).zip(mel::filters(bins)) {
        row[filter.start..][..filter.weights.len()].copy_from_slice(&filter.weights);
    }
    Ok(weights)
}
