use std::ops::Range;
use std::path::Path;

use super::clipping::Clipping;
use super::full_scale::{FloatRange, FullScale};
use super::resample::Resampling;
use super::source::Source;
use super::{AudioError, SAMPLE_RATE, Stored};
use crate::guarded::guarded;
use crate::limits::LONGEST_HOURS;

/// Time that is lost to rounding in manifests, in seconds: one hop.
pub(crate) const ROUNDING: f64 = 0.01;

/// Maximum time between the end of a file and a segment's end after it, in seconds, as in Kaldi's `extract-segments`.
pub(crate) const OVERSHOOT: f64 = 0.5;

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
    /// Share of the samples that are clipped, from 0 to 1: at full scale, and equal to their neighbours.
    pub clipped: f64,
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
        caught(self, || {
            let source = Source::open(self)?;
            Ok(source.promised.map(|frames| frames as f64 / f64::from(source.rate)))
        })
    }

    /// Returns the length by the packets, in seconds: all of them are read, and nothing is decoded.
    ///
    /// # Errors
    /// If the audio is missing, empty, not audio, or damaged.
    pub fn counted_seconds(&self) -> Result<f64, AudioError> {
        caught(self, || {
            let mut source = Source::open(self)?;
            let (mut frames, mut before) = (0_u64, None);
            while let Some(packet) = source.next_packet(frames)? {
                let begins = u64::try_from(packet.pts.get()).unwrap_or(0);
                if let Some(samples) = source.per_tick {
                    frames = frames.max((begins.saturating_add(packet.dur.get()) as f64 * samples) as u64);
                    continue;
                }
                // If the length was guessed, packets beyond the guess are marked as padding; all packets have the same
                // size.
                frames = match before {
                    Some(before) if !source.trims => begins.saturating_add(begins.saturating_sub(before)),
                    _ => frames.saturating_add(packet.dur.get()),
                };
                before = Some(begins);
            }
            Ok(frames.saturating_sub(source.delay) as f64 / f64::from(source.rate))
        })
    }
}

/// Decodes from `start` to `end` in seconds (to the end of the file if `None`) to 16 kHz mono; the bounds must be
/// valid. More than `longest` seconds are an error.
pub(super) fn decode(stored: &Stored, start: f64, end: Option<f64>, longest: f64) -> Result<Decoded, AudioError> {
    caught(stored, || {
        let mut decoding = Decoding::begin(stored, start, end, longest)?;
        while decoding.step()? {}
        decoding.finish()
    })
}

/// Turns a panic in the decoder into an error about the file.
pub(super) fn caught<T>(stored: &Stored, read: impl FnOnce() -> Result<T, AudioError>) -> Result<T, AudioError> {
    guarded(read).unwrap_or_else(|panic| {
        let reason = format!("the decoder gave up: {panic}");
        Err(AudioError::Unsupported { path: stored.name().into(), reason })
    })
}

/// Decoding of a part of the audio, packet by packet.
pub(super) struct Decoding<'a> {
    stored: &'a Stored,
    start: f64,
    end: Option<f64>,
    longest: f64,
    source: Source<'a>,
    cut: Cut<'a>,
    /// Maximum number of samples, if the header gives their number.
    most: Option<f64>,
    /// Whether the length is not known and has not been counted yet.
    uncounted: bool,
    samples: Vec<f32>,
}

impl<'a> Decoding<'a> {
    /// Opens the audio at `start`. More than `longest` seconds are an error.
    pub fn begin(stored: &'a Stored, start: f64, end: Option<f64>, longest: f64) -> Result<Self, AudioError> {
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
        if let Some(frames) = source.promised.filter(|&frames| source.exact && first >= frames) {
            return Err(AudioError::OutsideFile { path: path.into(), start, end, duration: frames as f64 / rate });
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
        let uncounted = source.promised.is_none() && last.is_none() && longest.is_finite();
        Ok(Self { stored, start, end, longest, source, cut, most, uncounted, samples: Vec::new() })
    }

    /// Decodes a packet; returns false at the end of the part.
    pub fn step(&mut self) -> Result<bool, AudioError> {
        let (path, rate) = (self.stored.name(), f64::from(self.source.rate));
        if self.cut.position >= self.cut.wanted.end
            || !self.source.decode_packet(self.cut.position, &mut self.samples)?
        {
            return Ok(false);
        }
        self.cut.push(&self.samples)?;
        if let (Some(most), Some(promised)) = (self.most, self.source.promised)
            && self.cut.position as f64 > most
        {
            return Err(AudioError::MoreThanPromised { path: path.into(), promised: promised as f64 / rate });
        }
        if self.uncounted && self.cut.position as f64 > UNCOUNTED * rate {
            self.uncounted = false;
            if self.stored.counted_seconds()? - self.start > self.longest {
                return Err(AudioError::TooLong { path: path.into(), hours: self.longest / 3600.0 });
            }
        }
        Ok(true)
    }

    /// Returns the samples so far, at 16 kHz, and forgets them.
    pub fn drain(&mut self) -> Vec<f32> {
        self.cut.resampling.drain()
    }

    /// Returns the samples that were not drained, after the last step.
    pub fn finish(self) -> Result<Decoded, AudioError> {
        let (path, rate, Range { start: first, end: last }) =
            (self.stored.name(), f64::from(self.source.rate), self.cut.wanted.clone());
        let reached = self.cut.position;
        if reached == 0 {
            return Err(AudioError::Empty { path: path.into() });
        }
        let slack = (OVERSHOOT * rate) as u64;
        if first >= reached || self.end.is_some() && last > reached.saturating_add(slack) {
            let (start, end, duration) = (self.start, self.end, reached as f64 / rate);
            return Err(AudioError::OutsideFile { path: path.into(), start, end, duration });
        }
        self.cut.finish()
    }
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
    clipping: Clipping,
    resampling: Resampling,
}

impl<'a> Cut<'a> {
    fn new(source: &Source<'a>, wanted: Range<u64>, longest: f64) -> Result<Self, AudioError> {
        let Source { path, rate, is_float, .. } = *source;
        let full_scale = is_float.then(|| FullScale::new(path, rate));
        let unsupported = |reason| AudioError::Unsupported { path: path.into(), reason };
        let resampling = Resampling::begin(rate).map_err(unsupported)?;
        Ok(Self { path, rate, wanted, longest, position: 0, full_scale, clipping: Clipping::default(), resampling })
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
        match &mut self.full_scale {
            Some(full_scale) => {
                let scaled = full_scale.push(wanted.to_vec());
                self.keep(&scaled)?;
            }
            None => self.keep(wanted)?,
        }
        self.position += samples.len() as u64;
        if self.resampling.len() as f64 > self.longest * f64::from(SAMPLE_RATE) {
            return Err(AudioError::TooLong { path: self.path.into(), hours: self.longest / 3600.0 });
        }
        Ok(())
    }

    /// Takes wanted samples at a full scale of 1.
    fn keep(&mut self, samples: &[f32]) -> Result<(), AudioError> {
        self.clipping.push(samples);
        self.resampling.push(samples).map_err(|reason| AudioError::Unsupported { path: self.path.into(), reason })
    }

    fn finish(mut self) -> Result<Decoded, AudioError> {
        if let Some(full_scale) = &mut self.full_scale {
            let held = full_scale.finish();
            self.keep(&held)?;
        }
        let floats = self.full_scale.map(|full_scale| full_scale.range());
        let samples = self.resampling.finish();
        let samples = samples.map_err(|reason| AudioError::Unsupported { path: self.path.into(), reason })?;
        Ok(Decoded { samples, floats, clipped: self.clipping.share() })
    }
}
