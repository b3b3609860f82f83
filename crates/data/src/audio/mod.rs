//! Reading and writing of audio files. Every file becomes 16 kHz mono `f32`, the only form that the rest of the crate
//! handles.
//!
//! Reads WAV (8 to 32-bit integer, float, ADPCM), AIFF, CAF, FLAC, MP3, Ogg Vorbis, Opus, M4A (AAC-LC, ALAC), and the first
//! audio track of MP4, MOV, MKV and WebM videos with one of these codecs, of any sampling rate and number of channels (which
//! are averaged; Opus has two at most). The format is detected from the content, not from the file's name.

mod clipping;
mod container;
mod decode;
mod error;
mod folder;
mod full_scale;
mod live;
mod mp4;
mod opus;
mod patched;
mod resample;
mod source;
mod stored;
mod stream;
#[cfg(test)]
mod tests;
mod wav;

use std::path::Path;

pub use decode::Decoded;
pub(crate) use decode::{OVERSHOOT, ROUNDING};
pub use error::AudioError;
pub use folder::{EXTENSIONS, audio_files};
pub(crate) use folder::{files_below, has_audio_extension};
pub use full_scale::FloatRange;
pub use live::LiveAudio;
pub(crate) use resample::to_16k;
pub use stored::Stored;
pub use stream::AudioStream;

/// Sampling rate of all audio after decoding, in Hz.
pub const SAMPLE_RATE: u32 = 16_000;

/// Reads the whole file as 16 kHz mono samples with a full scale of `[-1, 1]`. Floats slightly beyond full scale are
/// kept; floats up to 32,768 or further are divided, as described at [`FloatRange`].
///
/// Fails if the file is missing, is not audio, is damaged or truncated, contains no samples, or contains NaN or
/// infinity. Also fails if it contains far more than its header declares, or more than
/// [`LONGEST_HOURS`](crate::limits::LONGEST_HOURS).
pub fn load(path: &Path) -> Result<Vec<f32>, AudioError> {
    load_segment(path, None, None)
}

/// Reads the part of the file from `start` to `end` in seconds, as [`load`] does; `None` means the file's own bound.
///
/// Nothing before `start` is decoded, except for the second that MP3 and Vorbis decoders need to synchronise. Fails as
/// [`load`] does, and if the segment is empty or lies outside the file. An `end` up to 10 ms after the end of the file
/// counts as a rounding error.
pub fn load_segment(path: &Path, start: Option<f64>, end: Option<f64>) -> Result<Vec<f32>, AudioError> {
    Stored::file(path).load(start, end)
}

/// Returns audio at 16 kHz as a WAV file of one channel and 16 bits; values outside `[-1, 1]` are clipped. Samples that are
/// no numbers become silence.
pub fn wav_bytes(samples: &[f32]) -> Vec<u8> {
    let length = u32::try_from(2 * samples.len()).unwrap_or(u32::MAX);
    let mut wav = Vec::with_capacity(44 + 2 * samples.len());
    wav.extend(b"RIFF");
    wav.extend(length.saturating_add(36).to_le_bytes());
    wav.extend(b"WAVEfmt ");
    wav.extend(16_u32.to_le_bytes());
    // Integers, in one channel.
    wav.extend([1_u16, 1].map(u16::to_le_bytes).concat());
    wav.extend([SAMPLE_RATE, 2 * SAMPLE_RATE].map(u32::to_le_bytes).concat());
    // Bytes and bits of a sample.
    wav.extend([2_u16, 16].map(u16::to_le_bytes).concat());
    wav.extend(b"data");
    wav.extend(length.to_le_bytes());
    wav.extend(samples.iter().flat_map(|sample| quantised(*sample).to_le_bytes()));
    wav
}

/// Returns a sample in 16 bits.
fn quantised(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round() as i16
}

/// Writes the WAV file that [`wav_bytes`] makes of 16 kHz mono samples.
///
/// The write is atomic. Fails on NaN or infinity, and if the file cannot be written.
pub fn write_wav(path: &Path, samples: &[f32]) -> Result<(), AudioError> {
    if let Some(at) = samples.iter().position(|sample| !sample.is_finite()) {
        return Err(AudioError::NotFinite { path: path.into(), at: at as f64 / f64::from(SAMPLE_RATE) });
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    std::fs::write(&partial, wav_bytes(samples)).and_then(|()| std::fs::rename(&partial, path)).map_err(|source| {
        // Best effort: the first error is more useful than a second one about the leftover file.
        let _ = std::fs::remove_file(&partial);
        AudioError::Write { path: path.into(), reason: source.to_string() }
    })
}
