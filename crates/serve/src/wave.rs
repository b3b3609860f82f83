//! Outline of a recording's waveform.

use undertone::cw::listen::marks;
use undertone::data::audio::{AudioError, SAMPLE_RATE, Stored};

/// Outline of a recording.
#[derive(Debug, Default, PartialEq)]
pub struct Outline {
    /// Length, in seconds.
    pub seconds: f64,
    /// Largest magnitude in each of up to [`COLUMNS`] parts of equal length.
    pub peaks: Vec<f32>,
}

/// Largest number of parts: more than the pixels that show them.
const COLUMNS: usize = 2000;

/// Samples of the shortest part: 5 ms.
const SHORTEST: usize = SAMPLE_RATE as usize / 200;

/// Returns the outline of a recording; `None` if it is longer than `most` seconds. No more of it is in memory than a
/// block.
pub fn outline(audio: &Stored, most: f64) -> Result<Option<Outline>, AudioError> {
    let (mut peaks, mut length, mut samples) = (vec![0.0_f32], SHORTEST, 0_usize);
    for block in audio.stream()? {
        for sample in block? {
            if peaks.len() * length == samples {
                if peaks.len() == COLUMNS {
                    peaks = peaks.chunks(2).map(|pair| pair.iter().copied().fold(0.0, f32::max)).collect();
                    length *= 2;
                }
                if samples > 0 {
                    peaks.push(0.0);
                }
            }
            let last = peaks.len() - 1;
            peaks[last] = peaks[last].max(sample.abs());
            samples += 1;
        }
        if samples as f64 > most * f64::from(SAMPLE_RATE) {
            return Ok(None);
        }
    }
    Ok(Some(Outline { seconds: samples as f64 / f64::from(SAMPLE_RATE), peaks }))
}

/// Returns when the key of a Morse recording was down, in seconds.
pub fn keying(audio: &Stored) -> Result<Vec<[f64; 2]>, AudioError> {
    let samples = audio.load(None, None)?;
    let seconds = |sample: usize| sample as f64 / f64::from(SAMPLE_RATE);
    Ok(marks(&samples).into_iter().map(|mark| [seconds(mark.start), seconds(mark.end)]).collect())
}
