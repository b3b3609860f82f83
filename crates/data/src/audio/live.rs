//! Audio that comes while it is read: from a pipe, a sound card, a radio.

use super::resample::Resampling;
use super::{AudioError, SAMPLE_RATE};
use std::fmt::Display;
use std::io::{Chain, Cursor, ErrorKind, Read};
use std::path::PathBuf;

/// A stream of audio, brought to 16 kHz and one channel: WAV, or 16-bit samples alone, little-endian and of one channel. A WAV
/// header's promise of a length is ignored: who records does not know it yet.
///
/// ```
/// use undertone_data::audio::LiveAudio;
///
/// let samples: Vec<u8> = [0_i16, 16_384, -16_384].iter().flat_map(|sample| sample.to_le_bytes()).collect();
/// let mut live = LiveAudio::new(samples.as_slice(), 16_000)?;
/// assert_eq!(live.next(2)?, [0.0, 0.5]);
/// assert_eq!(live.next(2)?, [-0.5]);
/// assert!(live.next(2)?.is_empty());
/// # Ok::<(), undertone_data::audio::AudioError>(())
/// ```
pub struct LiveAudio<R> {
    bytes: Chain<Cursor<Vec<u8>>, R>,
    format: Format,
    /// None after the last sample.
    resampling: Option<Resampling>,
}

/// How samples are written.
#[derive(Clone, Copy, Debug)]
struct Format {
    channels: usize,
    rate: u32,
    sample: Sample,
}

/// One sample, in so many bits.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Unsigned8,
    Signed16,
    Signed24,
    Signed32,
    Float32,
}

const RIFF: &[u8] = b"RIFF";
/// The tags of integers and of floats, and the one that says that a longer description holds the tag.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;

impl<R: Read> LiveAudio<R> {
    /// Reads as much as tells what it is. `rate` is how many samples a second has of a stream that does not say so.
    ///
    /// # Errors
    /// When the system does not let it be read, or its samples are compressed.
    pub fn new(mut source: R, rate: u32) -> Result<Self, AudioError> {
        let mut first = Vec::new();
        source.by_ref().take(RIFF.len() as u64).read_to_end(&mut first).map_err(unread)?;
        let wav = first == RIFF;
        let mut bytes = Cursor::new(first).chain(source);
        let alone = Format { channels: 1, rate, sample: Sample::Signed16 };
        let format = if wav { read_header(&mut bytes)? } else { alone };
        let resampling = Resampling::begin(format.rate).map_err(refused)?;
        Ok(Self { bytes, format, resampling: Some(resampling) })
    }

    /// The next samples, about `most` of them, as soon as they are all there; at the end fewer, and at last none.
    ///
    /// # Errors
    /// When the system does not let it be read.
    pub fn next(&mut self, most: usize) -> Result<Vec<f32>, AudioError> {
        let Format { channels, rate, sample } = self.format;
        let frame = channels * sample.bytes();
        let wanted = frame * (most as u64 * u64::from(rate)).div_ceil(u64::from(SAMPLE_RATE)) as usize;
        while let Some(mut resampling) = self.resampling.take() {
            let mut bytes = Vec::with_capacity(wanted);
            self.bytes.by_ref().take(wanted as u64).read_to_end(&mut bytes).map_err(unread)?;
            // Half a frame at the end is none.
            let mean = |frame: &[u8]| {
                frame.chunks_exact(sample.bytes()).map(|bytes| sample.value(bytes)).sum::<f32>() / channels as f32
            };
            let samples: Vec<f32> = bytes.chunks_exact(frame).map(mean).collect();
            resampling.push(&samples).map_err(refused)?;
            if bytes.len() < wanted {
                return resampling.finish().map_err(refused);
            }
            let ready = resampling.drain();
            self.resampling = Some(resampling);
            if !ready.is_empty() {
                return Ok(ready);
            }
        }
        Ok(Vec::new())
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
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Unsigned8 => 1,
            Self::Signed16 => 2,
            Self::Signed24 => 3,
            Self::Signed32 | Self::Float32 => 4,
        }
    }

    /// From -1 to 1; a float that is no number is silence.
    fn value(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Self::Unsigned8, &[byte]) => (f32::from(byte) - 128.0) / 128.0,
            (Self::Signed16, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            (Self::Signed24, &[a, b, c]) => i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0,
            (Self::Signed32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0,
            (Self::Float32, &[a, b, c, d]) => {
                let value = f32::from_le_bytes([a, b, c, d]);
                if value.is_finite() { value.clamp(-1.0, 1.0) } else { 0.0 }
            }
            _ => 0.0,
        }
    }
}

/// Reads up to the first sample.
fn read_header(bytes: &mut impl Read) -> Result<Format, AudioError> {
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
            (b"data", Some(format)) => return Ok(format),
            (b"data", None) => return Err(refused("its samples come before their description")),
            (b"fmt ", _) => format = Some(described(bytes, length)?),
            _ => skip(bytes, length)?,
        }
    }
}

/// What a description says that is `length` bytes long.
fn described(bytes: &mut impl Read, length: u32) -> Result<Format, AudioError> {
    let mut described = [0; 26];
    let known = described.len().min(length as usize).max(16);
    bytes.read_exact(&mut described[..known]).map_err(cut_short)?;
    skip(bytes, length.saturating_sub(known as u32))?;
    let two = |at: usize| u16::from_le_bytes([described[at], described[at + 1]]);
    let rate = u32::from_le_bytes([described[4], described[5], described[6], described[7]]);
    // The longer description has the tag behind its own length, the bits that count, and the speakers.
    let tag = if two(0) == EXTENSIBLE { two(24) } else { two(0) };
    let (channels, bits) = (two(2), two(14));
    match Sample::of(tag, bits).filter(|_| channels > 0) {
        Some(sample) => Ok(Format { channels: channels.into(), rate, sample }),
        None => Err(refused(format!("it has {channels} channels of {bits} bits in the encoding {tag}"))),
    }
}

/// Chunks have an even length, whatever they say.
fn skip(bytes: &mut impl Read, length: u32) -> Result<(), AudioError> {
    let length = u64::from(length) + u64::from(length % 2);
    std::io::copy(&mut bytes.take(length), &mut std::io::sink()).map_err(unread)?;
    Ok(())
}

fn path() -> PathBuf {
    "standard input".into()
}

fn unread(source: std::io::Error) -> AudioError {
    AudioError::Read { path: path(), source }
}

fn cut_short(source: std::io::Error) -> AudioError {
    match source.kind() {
        ErrorKind::UnexpectedEof => AudioError::Empty { path: path() },
        _ => unread(source),
    }
}

fn refused(what: impl Display) -> AudioError {
    let reason = format!(
        "{what}, and what comes while it is read must be WAV with plain samples: `sox INPUT -r 16000 -b 16 -t wav -` makes that"
    );
    AudioError::Unsupported { path: path(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wav(channels: u16, rate: u32, bits: u16, samples: &[i16]) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let sample_format = hound::SampleFormat::Int;
        let spec = hound::WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format };
        let mut writer = hound::WavWriter::new(&mut bytes, spec).expect("a writer");
        samples.iter().for_each(|sample| writer.write_sample(*sample).expect("written"));
        writer.finalize().expect("whole");
        bytes.into_inner()
    }

    /// Gives a byte at a time, as a slow pipe does.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn channels_are_averaged_and_the_promised_length_ignored() {
        let mut bytes = wav(2, 16_000, 16, &[8192, 24_576, -8192, 0]);
        // What a recorder writes that does not know how long it will record.
        bytes[4..8].fill(0xff);
        let data = bytes.windows(4).position(|four| four == b"data").expect("a chunk");
        bytes[data + 4..data + 8].fill(0);
        let mut live = LiveAudio::new(Slow(&bytes), 8_000).expect("audio");
        assert_eq!(live.next(10).expect("samples"), [0.5, -0.125]);
    }

    #[test]
    fn what_is_compressed_is_refused_with_the_way_out() {
        let mut law = wav(1, 8000, 16, &[1]);
        law[20] = 7;
        for (bytes, culprit) in
            [(law, "the encoding 7"), (wav(1, 100, 16, &[1]), "100 Hz"), (b"RIFF\0\0\0\0AVI LIST".to_vec(), "no WAVE")]
        {
            let error = LiveAudio::new(bytes.as_slice(), 16_000).err().expect("refused").to_string();
            assert!(error.contains(culprit) && error.contains("sox"), "{error}");
        }
        assert!(LiveAudio::new(&b"RIFF"[..], 16_000).is_err(), "a header cut short");
    }

    #[test]
    fn every_width_of_a_sample_is_read() {
        for (sample, bytes, value) in [
            (Sample::Unsigned8, &[192][..], 0.5),
            (Sample::Signed16, &[0, 0x40], 0.5),
            (Sample::Signed24, &[0, 0, 0xc0], -0.5),
            (Sample::Signed32, &[0, 0, 0, 0x40], 0.5),
            (Sample::Float32, &0.25_f32.to_le_bytes(), 0.25),
            (Sample::Float32, &f32::NAN.to_le_bytes(), 0.0),
        ] {
            assert_eq!((sample.bytes(), sample.value(bytes)), (bytes.len(), value), "{sample:?}");
        }
    }

    #[test]
    fn other_rates_become_what_a_file_of_them_becomes() {
        let samples: Vec<i16> = (0..20_000).map(|i| ((f64::from(i) * 0.3).sin() * 9000.0) as i16).collect();
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        for rate in [8_000, 11_025, 48_000] {
            let whole: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
            let expected = super::super::resample::to_16k(whole, rate).expect("a rate");
            let mut live = LiveAudio::new(bytes.as_slice(), rate).expect("audio");
            let mut heard = Vec::new();
            loop {
                let block = live.next(1000).expect("samples");
                if block.is_empty() {
                    break;
                }
                heard.extend(block);
            }
            assert_eq!(heard, expected, "{rate}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_samples_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), wav: bool) {
            let bytes = if wav { [&b"RIFF\0\0\0\0WAVE"[..], &bytes].concat() } else { bytes };
            if let Ok(mut live) = LiveAudio::new(bytes.as_slice(), 16_000) {
                let read = live.next(1000).expect("samples");
                prop_assert!(read.iter().all(|sample| sample.abs() <= 2.0));
            }
        }
    }
}
