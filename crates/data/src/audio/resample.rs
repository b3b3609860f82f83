use std::cell::RefCell;

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler, WindowFunction};

use super::SAMPLE_RATE;

/// At least so many input samples per transform, and so in the low-pass filter. With 2048 it is flat to 7.8 kHz from
/// 48 kHz and 140 dB down from 8 kHz on; a shorter one would eat into the top mel bins, a longer one ring further.
const MIN_CHUNK: u32 = 2048;

/// Resamplers a thread keeps: to make one takes as long as to use it on two seconds of audio. The 21 speeds of up to 10 %
/// fit, and some files' rates.
const KEPT: usize = 24;
/// One of a longer transform, for a rate that has little in common with 16 kHz, is not kept: this one is 200 kB.
const LONGEST: u32 = 4 * MIN_CHUNK;

thread_local! {
    /// This thread's, by rate, the last used first.
    static RESAMPLERS: RefCell<Vec<(u32, Fft<f32>)>> = const { RefCell::new(Vec::new()) };
}

/// Mono samples brought to 16 kHz: `ceil(len · 16000 / rate)` of them, without delay.
///
/// The error is a reason that fits after "holds audio that cannot be decoded".
pub(crate) fn to_16k(samples: Vec<f32>, rate: u32) -> Result<Vec<f32>, String> {
    if rate == SAMPLE_RATE {
        return Ok(samples);
    }
    let fail = |error: &dyn std::fmt::Display| format!("resampling from {rate} Hz failed: {error}");
    RESAMPLERS.with_borrow_mut(|kept| {
        let mut resampler = match kept.iter().position(|(known, _)| *known == rate) {
            Some(place) => kept.remove(place).1,
            None => resampler(rate)?,
        };
        let input = InterleavedSlice::new(&samples, 1, samples.len()).map_err(|error| fail(&error))?;
        let output = resampler.process_all(&input, samples.len(), None).map_err(|error| fail(&error))?;
        if chunk(rate) <= LONGEST {
            kept.truncate(KEPT - 1);
            kept.insert(0, (rate, resampler));
        }
        Ok(output.take_data())
    })
}

fn resampler(rate: u32) -> Result<Fft<f32>, String> {
    // The transform is as long as the rates' lowest common terms, so a header's nonsense rate must not set its size.
    if !(1_000..=768_000).contains(&rate) {
        return Err(format!("a sampling rate of {rate} Hz is outside 1 to 768 kHz"));
    }
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

/// Input samples per transform: an even multiple of the ratio's terms, for the filter's delay is half a transform, which must
/// be a whole sample.
fn chunk(rate: u32) -> u32 {
    let unit = rate / gcd(rate, SAMPLE_RATE);
    unit * MIN_CHUNK.div_ceil(unit).next_multiple_of(2)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
