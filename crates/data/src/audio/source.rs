//! An open audio file: its audio track, packet by packet.

use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use symphonia::core::audio::{Channels, GenericAudioBufferRef};
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_ADPCM_IMA_WAV, CODEC_ID_ADPCM_MS, CODEC_ID_OPUS, CODEC_ID_PCM_F32LE, CODEC_ID_PCM_F64LE,
};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, Track, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::container::{Container, TELLING, is_text};
use super::mp4::{self, Timing};
use super::opus::{OpusDecoder, RATE as OPUS_RATE, pre_skip};
use super::patched::Patched;
use super::wav::Header;
use super::{AudioError, Stored};

/// Length of the audio that is decoded before the first wanted sample if packets depend on earlier ones, in seconds.
/// Vorbis needs one packet (at most 8192 samples); MP3 may refer to 511 bytes back, which is half a second at 8 kbit/s.
const PREROLL: f64 = 1.0;

/// Size of the largest page of Ogg, in bytes.
const LARGEST_PAGE: u64 = 65_307;

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
    /// Channel that is read; the mean of all if there is none.
    channel: Option<usize>,
    interleaved: Vec<f32>,
}

impl<'a> Source<'a> {
    pub fn open(stored: &'a Stored) -> Result<Self, AudioError> {
        let path = stored.name();
        let unknown = |reason: String| AudioError::UnknownFormat { path: path.into(), reason: explained(reason) };
        // A WavPack file has the header of the WAV that it was made of, which symphonia would find and believe.
        if let Some(reason) = unread_format(stored) {
            return Err(unknown(reason));
        }
        let header = Header::read(&mut BufReader::with_capacity(TELLING, stored.open()?), stored.bytes());
        let file = Patched { file: stored.open()?, position: 0, patches: header.patches };
        let stream = MediaSourceStream::new(Box::new(file), Default::default());
        let reader = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, Default::default(), Default::default())
            .map_err(|error| unknown(error.to_string()))?;
        let track = reader.default_track(TrackType::Audio).ok_or_else(|| unknown("no audio track".into()))?;

        let unsupported = |reason: String| AudioError::Unsupported { path: path.into(), reason: explained(reason) };
        let codec = codec_of(track).map_err(unsupported)?;
        let channels = codec.channels.as_ref().map_or(1, Channels::count);
        if let Some(channel) = stored.channel().filter(|channel| channels > 1 && *channel >= channels) {
            return Err(unsupported(format!("it has {channels} channels, counted from 0, and no channel {channel}")));
        }
        // Opus is decoded at 48 kHz; Matroska may give the rate of what was encoded.
        let rate = if codec.codec == CODEC_ID_OPUS { Some(OPUS_RATE) } else { codec.sample_rate };
        let rate = rate.filter(|&rate| rate > 0);
        let rate = rate.ok_or_else(|| unsupported("the header gives no sampling rate".into()))?;

        let format = reader.format_info().short_name;
        if let Some(padded) = header.padding.filter(|_| format == "wave") {
            return Err(unsupported(padded));
        }
        // Without an encoder's tag (which also gives the delay) an MP3's length is a guess from its first frames.
        // Packets beyond the guess are no padding.
        let guessed = format == "mp3" && track.delay.is_none();
        let decoder = decoder_of(codec, !guessed).map_err(unsupported)?;
        let per_tick =
            track.time_base.map(|base| f64::from(rate) * f64::from(base.numer.get()) / f64::from(base.denom.get()));
        let per_tick = per_tick.filter(|samples| *samples != 1.0);
        let timing = if format == "isomp4" { mp4::timing(&mut stored.open()?) } else { Timing::default() };
        // A Matroska file gives the length of its longest track. AAC without a container has no length: symphonia reckons one from
        // the first frames.
        let untold = guessed
            || timing.is_fragmented
            || header.is_open
            || ["matroska", "aac"].contains(&format)
            || format == "ogg" && ends_in_other_stream(stored, track.id);
        let promised = match (per_tick, track.duration) {
            (Some(samples), Some(duration)) => Some((duration.get() as f64 * samples).round() as u64),
            _ => track.num_frames,
        };
        let delayed = match codec.codec {
            CODEC_ID_OPUS => pre_skip(codec),
            _ => (timing.delay * f64::from(rate)).round() as u64,
        };
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
            channel: stored.channel(),
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
                mix_down(&decoded.ok()?, self.channel, &mut self.interleaved, &mut samples);
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
                Err(Error::ResetRequired) => self.continue_in_next()?,
                Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return self.finish(reached).map(|()| None);
                }
                Err(error) => return Err(self.damaged(reached, &error)),
            }
        }
    }

    /// Goes on with the next one of several recordings that were put together, as a radio station sends them in Ogg. The length in the
    /// header is that of the first.
    fn continue_in_next(&mut self) -> Result<(), AudioError> {
        let unsupported = |reason: String| AudioError::Unsupported { path: self.path.into(), reason };
        let track = self.reader.default_track(TrackType::Audio);
        let track = track.ok_or_else(|| unsupported("one of its parts has no audio".into()))?;
        let codec = codec_of(track).map_err(unsupported)?;
        if codec.codec != CODEC_ID_OPUS && codec.sample_rate != Some(self.rate) {
            return Err(unsupported("its parts have different sampling rates".into()));
        }
        self.decoder = decoder_of(codec, self.trims).map_err(unsupported)?;
        self.delayed = if codec.codec == CODEC_ID_OPUS { pre_skip(codec) } else { 0 };
        self.track = track.id;
        self.promised = None;
        Ok(())
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
                mix_down(&buffer, self.channel, &mut self.interleaved, samples);
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

fn codec_of(track: &Track) -> Result<&AudioCodecParameters, String> {
    track.codec_params.as_ref().and_then(|params| params.audio()).ok_or_else(|| "unknown codec".into())
}

/// Returns a decoder, which drops the encoder's delay and padding if it `trims`.
fn decoder_of(codec: &AudioCodecParameters, trims: bool) -> Result<Box<dyn AudioDecoder>, String> {
    let decoder = match codec.codec {
        CODEC_ID_OPUS => OpusDecoder::new(codec, trims).map(|decoder| Box::new(decoder) as Box<dyn AudioDecoder>),
        _ => symphonia::default::get_codecs().make_audio_decoder(codec, &AudioDecoderOptions::default().gapless(trims)),
    };
    decoder.map_err(|error| error.to_string())
}

/// Returns whether the last page of an Ogg file belongs to another stream than its first: it is several recordings, of which the length
/// of one is known.
fn ends_in_other_stream(stored: &Stored, serial: u32) -> bool {
    let last = || -> Option<u32> {
        let mut file = stored.open().ok()?;
        file.seek(SeekFrom::Start(stored.bytes()?.saturating_sub(LARGEST_PAGE))).ok()?;
        let mut end = Vec::new();
        file.read_to_end(&mut end).ok()?;
        let page = end.windows(4).rposition(|four| four == b"OggS")?;
        Some(u32::from_le_bytes(end.get(page + 14..page + 18)?.try_into().ok()?))
    };
    last().is_some_and(|last| last != serial)
}

/// Returns what a file is that begins with the signature of an unsupported format, or as text.
fn unread_format(stored: &Stored) -> Option<String> {
    let mut first = Vec::new();
    stored.open().ok()?.take(TELLING as u64).read_to_end(&mut first).ok()?;
    match Container::of(&first) {
        Some(Container { name, is_read: false, .. }) => Some(format!("it is {name}")),
        None if is_text(&first) => Some("it is text".into()),
        _ => None,
    }
}

/// Adds what the decoder's words mean for a film with surround sound.
fn explained(reason: String) -> String {
    let is_of_channels = ["program config element", "aac too complex"].iter().any(|words| reason.contains(words));
    if is_of_channels { reason + ": AAC is read with one or two channels" } else { reason }
}

/// Appends one channel, or the mean over all of them.
fn mix_down(
    buffer: &GenericAudioBufferRef<'_>,
    channel: Option<usize>,
    interleaved: &mut Vec<f32>,
    samples: &mut Vec<f32>,
) {
    let channels = buffer.num_planes();
    buffer.copy_to_vec_interleaved(interleaved);
    match channels {
        0 => {}
        1 => samples.extend_from_slice(interleaved),
        _ => match channel.filter(|channel| *channel < channels) {
            Some(channel) => samples.extend(interleaved.iter().skip(channel).step_by(channels)),
            None => samples
                .extend(interleaved.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32)),
        },
    }
}
