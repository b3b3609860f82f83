//! Audio that is read as it arrives: from a pipe, a sound card, a radio.

use super::container::{Container, TELLING, is_text};
use super::full_scale::FullScale;
use super::resample::Resampling;
use super::wav::{Format, path, refused, unread};
use super::{AudioError, SAMPLE_RATE, Stored};
use std::io::{Chain, Cursor, Read, Take};
use std::sync::Arc;

/// A stream of audio, converted to 16 kHz and one channel. WAV, and raw 16-bit samples (little-endian, one channel),
/// are read as they arrive; the other formats are read once the stream has ended. A WAV header whose length is 0 or a
/// placeholder, because a recorder does not know it yet, stands for a stream of any length.
///
/// ```
/// use undertone_data::audio::LiveAudio;
///
/// let samples: Vec<u8> = [0_i16, 16_384, -16_384].iter().flat_map(|sample| sample.to_le_bytes()).collect();
/// let mut live = LiveAudio::new(samples.as_slice(), Some(16_000))?;
/// assert_eq!(live.next(2)?, [0.0, 0.5]);
/// assert_eq!(live.next(2)?, [-0.5]);
/// assert!(live.next(2)?.is_empty());
/// # Ok::<(), undertone_data::audio::AudioError>(())
/// ```
pub struct LiveAudio<R>(Source<R>);

enum Source<R> {
    Coming(Box<Coming<R>>),
    /// All samples of a stream that was read as a whole.
    Whole(std::vec::IntoIter<f32>),
}

/// Samples that are read as they arrive.
struct Coming<R> {
    bytes: Take<Chain<Cursor<Vec<u8>>, R>>,
    format: Format,
    /// Whether the header tells how long the stream is.
    has_length: bool,
    /// Number of frames read so far.
    frames: u64,
    /// Scaling of samples that are floats.
    full_scale: Option<FullScale>,
    /// None after the last sample.
    resampling: Option<Resampling>,
}

/// Maximum number of bytes of a stream that is read as a whole: eight hours of the largest of such files.
const MOST_BYTES: u64 = 1 << 32;

impl<R: Read> LiveAudio<R> {
    /// Reads enough to detect the format, or the whole stream if its format cannot be read as it arrives. `rate` is the
    /// number of samples per second of a stream without a header; without it there has to be a header.
    ///
    /// # Errors
    /// If the stream cannot be read; if it has no known format or is not audio, is compressed WAV, or is damaged; and
    /// if a `rate` is given for a stream with a header.
    pub fn new(mut source: R, rate: Option<u32>) -> Result<Self, AudioError> {
        let mut first = Vec::new();
        source.by_ref().take(TELLING as u64).read_to_end(&mut first).map_err(unread)?;
        let (container, text) = (Container::of(&first), is_text(&first));
        let empty = first.is_empty();
        let mut bytes = Cursor::new(first).chain(source);
        let unknown = |reason: &str| AudioError::UnknownFormat { path: path(), reason: reason.into() };
        let source = match (container, rate) {
            _ if empty => return Err(AudioError::Empty { path: path() }),
            (Some(Container { name, is_certain: true, .. }), Some(_)) => {
                return Err(AudioError::OwnRate { path: path(), format: name });
            }
            (Some(Container { name, is_read: false, .. }), _) => return Err(unknown(&format!("it is {name}"))),
            (Some(Container::WAV), None) => {
                let (format, length) = Format::read(&mut bytes)?;
                Source::Coming(Box::new(Coming::new(bytes, format, length)?))
            }
            (Some(_), None) => Source::Whole(whole(bytes)?.into_iter()),
            _ if text => return Err(unknown("it is text")),
            (_, Some(rate)) => Source::Coming(Box::new(Coming::new(bytes, Format::alone(rate), None)?)),
            (None, None) => return Err(AudioError::NoHeader { path: path() }),
        };
        Ok(Self(source))
    }

    /// Returns the next samples, about `most` of them, as soon as all of them have arrived; at the end fewer, and
    /// finally none.
    ///
    /// # Errors
    /// If the stream cannot be read, or a sample is not a finite number.
    pub fn next(&mut self, most: usize) -> Result<Vec<f32>, AudioError> {
        match &mut self.0 {
            Source::Coming(coming) => coming.next(most),
            Source::Whole(samples) => Ok(samples.take(most.max(1)).collect()),
        }
    }
}

impl<R: Read> Coming<R> {
    /// `length` is the number of bytes of the samples, if the header has it.
    fn new(bytes: Chain<Cursor<Vec<u8>>, R>, format: Format, length: Option<u64>) -> Result<Self, AudioError> {
        let has_length = length.is_some();
        let bytes = bytes.take(length.unwrap_or(u64::MAX));
        let resampling = Some(Resampling::begin(format.rate).map_err(refused)?);
        let full_scale = format.sample.is_float().then(|| FullScale::new(&path(), format.rate));
        Ok(Self { bytes, format, has_length, frames: 0, full_scale, resampling })
    }

    fn next(&mut self, most: usize) -> Result<Vec<f32>, AudioError> {
        let rate = u64::from(self.format.rate);
        let frames = (most.max(1) as u64).saturating_mul(rate).div_ceil(u64::from(SAMPLE_RATE));
        let wanted = frames.saturating_mul(self.format.frame() as u64);
        while let Some(mut resampling) = self.resampling.take() {
            let mut bytes = Vec::new();
            self.bytes.by_ref().take(wanted).read_to_end(&mut bytes).map_err(unread)?;
            let ended = (bytes.len() as u64) < wanted;
            let samples = self.scaled(self.format.mixed(&bytes), ended)?;
            resampling.push(&samples).map_err(refused)?;
            if ended {
                if let Some(missing) = self.missing_s() {
                    tracing::warn!(
                        "the stream ends {missing:.2} s before the end that its header tells: it was cut short"
                    );
                }
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

    /// Returns how much earlier a stream has ended than its header tells, in seconds; `None` if it has not.
    fn missing_s(&self) -> Option<f64> {
        let missing = self.bytes.limit() / self.format.frame() as u64;
        (self.has_length && missing > 0).then(|| missing as f64 / f64::from(self.format.rate))
    }

    /// Returns samples at full scale, as far as that is known.
    fn scaled(&mut self, samples: Vec<f32>, ended: bool) -> Result<Vec<f32>, AudioError> {
        let Some(full_scale) = &mut self.full_scale else { return Ok(samples) };
        if let Some(at) = samples.iter().position(|sample| !sample.is_finite()) {
            let at = (self.frames + at as u64) as f64 / f64::from(self.format.rate);
            return Err(AudioError::NotFinite { path: path(), at });
        }
        self.frames += samples.len() as u64;
        let mut scaled = full_scale.push(samples);
        if ended {
            scaled.extend(full_scale.finish());
        }
        Ok(scaled)
    }
}

/// Reads a stream that has to be complete before it is decoded.
fn whole(bytes: impl Read) -> Result<Vec<f32>, AudioError> {
    let mut all = Vec::new();
    bytes.take(MOST_BYTES).read_to_end(&mut all).map_err(unread)?;
    Stored::memory(path(), Arc::new(all)).load(None, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{float_wav, wav};
    use proptest::prelude::*;

    /// Returns all samples of a stream, in blocks of `most`.
    fn heard(bytes: impl Read, rate: Option<u32>, most: usize) -> Result<Vec<f32>, AudioError> {
        let mut live = LiveAudio::new(bytes, rate)?;
        let mut heard = Vec::new();
        loop {
            let block = live.next(most)?;
            if block.is_empty() {
                return Ok(heard);
            }
            heard.extend(block);
        }
    }

    fn as_file(bytes: &[u8]) -> Result<Vec<f32>, AudioError> {
        Stored::memory("file".into(), Arc::new(bytes.to_vec())).load(None, None)
    }

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(crate::testing::fixture(name)).expect("a fixture")
    }

    /// Returns a byte at a time, as a slow pipe does.
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
        // Written by a recorder that does not know how long it will record.
        bytes[4..8].fill(0xff);
        let data = bytes.windows(4).position(|four| four == b"data").expect("a chunk");
        bytes[data + 4..data + 8].fill(0);
        let mut live = LiveAudio::new(Slow(&bytes), None).expect("audio");
        assert_eq!(live.next(10).expect("samples"), [0.5, -0.125]);
    }

    #[test]
    fn a_stream_that_is_cut_short_is_told_from_a_whole_one() {
        let whole = wav(2, 16_000, 16, &[8192; 64_000]);
        let missing = |bytes: &[u8]| {
            let mut live = LiveAudio::new(bytes, None).expect("audio");
            while !live.next(1000).expect("samples").is_empty() {}
            match live.0 {
                Source::Coming(coming) => coming.missing_s(),
                Source::Whole(_) => None,
            }
        };
        assert_eq!(missing(&whole), None);
        assert_eq!(missing(&whole[..whole.len() - 64_000]), Some(1.0));
        let mut endless = whole.clone();
        let data = endless.windows(4).position(|four| four == b"data").expect("a chunk");
        endless[data + 4..data + 8].fill(0xff);
        assert_eq!(missing(&endless), None);
    }

    #[test]
    fn what_comes_after_the_samples_is_none_of_them() {
        let plain = wav(1, 16_000, 16, &[8192; 40]);
        // As editors write them: names, artists, markers.
        let tagged = [&plain[..], b"LIST\x08\0\0\0INFOISFT"].concat();
        assert_eq!(heard(Slow(&tagged), None, 7).expect("audio"), vec![0.25; 40]);
    }

    #[test]
    fn what_is_compressed_is_refused_with_the_way_out() {
        let mut law = wav(1, 8000, 16, &[1]);
        law[20] = 7;
        for (bytes, culprit) in [
            (law, "the encoding 7"),
            (wav(1, 100, 16, &[1]), "100 Hz"),
            (b"RIFF\0\0\0\0AVI LIST".to_vec(), "not a WAVE"),
        ] {
            let error = LiveAudio::new(bytes.as_slice(), None).err().expect("refused").to_string();
            assert!(error.contains(culprit) && error.contains("sox"), "{error}");
        }
        assert!(LiveAudio::new(&b"RIFF"[..], None).is_err(), "a header cut short");
    }

    #[test]
    fn a_header_of_nonsense_is_refused_before_anything_is_held_for_it() {
        let good = wav(1, 16_000, 16, &[1; 50]);
        let changed = |at: usize, bytes: &[u8]| {
            let mut wav = good.clone();
            wav[at..at + bytes.len()].copy_from_slice(bytes);
            wav
        };
        for (bytes, culprit) in [
            (changed(22, &u16::MAX.to_le_bytes()), "65535 channels"),
            (changed(22, &[0, 0]), "0 channels"),
            (changed(24, &[0; 4]), "0 Hz"),
            (changed(24, &4_000_000_000_u32.to_le_bytes()), "4000000000 Hz"),
            (changed(34, &[7, 0]), "7 bits"),
            (changed(16, &[4, 0, 0, 0]), "4 bytes"),
        ] {
            let error = heard(bytes.as_slice(), None, 4_000).expect_err(culprit).to_string();
            assert!(error.contains(culprit), "{error}");
        }
        // 24 bits in 4 bytes: which of them are the sample, the header does not tell.
        let mut padded = wav(1, 16_000, 24, &[1; 50]);
        padded[20..22].copy_from_slice(&[1, 0]);
        padded[32..34].copy_from_slice(&[4, 0]);
        padded[34..36].copy_from_slice(&[24, 0]);
        for error in [heard(padded.as_slice(), None, 10), as_file(&padded)] {
            let error = error.expect_err("refused").to_string();
            assert!(error.contains("24 bits in 4 bytes"), "{error}");
        }
        // Any other frame size in the header is ignored: it follows from the width of the samples.
        let odd = changed(32, &[0xff, 0xff]);
        assert_eq!(heard(odd.as_slice(), None, 10).expect("audio"), heard(good.as_slice(), None, 10).expect("audio"));
        assert!(LiveAudio::new(changed(16, &[0xff; 4]).as_slice(), None).is_err(), "a description of 4 GB");
    }

    #[test]
    fn files_that_are_piped_in_are_what_they_are_as_files() {
        for name in ["tone.wav", "tone.flac", "tone.mp3", "tone.ogg"] {
            let bytes = fixture(name);
            assert_eq!(heard(Slow(&bytes), None, 700).expect(name), as_file(&bytes).expect(name), "{name}");
            if name != "tone.mp3" || bytes.starts_with(b"ID3") {
                let error = LiveAudio::new(bytes.as_slice(), Some(16_000)).err().expect("refused").to_string();
                assert!(error.contains("leave out `--rate`"), "{name}: {error}");
            }
        }
        let flac = fixture("tone.flac");
        assert!(matches!(heard(&flac[..flac.len() / 2], None, 700), Err(AudioError::Truncated { .. })));
    }

    #[test]
    fn what_is_no_audio_is_refused() {
        let text = b"root:x:0:0:root:/root:/bin/bash\n".repeat(9);
        let samples: Vec<u8> = (0..500_i16).flat_map(|n| (n * 7).to_le_bytes()).collect();
        let amr = [b"#!AMR\n".to_vec(), vec![0; 100]].concat();
        for (bytes, rate, culprit) in [
            (text.clone(), None, "it is text"),
            (text, Some(8_000), "it is text"),
            (samples, None, "`--rate 16000`"),
            (amr, None, "it is AMR"),
            ([b"RF64\xff\xff\xff\xffWAVEds64".to_vec(), vec![0; 100]].concat(), None, "no audio"),
            ([b"caff\0\x01\0\0desc".to_vec(), vec![0; 100]].concat(), None, "caf: "),
            ([b"riff\x2e\x91\xcf\x11".to_vec(), vec![0; 100]].concat(), None, "it is Wave64"),
            (Vec::new(), None, "no audio"),
            (Vec::new(), Some(8_000), "no audio"),
        ] {
            let error = LiveAudio::new(bytes.as_slice(), rate).err().expect(culprit).to_string();
            assert!(error.contains(culprit) && error.contains("standard input"), "{error}");
        }
    }

    #[test]
    fn floats_beyond_full_scale_are_what_they_are_as_files() {
        let tone = |size: f32| -> Vec<f32> { (0..40_000).map(|n| size * (n as f32 * 0.2).sin()).collect() };
        for (rate, size) in [(16_000, 0.5), (16_000, 2.0), (44_100, 2.0), (16_000, 20_000.0), (44_100, 32_000.0)] {
            let bytes = float_wav(1, rate, &tone(size));
            let file = as_file(&bytes).expect("audio");
            assert_eq!(heard(Slow(&bytes), None, 900).expect("audio"), file, "{size}");
            let loudest = file.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
            let expected = if size > 8.0 { size / 32_768.0 } else { size };
            assert!((loudest / expected - 1.0).abs() < 0.01, "{size}: {loudest}");
        }
        for value in [f32::NAN, f32::INFINITY] {
            let mut samples = tone(0.5);
            samples[16_000] = value;
            let bytes = float_wav(1, 16_000, &samples);
            for read in [heard(bytes.as_slice(), None, 900), as_file(&bytes)] {
                assert!(matches!(read, Err(AudioError::NotFinite { at, .. }) if at == 1.0), "{value}");
            }
        }
    }

    #[test]
    fn other_rates_become_what_a_file_of_them_becomes() {
        let samples: Vec<i16> = (0..20_000).map(|i| ((f64::from(i) * 0.3).sin() * 9000.0) as i16).collect();
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        for rate in [8_000, 11_025, 48_000] {
            let whole: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
            let expected = super::super::resample::to_16k(whole, rate).expect("a rate");
            assert_eq!(heard(bytes.as_slice(), Some(rate), 1000).expect("audio"), expected, "{rate}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_samples_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            header in prop::sample::select(vec!["", "RIFF\0\0\0\0WAVE", "RIFF\0\0\0\0WAVEfmt \x10\0\0\0", "fLaC", "OggS", "ID3"]),
            rate in prop::option::of(prop::sample::select(vec![8_000_u32, 16_000])),
        ) {
            let bytes = [header.as_bytes(), &bytes].concat();
            if let Ok(read) = heard(bytes.as_slice(), rate, 1000) {
                prop_assert!(read.iter().all(|sample| sample.is_finite()));
            }
        }
    }
}
