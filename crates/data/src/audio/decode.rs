use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_ADPCM_IMA_WAV, CODEC_ID_ADPCM_MS, CODEC_ID_PCM_F32LE, CODEC_ID_PCM_F64LE,
};
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::container::{Container, TELLING, is_text};
use super::full_scale::{FloatRange, FullScale};
use super::resample::Resampling;
use super::{AudioError, SAMPLE_RATE, Stored};
use crate::guarded::guarded;
use crate::limits::LONGEST_HOURS;

/// Maximum distance of a segment's end from the file's end, in seconds: one hop, lost to rounding in manifests.
pub(crate) const ROUNDING: f64 = 0.01;

/// Length of the audio that is decoded before the first wanted sample if packets depend on earlier ones, in seconds.
/// Vorbis needs one packet (at most 8192 samples); MP3 may refer to 511 bytes back, which is half a second at 8 kbit/s.
const PREROLL: f64 = 1.0;

/// Length of audio that a file may contain beyond the length in its header, in seconds and as a share. Headers are
/// sometimes a little wrong; the limit prevents endless decoding if one is very wrong.
const SLACK: (f64, f64) = (10.0, 0.1);

/// Length that is decoded of a file without a known length before its packets are counted, in seconds. A file that is
/// too long is then refused at once, and a short file is read only once.
const UNCOUNTED: f64 = 60.0;

/// Decoded audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Samples at 16 kHz, one channel.
    pub samples: Vec<f32>,
    /// Range of the samples as stored, if they are floats.
    pub floats: Option<FloatRange>,
}

impl Stored {
    /// Decodes from `start` to `end` in seconds to 16 kHz mono samples; `None` means the audio's own bound.
    ///
    /// # Errors
    /// As [`load_segment`](super::load_segment).
    pub fn load(&self, start: Option<f64>, end: Option<f64>) -> Result<Vec<f32>, AudioError> {
        Ok(self.decode(start, end)?.samples)
    }

    /// As [`load`](Self::load), with the range of samples that are floats.
    ///
    /// # Errors
    /// As [`load_segment`](super::load_segment).
    pub fn decode(&self, start: Option<f64>, end: Option<f64>) -> Result<Decoded, AudioError> {
        let path = self.name();
        let from = start.unwrap_or(0.0);
        if !from.is_finite() || from < 0.0 || end.is_some_and(|end| !end.is_finite() || end <= from) {
            return Err(AudioError::BadSegment { path: path.into(), start: from, end });
        }
        decode(self, from, end, LONGEST_HOURS * 3600.0)
    }

    /// Returns the length by the header, in seconds, without decoding. None if the header does not give it, as in an
    /// MP3 without an encoder's tag.
    ///
    /// # Errors
    /// If the audio is missing, empty or not audio.
    pub fn seconds(&self) -> Result<Option<f64>, AudioError> {
        seconds(self)
    }

    /// Returns the length by the packets, in seconds: all of them are read, and nothing is decoded.
    ///
    /// # Errors
    /// If the audio is missing, empty, not audio, or damaged.
    pub fn counted_seconds(&self) -> Result<f64, AudioError> {
        counted_seconds(self)
    }
}

/// Decodes from `start` to `end` in seconds (to the end of the file if `None`) to 16 kHz mono; the bounds must be
/// valid. More than `longest` seconds are an error.
pub(super) fn decode(stored: &Stored, start: f64, end: Option<f64>, longest: f64) -> Result<Decoded, AudioError> {
    caught(stored, || decode_part(stored, start, end, longest))
}

/// Returns the length of the audio by its header, in seconds, if the header gives it.
fn seconds(stored: &Stored) -> Result<Option<f64>, AudioError> {
    caught(stored, || {
        let source = Source::open(stored)?;
        Ok(source.promised.map(|frames| frames as f64 / f64::from(source.rate)))
    })
}

/// Returns the length of the audio by its packets, in seconds: all of them are read, and nothing is decoded.
fn counted_seconds(stored: &Stored) -> Result<f64, AudioError> {
    caught(stored, || {
        let mut source = Source::open(stored)?;
        let (mut frames, mut before) = (0_u64, None);
        while let Some(packet) = source.next_packet(frames)? {
            let begins = u64::try_from(packet.pts.get()).unwrap_or(0);
            // If the length was guessed, packets beyond the guess are marked as padding; all packets have the same
            // size.
            frames = match before {
                Some(before) if !source.trims => begins.saturating_add(begins.saturating_sub(before)),
                _ => frames.saturating_add(packet.dur.get()),
            };
            before = Some(begins);
        }
        Ok(frames as f64 / f64::from(source.rate))
    })
}

/// Turns a panic in the decoder into an error about the file.
fn caught<T>(stored: &Stored, read: impl FnOnce() -> Result<T, AudioError>) -> Result<T, AudioError> {
    guarded(read).unwrap_or_else(|panic| {
        let reason = format!("the decoder gave up: {panic}");
        Err(AudioError::Unsupported { path: stored.name().into(), reason })
    })
}

fn decode_part(stored: &Stored, start: f64, end: Option<f64>, longest: f64) -> Result<Decoded, AudioError> {
    let path = stored.name();
    let mut source = Source::open(stored)?;
    let rate = f64::from(source.rate);
    let first = (start * rate).round() as u64;
    let last = end.map(|end| (end * rate).round() as u64);
    if last.is_some_and(|last| last <= first) {
        return Err(AudioError::BadSegment { path: path.into(), start, end });
    }
    if source.promised == Some(0) {
        return Err(AudioError::Empty { path: path.into() });
    }
    let outside =
        |frames: u64| AudioError::OutsideFile { path: path.into(), start, end, duration: frames as f64 / rate };
    if let Some(frames) = source.promised.filter(|&frames| source.exact && first >= frames) {
        return Err(outside(frames));
    }
    if let Some(frames) = source.promised.map(|frames| frames.min(last.unwrap_or(u64::MAX)))
        && frames.saturating_sub(first) as f64 / rate > longest
    {
        return Err(AudioError::TooLong { path: path.into(), hours: longest / 3600.0 });
    }

    // Samples before `first` are decoded and discarded.
    let mut cut = Cut::new(&source, first..last.unwrap_or(u64::MAX), longest)?;
    match source.seek(first)? {
        Some((position, begun)) => {
            cut.position = position;
            cut.push(&begun)?;
        }
        None => source = Source::open(stored)?,
    }
    let most = source.promised.map(|promised| promised as f64 * (1.0 + SLACK.1) + SLACK.0 * rate);
    let mut uncounted = source.promised.is_none() && last.is_none();
    let mut samples = Vec::new();
    while last.is_none_or(|last| cut.position < last) && source.decode_packet(cut.position, &mut samples)? {
        cut.push(&samples)?;
        if let (Some(most), Some(promised)) = (most, source.promised)
            && cut.position as f64 > most
        {
            return Err(AudioError::MoreThanPromised { path: path.into(), promised: promised as f64 / rate });
        }
        if uncounted && cut.position as f64 > UNCOUNTED * rate {
            uncounted = false;
            if counted_seconds(stored)? - start > longest {
                return Err(AudioError::TooLong { path: path.into(), hours: longest / 3600.0 });
            }
        }
    }

    let reached = cut.position;
    if reached == 0 {
        return Err(AudioError::Empty { path: path.into() });
    }
    let slack = (ROUNDING * rate) as u64;
    if first >= reached || last.is_some_and(|last| last > reached.saturating_add(slack)) {
        return Err(outside(reached));
    }
    cut.finish()
}

/// Conversion of a part of a file's samples to 16 kHz.
struct Cut<'a> {
    path: &'a Path,
    rate: u32,
    wanted: Range<u64>,
    /// Maximum length, in seconds.
    longest: f64,
    /// Index of the file's next sample.
    position: u64,
    /// Scaling of samples that are floats.
    full_scale: Option<FullScale>,
    resampling: Resampling,
}

impl<'a> Cut<'a> {
    fn new(source: &Source<'a>, wanted: Range<u64>, longest: f64) -> Result<Self, AudioError> {
        let Source { path, rate, is_float, .. } = *source;
        let full_scale = is_float.then(|| FullScale::new(path, rate));
        let unsupported = |reason| AudioError::Unsupported { path: path.into(), reason };
        let resampling = Resampling::begin(rate).map_err(unsupported)?;
        Ok(Self { path, rate, wanted, longest, position: 0, full_scale, resampling })
    }

    /// Takes the file's next samples, and keeps the wanted ones.
    fn push(&mut self, samples: &[f32]) -> Result<(), AudioError> {
        let place =
            |at: u64| usize::try_from(at.saturating_sub(self.position)).unwrap_or(usize::MAX).min(samples.len());
        let begin = place(self.wanted.start);
        let wanted = &samples[begin..place(self.wanted.end).max(begin)];
        if let Some(at) = wanted.iter().position(|sample| !sample.is_finite()) {
            let at = (self.position + (begin + at) as u64) as f64 / f64::from(self.rate);
            return Err(AudioError::NotFinite { path: self.path.into(), at });
        }
        let pushed = match &mut self.full_scale {
            Some(full_scale) => self.resampling.push(&full_scale.push(wanted.to_vec())),
            None => self.resampling.push(wanted),
        };
        pushed.map_err(|reason| self.unsupported(reason))?;
        self.position += samples.len() as u64;
        if self.resampling.len() as f64 > self.longest * f64::from(SAMPLE_RATE) {
            return Err(AudioError::TooLong { path: self.path.into(), hours: self.longest / 3600.0 });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Decoded, AudioError> {
        let path = self.path;
        let unsupported = |reason| AudioError::Unsupported { path: path.into(), reason };
        if let Some(full_scale) = &mut self.full_scale {
            self.resampling.push(&full_scale.finish()).map_err(unsupported)?;
        }
        let floats = self.full_scale.map(|full_scale| full_scale.range());
        Ok(Decoded { samples: self.resampling.finish().map_err(unsupported)?, floats })
    }

    fn unsupported(&self, reason: String) -> AudioError {
        AudioError::Unsupported { path: self.path.into(), reason }
    }
}

/// An open file, its one audio track and the decoder for it.
struct Source<'a> {
    path: &'a Path,
    reader: Box<dyn FormatReader + 'static>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    rate: u32,
    /// Number of samples per channel according to the header, if it can be trusted.
    promised: Option<u64>,
    /// Whether packets decode independently and contain exactly the declared number of samples: WAV and FLAC.
    exact: bool,
    /// Whether samples are stored in blocks (ADPCM). The reader cannot seek in them, because it takes a sample for a
    /// block.
    in_blocks: bool,
    /// Whether samples are stored as floats, which have no maximum.
    is_float: bool,
    /// Whether the decoder drops the samples that packets mark as the encoder's delay and padding.
    trims: bool,
    interleaved: Vec<f32>,
}

impl<'a> Source<'a> {
    fn open(stored: &'a Stored) -> Result<Self, AudioError> {
        let path = stored.name();
        let stream = MediaSourceStream::new(stored.open()?, Default::default());
        let unknown = |reason: String| AudioError::UnknownFormat { path: path.into(), reason };
        let reader = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, Default::default(), Default::default())
            .map_err(|error| unknown(unread_format(stored).unwrap_or_else(|| error.to_string())))?;
        let track = reader.default_track(TrackType::Audio).ok_or_else(|| unknown("no audio track".into()))?;

        let unsupported = |reason: String| AudioError::Unsupported { path: path.into(), reason };
        let codec = track.codec_params.as_ref().and_then(|params| params.audio());
        let codec = codec.ok_or_else(|| unsupported("unknown codec".into()))?;
        let rate = codec.sample_rate.filter(|&rate| rate > 0);
        let rate = rate.ok_or_else(|| unsupported("the header gives no sampling rate".into()))?;

        let format = reader.format_info().short_name;
        // Without an encoder's tag (which also gives the delay) an MP3's length is a guess from its first frames.
        // Packets beyond the guess are no padding.
        let guessed = format == "mp3" && track.delay.is_none();
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(codec, &AudioDecoderOptions::default().gapless(!guessed))
            .map_err(|error| unsupported(error.to_string()))?;
        let untold = guessed || format == "wave" && is_piped_wav(stored);
        let promised = track.num_frames.filter(|_| !untold);
        let is_float = [CODEC_ID_PCM_F32LE, CODEC_ID_PCM_F64LE].contains(&codec.codec);
        let in_blocks = [CODEC_ID_ADPCM_MS, CODEC_ID_ADPCM_IMA_WAV].contains(&codec.codec);
        let (track, exact, trims) = (track.id, matches!(format, "wave" | "flac"), !guessed);
        let interleaved = Vec::new();
        Ok(Self { path, reader, decoder, track, rate, promised, exact, in_blocks, is_float, trims, interleaved })
    }

    /// Seeks to sample `first` or to a sample before it. Returns the position, with the samples that were decoded on
    /// the way. Returns `None` if the audio can only be read from its beginning, for which it must be opened again.
    fn seek(&mut self, first: u64) -> Result<Option<(u64, Vec<f32>)>, AudioError> {
        let preroll = if self.exact { 0 } else { (PREROLL * f64::from(self.rate)) as u64 };
        let target = first.saturating_sub(preroll);
        let Some(ts) = i64::try_from(target).ok().filter(|&ts| ts > 0) else { return Ok(Some((0, Vec::new()))) };
        if self.in_blocks {
            return Ok(None);
        }
        let to = SeekTo::Timestamp { ts: Timestamp::new(ts), track_id: self.track };
        match self.reader.seek(SeekMode::Accurate, to) {
            Ok(seeked) => {
                self.decoder.reset();
                let position = u64::try_from(seeked.actual_ts.get()).unwrap_or(0);
                if self.exact { Ok(Some((position.min(first), Vec::new()))) } else { Ok(self.preroll(first)) }
            }
            Err(error) if self.exact => {
                let at = first as f64 / f64::from(self.rate);
                Err(AudioError::Damaged { path: self.path.into(), at, reason: error.to_string() })
            }
            // MP3 and Ogg report their end only as an error.
            Err(_) => Ok(None),
        }
    }

    /// Decodes up to the packet with sample `first`, whose position comes from its own time stamp, and keeps that
    /// packet alone. The packets before it only bring the decoder into the right state; they may fail because data
    /// before them are missing.
    fn preroll(&mut self, first: u64) -> Option<(u64, Vec<f32>)> {
        loop {
            let packet = self.reader.next_packet().ok().flatten()?;
            if packet.track_id != self.track {
                continue;
            }
            let position = packet.pts.get();
            let decoded = self.decoder.decode(&packet);
            let frames = decoded.as_ref().map_or(packet.dur.get(), |buffer| buffer.frames() as u64);
            let next = position.checked_add(i64::try_from(frames).ok()?)?;
            if next > i64::try_from(first).ok()? {
                let position = u64::try_from(position).ok().filter(|position| *position <= first)?;
                let mut samples = Vec::new();
                mix_down(&decoded.ok()?, &mut self.interleaved, &mut samples);
                return Some((position, samples));
            }
        }
    }

    /// Returns the next packet of the track; `reached` is the index of its first sample in the file.
    fn next_packet(&mut self, reached: u64) -> Result<Option<Packet>, AudioError> {
        loop {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return self.finish(reached).map(|()| None),
                Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return self.finish(reached).map(|()| None);
                }
                Err(error) => return Err(self.damaged(reached, &error)),
            }
        }
    }

    /// Decodes one packet into `samples`, whose first sample is sample `reached` of the file; returns false at the
    /// file's end.
    fn decode_packet(&mut self, reached: u64, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        samples.clear();
        let Some(packet) = self.next_packet(reached)? else { return Ok(false) };
        match self.decoder.decode(&packet) {
            Ok(buffer) => {
                mix_down(&buffer, &mut self.interleaved, samples);
                Ok(true)
            }
            // The end of the file truncated a packet.
            Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                self.finish(reached).map(|()| false)
            }
            Err(error) => Err(self.damaged(reached, &error)),
        }
    }

    /// Checks at the end of the file that it is complete.
    ///
    /// The lossy formats count in packets and trim the encoder's delay, so for them a difference of a tenth of a second
    /// is allowed.
    fn finish(&self, reached: u64) -> Result<(), AudioError> {
        let slack = if self.exact { 0 } else { u64::from(self.rate) / 10 };
        match self.promised {
            Some(promised) if reached + slack < promised => Err(AudioError::Truncated {
                path: self.path.into(),
                at: reached as f64 / f64::from(self.rate),
                promised: promised as f64 / f64::from(self.rate),
            }),
            _ => Ok(()),
        }
    }

    fn damaged(&self, reached: u64, error: &Error) -> AudioError {
        let at = reached as f64 / f64::from(self.rate);
        AudioError::Damaged { path: self.path.into(), at, reason: error.to_string() }
    }
}

/// Returns the name of an unsupported format, if the file begins with its signature.
fn unread_format(stored: &Stored) -> Option<String> {
    let mut first = Vec::new();
    stored.open().ok()?.take(TELLING as u64).read_to_end(&mut first).ok()?;
    match Container::of(&first) {
        Some(Container { name, is_read: false, .. }) => Some(format!("it is {name}")),
        None if is_text(&first) => Some("it is text".into()),
        _ => None,
    }
}

/// Returns whether the length in a WAV's header is only a placeholder. A program that writes to a pipe cannot return to
/// the header, so it writes a very large number there, 2³² - 1 or about 2³¹.
fn is_piped_wav(stored: &Stored) -> bool {
    let mut head = [0; 8];
    let mut read = || stored.open().ok()?.read_exact(&mut head).ok();
    let size = read().map(|()| u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
    size.is_some_and(|size| {
        let unknown = size >= 0xFFFF_FF00 || (0x7FFF_0000..=0x8001_0000).contains(&size);
        unknown && stored.bytes().is_some_and(|bytes| bytes < u64::from(size))
    })
}

/// Appends the mean over the channels.
fn mix_down(buffer: &GenericAudioBufferRef<'_>, interleaved: &mut Vec<f32>, samples: &mut Vec<f32>) {
    let channels = buffer.num_planes();
    buffer.copy_to_vec_interleaved(interleaved);
    match channels {
        0 => {}
        1 => samples.extend_from_slice(interleaved),
        _ => {
            samples.extend(interleaved.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32))
        }
    }
}
