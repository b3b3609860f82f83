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
        begin(bytes)?;
        let (mut format, mut long) = (None, None);
        loop {
            let (name, length) = chunk(bytes)?;
            match (&name, format) {
                (b"data", Some(format)) => {
                    let known = (length > 0 && !is_placeholder(length)).then_some(u64::from(length));
                    return Ok((format, known.or(long.map(|long: Long| long.data).filter(|length| *length > 0))));
                }
                (b"data", None) => return Err(refused("its samples come before their description")),
                (b"ds64", _) => long = Some(Long::read(bytes, length)?),
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
fn is_placeholder(length: u32) -> bool {
    length >= 0xFFFF_FF00 || (0x7FFF_0000..=0x8001_0000).contains(&length)
}

/// Lengths of RF64 and BW64, which are WAV for more than 4 GiB: they have 64 bits, in a chunk of their own, and placeholders where WAV
/// has them ([EBU Tech 3306](https://tech.ebu.ch/docs/tech/tech3306v1_0.pdf)).
#[derive(Clone, Copy, Debug)]
struct Long {
    /// Number of bytes of the samples.
    data: u64,
    /// Number of samples of each channel.
    samples: u64,
}

impl Long {
    /// Reads a chunk `ds64` of `length` bytes.
    fn read(bytes: &mut impl Read, length: u32) -> Result<Self, AudioError> {
        let mut lengths = [0; 24];
        let known = lengths.len().min(length as usize);
        bytes.read_exact(&mut lengths[..known]).map_err(cut_short)?;
        skip(bytes, length - known as u32)?;
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| lengths[at + byte]));
        Ok(Self { data: eight(8), samples: eight(16) })
    }
}

/// What the header of a WAV or AIFF file says that readers of files take wrongly.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Why the samples cannot be read although their encoding is known: they are padded. Where in its bytes a sample lies, the header does
    /// not tell: some programs put it at the upper end, some at the lower.
    pub padding: Option<String>,
    /// Whether the number of samples is not known: it is a placeholder, or the 0 that a recorder leaves that does not come to its end.
    pub is_open: bool,
    /// Places in the file, and the four bytes that have to be read there: lengths, and the name of RF64.
    pub patches: Vec<(u64, [u8; 4])>,
}

impl Header {
    /// Reads the header of a WAV or AIFF file of so many bytes; the default for any other.
    pub fn read(bytes: &mut impl Read, size: Option<u64>) -> Self {
        let (mut header, mut head) = (Self::default(), [0; 12]);
        if bytes.read_exact(&mut head).is_err() {
            return header;
        }
        match &head[..4] {
            b"FORM" => header.patches.extend(length_of_aiff(&head, bytes, size)),
            _ => {
                header.find(&mut head.as_slice().chain(bytes), size.unwrap_or(u64::MAX));
            }
        }
        header
    }

    /// Reads up to the samples; `None` where there are none.
    fn find(&mut self, bytes: &mut impl Read, size: u64) -> Option<()> {
        let (is_long, whole) = begin(bytes).ok()?;
        let mut place: u64 = 12;
        let (mut fact, mut long, mut lists) = (None, None, Vec::new());
        // A file of 2 GiB has such a length by chance.
        let is_placeholder =
            |length: u32, at: u64| is_placeholder(length) && (is_long || at + u64::from(length) > size);
        loop {
            let (name, length) = chunk(bytes).ok()?;
            place += 8;
            if &name == b"data" {
                let told = long.filter(|long: &Long| long.data > 0);
                let is_open = whole == 0 || is_placeholder(whole, 8);
                let is_empty = length == 0 && (is_open || u64::from(whole) + 8 <= place);
                let is_unknown = size > place && (is_empty || is_placeholder(length, place));
                let four =
                    |length: Option<u64>| length.and_then(|length| u32::try_from(length).ok()).unwrap_or(u32::MAX);
                let mut patch = |at: u64, length: Option<u64>| self.patches.push((at, four(length).to_le_bytes()));
                // One of the two alone is refused.
                if size > place && is_open || is_unknown {
                    patch(4, told.map(|long| (place - 8).saturating_add(long.data)));
                }
                if is_unknown {
                    patch(place - 4, told.map(|long| long.data));
                    fact.into_iter().for_each(|fact| patch(fact, told.map(|long| long.samples)));
                }
                self.is_open = !self.patches.is_empty() && told.is_none_or(|long| u32::try_from(long.data).is_err());
                if self.patches.is_empty() && !is_long && size > place {
                    self.agree(u64::from(whole) + 8, place, length, size);
                }
                self.patches.extend(lists.into_iter().map(|list| (list, *b"JUNK")));
                if is_long {
                    self.patches.push((0, *b"RIFF"));
                }
                return Some(());
            }
            if &name == b"ds64" {
                long = Some(Long::read(bytes, length).ok()?);
                place += u64::from(length) + u64::from(length % 2);
                continue;
            }
            // Titles and the like, with lengths of their own that may be wrong.
            if &name == b"LIST" {
                lists.push(place - 8);
            }
            // The number of samples, which only floats and compressed samples have.
            if &name == b"fact" {
                fact = Some(place);
            }
            let mut described = [0; 16];
            let known = if &name == b"fmt " && length >= 16 { described.len() as u32 } else { 0 };
            bytes.read_exact(&mut described[..known as usize]).ok()?;
            if known > 0 {
                self.padding = padded(&described);
            }
            skip(bytes, length - known).ok()?;
            place += u64::from(length) + u64::from(length % 2);
        }
    }

    /// Makes the length of the whole, which says that it ends at `end`, and that of the samples at `place` agree: other programs
    /// read the samples that are there, whatever the two say.
    fn agree(&mut self, end: u64, place: u64, length: u32, size: u64) {
        let samples_end = place + u64::from(length);
        let four = |length: u64| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        if samples_end > size && end == size {
            self.patches.push((place - 4, four(size - place)));
        } else if end < samples_end {
            self.patches.push((4, four(samples_end - 8)));
        }
    }
}

/// Returns what is to be read in the place of the length of an AIFF file's whole, if that does not agree with its samples or with the
/// file: the place and four bytes.
fn length_of_aiff(head: &[u8; 12], bytes: &mut impl Read, size: Option<u64>) -> Option<(u64, [u8; 4])> {
    let big = |bytes: [u8; 4]| u32::from_be_bytes(bytes);
    let end = u64::from(big([head[4], head[5], head[6], head[7]])) + 8;
    if !head[8..].starts_with(b"AIF") {
        return None;
    }
    let four = |end: u64| Some((4, u32::try_from(end.saturating_sub(8)).ok()?.to_be_bytes()));
    if size.is_some_and(|size| end > size) {
        return four(size?);
    }
    let mut place: u64 = 12;
    loop {
        let mut chunk = [0; 8];
        bytes.read_exact(&mut chunk).ok()?;
        let length = big([chunk[4], chunk[5], chunk[6], chunk[7]]);
        place += 8;
        if chunk.starts_with(b"SSND") {
            let samples_end = (place + u64::from(length)).min(size.unwrap_or(u64::MAX));
            return if end < samples_end { four(samples_end) } else { None };
        }
        skip(bytes, length).ok()?;
        place += u64::from(length) + u64::from(length % 2);
    }
}

/// Returns what a format description says about padded samples, if they are padded.
fn padded(described: &[u8]) -> Option<String> {
    let two = |at: usize| u16::from_le_bytes([described[at], described[at + 1]]);
    let (tag, channels, frame, bits) = (two(0), two(2), two(12), two(14));
    let is_padded = tag == PCM
        && bits.is_multiple_of(8)
        && [2, 3, 4, 8].iter().any(|bytes| *bytes > bits / 8 && channels.checked_mul(*bytes) == Some(frame));
    is_padded.then(|| format!("it has samples of {bits} bits in {} bytes each", frame / channels.max(1)))
}

/// Reads the first bytes of a WAV. Returns whether it is one of more than 4 GiB by its name, and the length of the rest.
fn begin(bytes: &mut impl Read) -> Result<(bool, u32), AudioError> {
    let mut riff = [0; 12];
    bytes.read_exact(&mut riff).map_err(cut_short)?;
    match &riff[8..] {
        b"WAVE" => Ok((&riff[..4] != b"RIFF", u32::from_le_bytes([riff[4], riff[5], riff[6], riff[7]]))),
        _ => Err(refused("it is not a WAVE file")),
    }
}

/// Reads the name and the length of a chunk.
fn chunk(bytes: &mut impl Read) -> Result<([u8; 4], u32), AudioError> {
    let (mut name, mut length) = ([0; 4], [0; 4]);
    bytes.read_exact(&mut name).map_err(cut_short)?;
    bytes.read_exact(&mut length).map_err(cut_short)?;
    Ok((name, u32::from_le_bytes(length)))
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
    if let Some(padded) = padded(&described) {
        return Err(refused(padded));
    }
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

    const FORMAT: &[u8] = b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0";

    #[test]
    fn lengths_that_are_not_known_are_found() {
        let unknown = |whole: u32, data: u32, more: usize| {
            let wav = [b"RIFF", &whole.to_le_bytes()[..], FORMAT, b"data", &data.to_le_bytes()].concat();
            let header = Header::read(&mut wav.as_slice(), Some(wav.len() as u64 + more as u64));
            assert!(
                header.patches.iter().all(|(_, bytes)| *bytes == [0xff; 4])
                    && header.is_open != header.patches.is_empty()
            );
            header.patches.into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert!(unknown(136, 100, 100).is_empty() && unknown(0, 0, 0).is_empty(), "whole, and without samples");
        assert!(unknown(60, 0, 24).is_empty(), "other chunks after no samples");
        for (whole, data) in
            [(0, 0), (36, 0), (u32::MAX, 0), (0, u32::MAX), (136, u32::MAX), (0x7fff_ffff, 0x7fff_ffdb)]
        {
            assert_eq!(unknown(whole, data, 100), [4, 40], "{whole} {data}");
        }
        assert_eq!(unknown(0, 100, 100), [4]);
        assert!(unknown(0x7fff_ffff, 0x7fff_ffdb, 0x7fff_ffdb).is_empty(), "a file of 2 GiB");
    }

    #[test]
    fn lengths_that_disagree_are_those_of_the_samples_that_are_there() {
        let patches = |whole: u32, data: u32| {
            let wav = [b"RIFF", &whole.to_le_bytes()[..], FORMAT, b"data", &data.to_le_bytes()].concat();
            let header = Header::read(&mut wav.as_slice(), Some(wav.len() as u64 + 100));
            assert!(!header.is_open);
            header.patches
        };
        let four = |length: u32| length.to_le_bytes();
        // 36 bytes of header are counted in the whole, and 100 of samples.
        assert!(patches(136, 100).is_empty() && patches(140, 100).is_empty());
        assert_eq!(patches(100, 100), [(4, four(136))]);
        assert_eq!(patches(135, 100), [(4, four(136))]);
        assert_eq!(patches(136, 102), [(40, four(100))]);
        let list = [b"RIFF", &148_u32.to_le_bytes()[..], FORMAT, b"LIST\x04\0\0\0INFOdata\x64\0\0\0"].concat();
        let header = Header::read(&mut list.as_slice(), Some(list.len() as u64 + 100));
        assert_eq!((header.is_open, header.patches), (false, vec![(36, *b"JUNK")]));
        let aiff = |form: u32, size: u64| {
            let head = [b"FORM", &form.to_be_bytes()[..], b"AIFFCOMM\0\0\0\x04....SSND\0\0\0\x64"].concat();
            Header::read(&mut head.as_slice(), Some(size)).patches
        };
        // 32 bytes of header, of which 8 are not counted, and 100 of samples.
        assert_eq!((aiff(124, 132), aiff(130, 140)), (vec![], vec![]));
        assert_eq!(aiff(100, 132), [(4, 124_u32.to_be_bytes())]);
        assert_eq!(aiff(200, 132), [(4, 124_u32.to_be_bytes())]);
    }

    #[test]
    fn lengths_of_64_bits_are_found() {
        let long = |data: u64, size: u64| {
            let lengths = [[0; 8], data.to_le_bytes(), (data / 2).to_le_bytes()].concat();
            let chunk = [b"ds64\x1c\0\0\0", lengths.as_slice(), &[0; 4]].concat();
            let wav = [b"RF64\xff\xff\xff\xffWAVE", chunk.as_slice(), &FORMAT[4..], b"data\xff\xff\xff\xff"].concat();
            let live = Format::read(&mut wav.as_slice()).expect("a format").1;
            (Header::read(&mut wav.as_slice(), Some(80 + size)), live)
        };
        // 100 bytes of samples, and another chunk of 20.
        let (header, live) = long(100, 120);
        let expected = [(4, 172_u32.to_le_bytes()), (76, 100_u32.to_le_bytes()), (0, *b"RIFF")];
        assert_eq!((header.patches.as_slice(), header.is_open, live), (expected.as_slice(), false, Some(100)));
        // Lengths that were never written, and samples of more than 4 GiB.
        for (data, size) in [(0, 120), (5 << 30, 5 << 30)] {
            let (header, live) = long(data, size);
            assert_eq!(header.patches, [(4, [0xff; 4]), (76, [0xff; 4]), (0, *b"RIFF")]);
            assert!(header.is_open && live.unwrap_or(0) == data);
        }
    }

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
