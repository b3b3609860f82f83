use std::cell::RefCell;

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler, WindowFunction};

use super::SAMPLE_RATE;

/// Minimum number of input samples per transform, and so in the low-pass filter. With 2048 it is flat to 7.8 kHz from
/// 48 kHz and 140 dB down from 8 kHz on. A shorter filter would attenuate the top mel bins, a longer one ring further.
const MIN_CHUNK: u32 = 2048;

/// Number of resamplers that a thread keeps: to make one takes as long as to resample two seconds of audio. The 21
/// speeds of up to 10 % fit, and some files' rates.
const KEPT: usize = 24;
/// Resamplers with a longer transform, for rates that have little in common with 16 kHz, are not kept: one of this
/// length is 200 kB.
const LONGEST: u32 = 4 * MIN_CHUNK;

thread_local! {
    /// This thread's resamplers, by rate, the most recently used first.
    static RESAMPLERS: RefCell<Vec<(u32, Fft<f32>)>> = const { RefCell::new(Vec::new()) };
}

/// Resamples mono samples to 16 kHz, without delay: `ceil(len · 16000 / rate)` samples.
///
/// The error is a reason that fits after "holds audio that cannot be decoded".
pub(crate) fn to_16k(samples: Vec<f32>, rate: u32) -> Result<Vec<f32>, String> {
    if rate == SAMPLE_RATE {
        return Ok(samples);
    }
    let mut resampling = Resampling::begin(rate)?;
    resampling.push(&samples)?;
    resampling.finish()
}

/// Resampling of mono samples to 16 kHz piece by piece: only the output is ever in memory as a whole.
pub(super) struct Resampling {
    rate: u32,
    /// None if the rate already is 16 kHz.
    resampler: Option<Fft<f32>>,
    /// Samples that do not fill a transform yet.
    pending: Vec<f32>,
    /// Output of one transform.
    scratch: Vec<f32>,
    /// Number of the next output samples that are the filter's delay.
    delay: usize,
    taken: usize,
    made: Vec<f32>,
    /// Number of output samples already taken.
    drained: usize,
}

impl Resampling {
    /// # Errors
    /// For a rate outside 1 to 768 kHz.
    pub fn begin(rate: u32) -> Result<Self, String> {
        // The length of the transform depends on the ratio's lowest terms, so an invalid rate in a header must not set
        // its size.
        if !(1_000..=768_000).contains(&rate) {
            return Err(format!("a sampling rate of {rate} Hz is outside 1 to 768 kHz"));
        }
        let resampler = (rate != SAMPLE_RATE).then(|| kept(rate)).transpose()?;
        let (delay, longest) = resampler.as_ref().map_or((0, 0), |fft| (fft.output_delay(), fft.output_frames_max()));
        Ok(Self {
            rate,
            resampler,
            pending: Vec::new(),
            scratch: vec![0.0; longest],
            delay,
            taken: 0,
            made: Vec::new(),
            drained: 0,
        })
    }

    /// Takes more samples.
    pub fn push(&mut self, mut samples: &[f32]) -> Result<(), String> {
        self.taken += samples.len();
        let Some(chunk) = self.resampler.as_ref().map(Fft::input_frames_next) else {
            append(&mut self.made, samples);
            return Ok(());
        };
        if !self.pending.is_empty() {
            let (more, rest) = samples.split_at(samples.len().min(chunk - self.pending.len()));
            self.pending.extend_from_slice(more);
            samples = rest;
            if self.pending.len() < chunk {
                return Ok(());
            }
            let whole = std::mem::take(&mut self.pending);
            self.transform(&whole)?;
            self.pending = whole;
            self.pending.clear();
        }
        let mut chunks = samples.chunks_exact(chunk);
        for whole in &mut chunks {
            self.transform(whole)?;
        }
        self.pending.extend_from_slice(chunks.remainder());
        Ok(())
    }

    /// Returns the number of output samples that are ready.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Takes the output so far.
    pub fn drain(&mut self) -> Vec<f32> {
        self.drained += self.made.len();
        std::mem::take(&mut self.made)
    }

    /// Returns the rest of the output: the pending samples, and silence until the delay has passed.
    pub fn finish(mut self) -> Result<Vec<f32>, String> {
        if let Some(ratio) = self.resampler.as_ref().map(Fft::resample_ratio) {
            let expected = ((ratio * self.taken as f64).ceil() as usize).saturating_sub(self.drained);
            let mut rest = std::mem::take(&mut self.pending);
            while self.made.len() < expected {
                self.transform(&rest)?;
                rest.clear();
            }
            self.made.truncate(expected);
            keep(self.rate, self.resampler);
        }
        Ok(self.made)
    }

    /// Resamples the input of one transform to 16 kHz; less input is padded with silence.
    fn transform(&mut self, samples: &[f32]) -> Result<(), String> {
        let Some(resampler) = &mut self.resampler else { return Ok(()) };
        let fail = |error: &dyn std::fmt::Display| format!("resampling from {} Hz failed: {error}", self.rate);
        let partial_len = (samples.len() < resampler.input_frames_next()).then_some(samples.len());
        let indexing = Indexing { input_offset: 0, output_offset: 0, active_channels_mask: None, partial_len };
        let longest = self.scratch.len();
        let input = InterleavedSlice::new(samples, 1, samples.len()).map_err(|error| fail(&error))?;
        let mut output = InterleavedSlice::new_mut(&mut self.scratch, 1, longest).map_err(|error| fail(&error))?;
        let (_, made) =
            resampler.process_into_buffer(&input, &mut output, Some(&indexing)).map_err(|error| fail(&error))?;
        let delayed = self.delay.min(made);
        self.delay -= delayed;
        append(&mut self.made, &self.scratch[delayed..made]);
        Ok(())
    }
}

/// Grows by a quarter, not by doubling: for hours of audio that saves a gigabyte.
fn append(samples: &mut Vec<f32>, more: &[f32]) {
    if samples.capacity() - samples.len() < more.len() {
        samples.reserve_exact(more.len().max(samples.len() / 4));
    }
    samples.extend_from_slice(more);
}

/// Returns this thread's resampler for a rate, in its initial state.
fn kept(rate: u32) -> Result<Fft<f32>, String> {
    let known = RESAMPLERS.with_borrow_mut(|kept| {
        let place = kept.iter().position(|(known, _)| *known == rate)?;
        Some(kept.remove(place).1)
    });
    match known {
        Some(mut resampler) => {
            resampler.reset();
            Ok(resampler)
        }
        None => resampler(rate),
    }
}

fn keep(rate: u32, resampler: Option<Fft<f32>>) {
    let Some(resampler) = resampler.filter(|_| chunk(rate) <= LONGEST) else { return };
    RESAMPLERS.with_borrow_mut(|kept| {
        kept.truncate(KEPT - 1);
        kept.insert(0, (rate, resampler));
    });
}

fn resampler(rate: u32) -> Result<Fft<f32>, String> {
    Fft::new_custom(
        rate as usize,
        SAMPLE_RATE as usize,
        chunk(rate) as usize,
        1,
        1,
        WindowFunction::BlackmanHarris2,
        FixedSync::Input,
    )
    .map_err(|error| format!("resampling from {rate} Hz cannot be prepared: {error}"))
}

/// Returns the input samples per transform: an even multiple of the ratio's terms, because the filter's delay is half a
/// transform and must be a whole number of samples.
fn chunk(rate: u32) -> u32 {
    let unit = rate / gcd(rate, SAMPLE_RATE);
    unit * MIN_CHUNK.div_ceil(unit).next_multiple_of(2)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
