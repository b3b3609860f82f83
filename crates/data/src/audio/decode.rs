use std::io::ErrorKind;
use std::path::Path;

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::units::Timestamp;

use super::{AudioError, Stored};

/// How far past the file's end a segment may reach, in seconds: one hop, which manifests round away.
pub(crate) const ROUNDING: f64 = 0.01;

/// How much is decoded before the first sample that is wanted where packets depend on earlier ones, in seconds. Vorbis
/// needs one packet (at most 8192 samples); MP3 may refer to 511 bytes back, which is half a second at 8 kbit/s.
const PREROLL: f64 = 1.0;

/// Mono audio at the file's own sampling rate.
pub(super) struct Clip {
    pub(super) samples: Vec<f32>,
    pub(super) rate: u32,
}

/// Decodes from `start` to `end` in seconds (to the end of the file if `None`); the bounds are known to be sane.
pub(super) fn decode(stored: &Stored, start: f64, end: Option<f64>) -> Result<Clip, AudioError> {
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

    // Samples `position .. position + samples.len()` of the file; what precedes `first` goes at the end.
    let (position, mut samples) = match source.seek(first)? {
        Some(begun) => begun,
        None => {
            source = Source::open(stored)?;
            (0, Vec::new())
        }
    };
    let wanted = last.map_or(u64::MAX, |last| last - position);
    while (samples.len() as u64) < wanted && source.append_packet(position, &mut samples)? {}

    let reached = position + samples.len() as u64;
    if reached == 0 {
        return Err(AudioError::Empty { path: path.into() });
    }
    let slack = (ROUNDING * rate) as u64;
    if first >= reached || last.is_some_and(|last| last > reached + slack) {
        return Err(outside(reached));
    }
    samples.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    samples.drain(..(first - position) as usize);
    Ok(Clip { samples, rate: source.rate })
}

/// How long the audio is by its header, in seconds, if the header tells.
pub(super) fn seconds(stored: &Stored) -> Result<Option<f64>, AudioError> {
    let source = Source::open(stored)?;
    Ok(source.promised.map(|frames| frames as f64 / f64::from(source.rate)))
}

/// An open file, its one audio track and the decoder for it.
struct Source<'a> {
    path: &'a Path,
    reader: Box<dyn FormatReader + 'static>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    rate: u32,
    /// Samples per channel according to the header, where it can be trusted.
    promised: Option<u64>,
    /// Whether packets decode independently and hold exactly the samples they say: WAV and FLAC.
    exact: bool,
    interleaved: Vec<f32>,
}

impl<'a> Source<'a> {
    fn open(stored: &'a Stored) -> Result<Self, AudioError> {
        let path = stored.name();
        let stream = MediaSourceStream::new(stored.open()?, Default::default());
        let unknown = |reason: String| AudioError::UnknownFormat { path: path.into(), reason };
        let reader = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, Default::default(), Default::default())
            .map_err(|error| unknown(error.to_string()))?;
        let track = reader.default_track(TrackType::Audio).ok_or_else(|| unknown("no audio track".into()))?;

        let unsupported = |reason: String| AudioError::Unsupported { path: path.into(), reason };
        let codec = track.codec_params.as_ref().and_then(|params| params.audio());
        let codec = codec.ok_or_else(|| unsupported("unknown codec".into()))?;
        let rate = codec.sample_rate.filter(|&rate| rate > 0);
        let rate = rate.ok_or_else(|| unsupported("the header gives no sampling rate".into()))?;
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(codec, &AudioDecoderOptions::default())
            .map_err(|error| unsupported(error.to_string()))?;

        let format = reader.format_info().short_name;
        // Without an encoder's tag (which also gives the delay) an MP3's length is a guess from its first frames.
        let promised = track.num_frames.filter(|_| format != "mp3" || track.delay.is_some());
        let (track, exact) = (track.id, matches!(format, "wave" | "flac"));
        Ok(Self { path, reader, decoder, track, rate, promised, exact, interleaved: Vec::new() })
    }

    /// Moves to sample `first` or to somewhere before it; says where, with what it had to decode on the way. None where
    /// the audio can only be read from its beginning, which needs opening it again.
    fn seek(&mut self, first: u64) -> Result<Option<(u64, Vec<f32>)>, AudioError> {
        let preroll = if self.exact { 0 } else { (PREROLL * f64::from(self.rate)) as u64 };
        let target = first.saturating_sub(preroll);
        let Some(ts) = i64::try_from(target).ok().filter(|&ts| ts > 0) else { return Ok(Some((0, Vec::new()))) };
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
            // MP3 and Ogg tell where they end only by failing.
            Err(_) => Ok(None),
        }
    }

    /// Decodes up to the packet with sample `first`, whose position its own time stamp gives, and keeps that packet
    /// alone: those before it only bring the decoder into the state it would be in. They may fail for what they lack.
    fn preroll(&mut self, first: u64) -> Option<(u64, Vec<f32>)> {
        loop {
            let packet = self.reader.next_packet().ok().flatten()?;
            if packet.track_id != self.track {
                continue;
            }
            let position = packet.pts.get();
            let decoded = self.decoder.decode(&packet);
            let next = position + i64::try_from(packet.dur.get()).ok()?;
            if next > i64::try_from(first).ok()? {
                let position = u64::try_from(position).ok().filter(|position| *position <= first)?;
                let mut samples = Vec::new();
                mix_down(&decoded.ok()?, &mut self.interleaved, &mut samples);
                return Some((position, samples));
            }
        }
    }

    /// Decodes one packet onto `samples`, which start at sample `position` of the file; false at the file's end.
    fn append_packet(&mut self, position: u64, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        let reached = position + samples.len() as u64;
        let packet = match self.reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return self.finish(reached),
            Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => return self.finish(reached),
            Err(error) => return Err(self.damaged(reached, &error)),
        };
        if packet.track_id != self.track {
            return Ok(true);
        }
        match self.decoder.decode(&packet) {
            Ok(buffer) => {
                mix_down(&buffer, &mut self.interleaved, samples);
                Ok(true)
            }
            // A packet that the end of the file cut through.
            Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => self.finish(reached),
            Err(error) => Err(self.damaged(reached, &error)),
        }
    }

    /// The file ended: was that all of it?
    ///
    /// The lossy formats count in packets and trim the encoder's delay, so there a tenth of a second is allowed.
    fn finish(&self, reached: u64) -> Result<bool, AudioError> {
        let slack = if self.exact { 0 } else { u64::from(self.rate) / 10 };
        match self.promised {
            Some(promised) if reached + slack < promised => Err(AudioError::Truncated {
                path: self.path.into(),
                at: reached as f64 / f64::from(self.rate),
                promised: promised as f64 / f64::from(self.rate),
            }),
            _ => Ok(false),
        }
    }

    fn damaged(&self, reached: u64, error: &Error) -> AudioError {
        let at = reached as f64 / f64::from(self.rate);
        AudioError::Damaged { path: self.path.into(), at, reason: error.to_string() }
    }
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
