//! Audio that comes while it is read: from a pipe, a sound card, a radio.

use super::{AudioError, SAMPLE_RATE};
use std::io::{Chain, Cursor, ErrorKind, Read};
use std::path::PathBuf;

/// A stream of 16 kHz audio: WAV with 16-bit samples, whose channels are averaged, or such samples alone, little-endian and
/// of one channel. A WAV header's promise of a length is ignored: who records does not know it yet.
///
/// ```
/// use undertone_data::audio::LiveAudio;
///
/// let samples: Vec<u8> = [0_i16, 16_384, -16_384].iter().flat_map(|sample| sample.to_le_bytes()).collect();
/// let mut live = LiveAudio::new(samples.as_slice())?;
/// assert_eq!(live.next(2)?, [0.0, 0.5]);
/// assert_eq!(live.next(2)?, [-0.5]);
/// assert!(live.next(2)?.is_empty());
/// # Ok::<(), undertone_data::audio::AudioError>(())
/// ```
pub struct LiveAudio<R> {
    bytes: Chain<Cursor<Vec<u8>>, R>,
    channels: usize,
}

const RIFF: &[u8] = b"RIFF";
/// The tag of integer samples, and the one that says that a longer description holds the tag.
const PCM: [u16; 2] = [1, 0xfffe];

impl<R: Read> LiveAudio<R> {
    /// Reads as much as tells what it is.
    ///
    /// # Errors
    /// When the system does not let it be read, or it is WAV of another kind.
    pub fn new(mut source: R) -> Result<Self, AudioError> {
        let mut first = Vec::new();
        source.by_ref().take(RIFF.len() as u64).read_to_end(&mut first).map_err(unread)?;
        let wav = first == RIFF;
        let mut bytes = Cursor::new(first).chain(source);
        let channels = if wav { read_header(&mut bytes)? } else { 1 };
        Ok(Self { bytes, channels })
    }

    /// The next samples, up to `most` of them, as soon as they are all there; fewer, and at last none, at the end.
    ///
    /// # Errors
    /// When the system does not let it be read.
    pub fn next(&mut self, most: usize) -> Result<Vec<f32>, AudioError> {
        let frame = 2 * self.channels;
        let mut bytes = Vec::with_capacity(most * frame);
        self.bytes.by_ref().take((most * frame) as u64).read_to_end(&mut bytes).map_err(unread)?;
        let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0;
        // Half a frame at the end is none.
        let mean = |frame: &[u8]| frame.chunks_exact(2).map(sample).sum::<f32>() / self.channels as f32;
        Ok(bytes.chunks_exact(frame).map(mean).collect())
    }
}

/// Reads up to the first sample, and returns the number of channels.
fn read_header(bytes: &mut impl Read) -> Result<usize, AudioError> {
    let mut riff = [0; 12];
    bytes.read_exact(&mut riff).map_err(cut_short)?;
    if &riff[8..] != b"WAVE" {
        return Err(refused("it is no WAVE"));
    }
    let mut channels = None;
    loop {
        let mut chunk = [0; 8];
        bytes.read_exact(&mut chunk).map_err(cut_short)?;
        let (name, length) = (&chunk[..4], u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]));
        match (name, channels) {
            (b"data", Some(channels)) => return Ok(channels),
            (b"data", None) => return Err(refused("its samples come before their description")),
            (b"fmt ", _) => channels = Some(described(bytes, length)?),
            _ => skip(bytes, length)?,
        }
    }
}

/// The number of channels in a description that is `length` bytes long.
fn described(bytes: &mut impl Read, length: u32) -> Result<usize, AudioError> {
    let mut described = [0; 16];
    bytes.read_exact(&mut described).map_err(cut_short)?;
    skip(bytes, length.saturating_sub(16))?;
    let two = |at: usize| u16::from_le_bytes([described[at], described[at + 1]]);
    let rate = u32::from_le_bytes([described[4], described[5], described[6], described[7]]);
    let (tag, channels, bits) = (two(0), two(2), two(14));
    if !PCM.contains(&tag) || bits != 16 || rate != SAMPLE_RATE || channels == 0 {
        return Err(refused(&format!("it has {channels} channels of {bits} bits at {rate} Hz")));
    }
    Ok(channels.into())
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

fn refused(what: &str) -> AudioError {
    let reason = format!(
        "{what}, and what comes while it is read must have 16-bit samples at 16 kHz: `sox INPUT -r 16000 -b 16 -t wav -` makes that"
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
        let mut live = LiveAudio::new(Slow(&bytes)).expect("audio");
        assert_eq!(live.next(10).expect("samples"), [0.5, -0.125]);
    }

    #[test]
    fn what_would_have_to_be_converted_is_refused_with_the_way_out() {
        for (bytes, culprit) in [
            (wav(1, 8000, 16, &[1]), "8000 Hz"),
            (wav(1, 16_000, 8, &[1]), "8 bits"),
            (b"RIFF\0\0\0\0AVI LIST".to_vec(), "no WAVE"),
        ] {
            let error = LiveAudio::new(bytes.as_slice()).err().expect("refused").to_string();
            assert!(error.contains(culprit) && error.contains("sox"), "{error}");
        }
        assert!(LiveAudio::new(&b"RIFF"[..]).is_err(), "a header cut short");
    }

    proptest! {
        #[test]
        fn any_bytes_are_samples_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), wav: bool) {
            let bytes = if wav { [&b"RIFF\0\0\0\0WAVE"[..], &bytes].concat() } else { bytes };
            if let Ok(mut live) = LiveAudio::new(bytes.as_slice()) {
                let read = live.next(1000).expect("samples");
                prop_assert!(read.len() <= bytes.len() / 2 && read.iter().all(|sample| sample.abs() <= 1.0));
            }
        }
    }
}
