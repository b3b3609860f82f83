//! An open audio file: its audio track, packet by packet.

use std::io::{ErrorKind, Read};
use std::path::Path;

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_ADPCM_IMA_WAV, CODEC_ID_ADPCM_MS, CODEC_ID_OPUS, CODEC_ID_PCM_F32LE, CODEC_ID_PCM_F64LE,
};
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::container::{Container, TELLING, is_text};
use super::opus::{OpusDecoder, pre_skip};
use super::wav::is_placeholder;
use super::{AudioError, Stored};

/// Length of the audio that is decoded before the first wanted sample if packets depend on earlier ones, in seconds.
/// Vorbis needs one packet (at most 8192 samples); MP3 may refer to 511 bytes back, which is half a second at 8 kbit/s.
const PREROLL: f64 = 1.0;

/// Most packets of padding at the end of an MP3: a tag has room for 4095 samples, and a packet has at least 576. What has more goes on
/// after the length in its tag, as two files do that were put together.
const MOST_PADDING: usize = 8;

/// An open file, its one audio track and the decoder for it.
pub(super) struct Source<'a> {
    pub path: &'a Path,
    reader: Box<dyn FormatReader + 'static>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    pub rate: u32,
    /// Number of samples in a tick of the packets' times, if it is not 1: in videos.
    pub per_tick: Option<f64>,
    /// Number of samples that the encoder puts before the recording and that the packets' times count.
    pub delay: u64,
    /// Number of samples before the recording that are still to be dropped. Decoders other than that of Opus drop them.
    delayed: u64,
    /// Number of samples per channel according to the header, without the delay, if it can be trusted.
    pub promised: Option<u64>,
    /// Whether packets decode independently and contain exactly the declared number of samples: WAV and FLAC.
    pub exact: bool,
    /// Whether the reader can seek to a sample. It cannot in blocks of samples (ADPCM), because it takes a sample for a
    /// block, nor where times are not counted in samples.
    seeks: bool,
    /// Whether samples are stored as floats, which have no maximum.
    pub is_float: bool,
    /// Packets in a row of which nothing is kept, because the tag of the MP3 counts them as padding; `None` in other formats.
    padding: Option<usize>,
    /// Whether the decoder drops the samples that packets mark as the encoder's delay and padding.
    pub trims: bool,
    interleaved: Vec<f32>,
}

impl<'a> Source<'a> {
    pub fn open(stored: &'a Stored) -> Result<Self, AudioError> {
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
        let decoder = match codec.codec {
            CODEC_ID_OPUS => {
                OpusDecoder::new(codec, !guessed).map(|decoder| Box::new(decoder) as Box<dyn AudioDecoder>)
            }
            _ => symphonia::default::get_codecs()
                .make_audio_decoder(codec, &AudioDecoderOptions::default().gapless(!guessed)),
        };
        let decoder = decoder.map_err(|error| unsupported(error.to_string()))?;
        let per_tick =
            track.time_base.map(|base| f64::from(rate) * f64::from(base.numer.get()) / f64::from(base.denom.get()));
        let per_tick = per_tick.filter(|samples| *samples != 1.0);
        // A Matroska file gives the length of its longest track. AAC without a container has no length: symphonia reckons one from
        // the first frames.
        let untold = guessed || format == "wave" && is_piped_wav(stored) || ["matroska", "aac"].contains(&format);
        let promised = match (per_tick, track.duration) {
            (Some(samples), Some(duration)) => Some((duration.get() as f64 * samples).round() as u64),
            _ => track.num_frames,
        };
        let delayed = if codec.codec == CODEC_ID_OPUS { pre_skip(codec) } else { 0 };
        // In Matroska files times begin with the recording.
        let delay = if format == "matroska" { 0 } else { delayed };
        let promised = promised.filter(|_| !untold).map(|promised| promised.saturating_sub(delay));
        let is_float = [CODEC_ID_PCM_F32LE, CODEC_ID_PCM_F64LE].contains(&codec.codec);
        let in_blocks = [CODEC_ID_ADPCM_MS, CODEC_ID_ADPCM_IMA_WAV].contains(&codec.codec);
        let padding = (format == "mp3" && !guessed).then_some(0);
        let (track, exact, trims) = (track.id, matches!(format, "wave" | "flac"), !guessed);
        let interleaved = Vec::new();
        let seeks = !in_blocks && per_tick.is_none();
        Ok(Self {
            path,
            reader,
            decoder,
            track,
            rate,
            per_tick,
            delay,
            delayed,
            promised,
            exact,
            seeks,
            is_float,
            padding,
            trims,
            interleaved,
        })
    }

    /// Seeks to sample `first` or to a sample before it. Returns the position, with the samples that were decoded on
    /// the way. Returns `None` if the audio can only be read from its beginning, for which it must be opened again.
    pub fn seek(&mut self, first: u64) -> Result<Option<(u64, Vec<f32>)>, AudioError> {
        // Packets count the delay, too.
        let first = first + self.delay;
        let preroll = if self.exact { 0 } else { (PREROLL * f64::from(self.rate)) as u64 };
        let target = first.saturating_sub(preroll);
        let Some(ts) = i64::try_from(target).ok().filter(|&ts| ts > 0) else { return Ok(Some((0, Vec::new()))) };
        if !self.seeks {
            return Ok(None);
        }
        let to = SeekTo::Timestamp { ts: Timestamp::new(ts), track_id: self.track };
        match self.reader.seek(SeekMode::Accurate, to) {
            Ok(seeked) => {
                self.decoder.reset();
                let position = u64::try_from(seeked.actual_ts.get()).unwrap_or(0);
                if self.exact {
                    return Ok(Some((position.min(first), Vec::new())));
                }
                self.delayed = 0;
                // None of the packets before the preroll is wanted, so that the position is beyond the delay.
                let found = self.preroll(first);
                Ok(found.and_then(|(position, samples)| Some((position.checked_sub(self.delay)?, samples))))
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
    pub fn next_packet(&mut self, reached: u64) -> Result<Option<Packet>, AudioError> {
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
    pub fn decode_packet(&mut self, reached: u64, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        samples.clear();
        let Some(packet) = self.next_packet(reached)? else { return Ok(false) };
        if let Some(padding) = &mut self.padding {
            // Symphonia marks all of it as trimmed, and leaves its duration as it is.
            let is_padding = packet.trim_end.get() > 0 && packet.trim_end >= packet.dur;
            *padding = if is_padding { *padding + 1 } else { 0 };
            if *padding > MOST_PADDING {
                let promised = self.promised.unwrap_or(reached) as f64 / f64::from(self.rate);
                return Err(AudioError::MoreThanPromised { path: self.path.into(), promised });
            }
        }
        match self.decoder.decode(&packet) {
            Ok(buffer) => {
                mix_down(&buffer, &mut self.interleaved, samples);
                let dropped = samples.len().min(usize::try_from(self.delayed).unwrap_or(usize::MAX));
                samples.drain(..dropped);
                self.delayed -= dropped as u64;
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

/// Returns whether the length in a WAV's header is only a placeholder.
fn is_piped_wav(stored: &Stored) -> bool {
    let mut head = [0; 8];
    let mut read = || stored.open().ok()?.read_exact(&mut head).ok();
    let size = read().map(|()| u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
    size.is_some_and(|size| is_placeholder(size) && stored.bytes().is_some_and(|bytes| bytes < u64::from(size)))
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
