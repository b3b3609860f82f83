//! WAV that is read as it arrives: its header and its samples.

use super::AudioError;
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// Format of samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Number of channels, from 1 to [`MOST_CHANNELS`].
    pub channels: usize,
    pub rate: u32,
    pub sample: Sample,
}

/// Encoding of one sample, by its number of bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    Unsigned8,
    Signed16,
    Signed24,
    Signed32,
    Float32,
    Float64,
}

/// Maximum number of channels, the same as for files.
const MOST_CHANNELS: u16 = 26;
/// Tags of integers and of floats, and the tag of an extended description, which contains the actual tag.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;

impl Format {
    /// Format of raw samples of 16 bits and one channel, without a header.
    pub fn alone(rate: u32) -> Self {
        Self { channels: 1, rate, sample: Sample::Signed16 }
    }

    /// Reads a WAV's header, up to its first sample. Returns the number of bytes of its samples as well, unless the header has
    /// only a placeholder: other chunks may come after the samples.
    pub fn read(bytes: &mut impl Read) -> Result<(Self, Option<u64>), AudioError> {
        let mut riff = [0; 12];
        bytes.read_exact(&mut riff).map_err(cut_short)?;
        if &riff[8..] != b"WAVE" {
            return Err(refused("it is no WAVE"));
        }
        let mut format = None;
        loop {
            let mut chunk = [0; 8];
            bytes.read_exact(&mut chunk).map_err(cut_short)?;
            let (name, length) = (&chunk[..4], u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]));
            match (name, format) {
                (b"data", Some(format)) => {
                    return Ok((format, (length > 0 && !is_placeholder(length)).then_some(u64::from(length))));
                }
                (b"data", None) => return Err(refused("its samples come before their description")),
                (b"fmt ", _) => format = Some(described(bytes, length)?),
                _ => skip(bytes, length)?,
            }
        }
    }

    /// Returns the bytes of one sample of every channel.
    pub fn frame(&self) -> usize {
        self.channels * self.sample.bytes()
    }

    /// Returns the mean over the channels of each frame; an incomplete frame at the end is ignored.
    pub fn mixed(&self, bytes: &[u8]) -> Vec<f32> {
        let Self { channels, sample, .. } = self;
        let mean = |frame: &[u8]| {
            frame.chunks_exact(sample.bytes()).map(|bytes| sample.value(bytes)).sum::<f32>() / *channels as f32
        };
        bytes.chunks_exact(self.frame()).map(mean).collect()
    }
}

impl Sample {
    fn of(tag: u16, bits: u16) -> Option<Self> {
        match (tag, bits) {
            (PCM, 8) => Some(Self::Unsigned8),
            (PCM, 16) => Some(Self::Signed16),
            (PCM, 24) => Some(Self::Signed24),
            (PCM, 32) => Some(Self::Signed32),
            (FLOAT, 32) => Some(Self::Float32),
            (FLOAT, 64) => Some(Self::Float64),
            _ => None,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    fn bytes(self) -> usize {
        match self {
            Self::Unsigned8 => 1,
            Self::Signed16 => 2,
            Self::Signed24 => 3,
            Self::Signed32 | Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }

    /// Converts integers to -1 to 1, and returns floats unchanged.
    fn value(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Self::Unsigned8, &[byte]) => (f32::from(byte) - 128.0) / 128.0,
            (Self::Signed16, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            (Self::Signed24, &[a, b, c]) => i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0,
            (Self::Signed32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0,
            (Self::Float32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Self::Float64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => 0.0,
        }
    }
}

/// Whether a length in a header stands for one that is not known. A program that writes to a pipe cannot return to the header, so
/// it writes a very large number there, 2³² - 1 or about 2³¹.
pub(super) fn is_placeholder(length: u32) -> bool {
    length >= 0xFFFF_FF00 || (0x7FFF_0000..=0x8001_0000).contains(&length)
}

/// Reads a format description of `length` bytes.
fn described(bytes: &mut impl Read, length: u32) -> Result<Format, AudioError> {
    if length < 16 {
        return Err(refused(format!("the description of its samples has {length} bytes where it needs 16")));
    }
    let mut described = [0; 26];
    let known = described.len().min(length as usize);
    bytes.read_exact(&mut described[..known]).map_err(cut_short)?;
    skip(bytes, length - known as u32)?;
    let two = |at: usize| u16::from_le_bytes([described[at], described[at + 1]]);
    let rate = u32::from_le_bytes([described[4], described[5], described[6], described[7]]);
    // The extended description has the tag after its own length, the valid bits, and the speakers.
    let tag = if two(0) == EXTENSIBLE { two(24) } else { two(0) };
    let (channels, bits) = (two(2), two(14));
    match Sample::of(tag, bits).filter(|_| (1..=MOST_CHANNELS).contains(&channels)) {
        Some(sample) => Ok(Format { channels: channels.into(), rate, sample }),
        None => Err(refused(format!("it has {channels} channels of {bits} bits in the encoding {tag}"))),
    }
}

/// Skips a chunk; chunks have an even length, whatever they declare.
fn skip(bytes: &mut impl Read, length: u32) -> Result<(), AudioError> {
    let length = u64::from(length) + u64::from(length % 2);
    std::io::copy(&mut bytes.take(length), &mut std::io::sink()).map_err(unread)?;
    Ok(())
}

/// Returns the name of a stream in errors.
pub(super) fn path() -> PathBuf {
    "standard input".into()
}

pub(super) fn unread(source: std::io::Error) -> AudioError {
    AudioError::Read { path: path(), source }
}

pub(super) fn refused(what: impl Display) -> AudioError {
    let reason = format!(
        "{what}, and WAV that is read while it comes must have plain samples: `sox INPUT -r 16000 -b 16 -t wav -` makes that"
    );
    AudioError::Unsupported { path: path(), reason }
}

fn cut_short(source: std::io::Error) -> AudioError {
    match source.kind() {
        ErrorKind::UnexpectedEof => AudioError::Empty { path: path() },
        _ => unread(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_of_a_sample_is_read() {
        for (sample, bytes, value) in [
            (Sample::Unsigned8, &[192][..], 0.5),
            (Sample::Signed16, &[0, 0x40], 0.5),
            (Sample::Signed24, &[0, 0, 0xc0], -0.5),
            (Sample::Signed32, &[0, 0, 0, 0x40], 0.5),
            (Sample::Float32, &0.25_f32.to_le_bytes(), 0.25),
            (Sample::Float32, &1.25_f32.to_le_bytes(), 1.25),
            (Sample::Float64, &0.25_f64.to_le_bytes(), 0.25),
        ] {
            assert_eq!((sample.bytes(), sample.value(bytes)), (bytes.len(), value), "{sample:?}");
        }
    }
}
