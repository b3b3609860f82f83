//! The synthesiser: draws what a clip is like, then makes it.

use super::{
    CwConfig, CwError, CwInfo, CwSource, CwTask,
    carrier::Carrier,
    compose,
    keying::{self, Keyed},
    message::{Message, Room},
    stations::{add_others, key},
    text,
};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use undertone_data::radio::{Filter, RATE, channel};
use undertone_data::random::{self, between};

/// Samples per second of every clip.
pub const SAMPLE_RATE: u32 = RATE as u32;

/// An endless collection of labelled Morse clips.
#[derive(Debug, Clone)]
pub struct CwSynth {
    config: CwConfig,
    seed: u64,
}

/// A clip and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct CwSample {
    /// Mono audio at [`SAMPLE_RATE`], from -1 to 1.
    pub audio: Vec<f32>,
    /// What is to be written down, in characters of [`morse::alphabet`](crate::morse::alphabet): the same as `sent` for the task `copy`, and for
    /// the others at most 100 characters. Empty when nobody sends.
    pub text: String,
    /// Exactly what was keyed, in characters of [`morse::alphabet`](crate::morse::alphabet); empty when nobody sends.
    pub sent: String,
    /// One mark for each character of `sent`, in order.
    pub marks: Vec<CwMark>,
    /// How the clip was made.
    pub info: CwInfo,
}

/// When a character was keyed: from its first key-down to its last key-up, taken at half the carrier's
/// amplitude. The mark of a space is the gap between its neighbours. The characters of a prosign, brackets included,
/// are keyed as one and share its extent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CwMark {
    /// Seconds from the start of the clip.
    pub start: f32,
    /// Seconds from the start of the clip.
    pub end: f32,
    /// The character.
    pub character: char,
}

/// How often a message is composed before one of the shortest is sent.
const MESSAGE_TRIES: usize = 16;

/// What one station sent.
struct Sent {
    keyed: Keyed,
    /// Of the clip, in samples.
    length: usize,
    /// What is to be written, where that is not what was keyed.
    written: Option<String>,
}

impl CwSynth {
    /// Checks the configuration; nothing can fail after that.
    pub fn new(config: CwConfig, seed: u64) -> Result<Self, CwError> {
        config.validate()?;
        Ok(Self { config, seed })
    }

    /// What it was made with.
    pub fn config(&self) -> &CwConfig {
        &self.config
    }

    /// The clip of this index: the same bits each time, on any thread, and independent of every other index.
    pub fn sample(&self, index: u64) -> CwSample {
        let rng = &mut random::stream(self.seed, index);
        let mut info = CwInfo::draw(&self.config, rng);
        let Sent { keyed, length, written } = self.send(&info, rng);
        let mut audio = self.receive(&info, &keyed, length, rng);
        info.carrier_amplitude = set_level(&mut audio, info.level_dbfs);
        let (sent, marks) = transcript(&keyed);
        CwSample { audio, text: written.unwrap_or_else(|| sent.clone()), sent, marks, info }
    }

    /// Keys a text that fits.
    fn send(&self, info: &CwInfo, rng: &mut ChaCha8Rng) -> Sent {
        let c = &self.config;
        let half_rise = f64::from(info.rise_ms) / 2000.0;
        let start = f64::from(between(rng, c.lead_s)) + half_rise;
        let after = f64::from(between(rng, c.tail_s)) + half_rise;
        let duration = f64::from(between(rng, c.duration_s));
        let longest = f64::from(c.duration_s[1]);
        let mut written = None;
        let keyed = match info.source {
            None => Keyed::default(),
            Some(source) if c.task != CwTask::Copy => {
                let fist = info.fist();
                let room = Room { fist: &fist, wanted_s: duration - after - start, longest_s: longest - after - start };
                let (message, keyed) = self.send_message(source, start, &room, rng);
                written = Some(message.written);
                keyed
            }
            Some(CwSource::Fixed) => {
                let index = random::whole(rng, 0..c.text.fixed.len());
                key(&c.text.fixed[index], &info.fist(), start..f64::INFINITY, rng)
            }
            Some(source) => {
                let end = duration - after;
                let text = text::fill(source, &c.text, (end - start) / info.fist().effective_unit_s(), rng);
                key(&text, &info.fist(), start..end, rng)
            }
        };
        let duration = duration.max(keyed.end() + after).min(longest);
        Sent { keyed, length: (duration * RATE).round() as usize, written }
    }

    /// Keys a whole message from `start` seconds on. One that jitter makes too long is given up for another; after some
    /// of those comes one of the shortest, for which validation has made sure that there is room.
    fn send_message(&self, source: CwSource, start: f64, room: &Room<'_>, rng: &mut ChaCha8Rng) -> (Message, Keyed) {
        let c = &self.config;
        for _ in 0..MESSAGE_TRIES {
            let Some(message) = compose::compose(c.task, source, &c.text, room, rng) else { continue };
            let keyed = key(&message.sent, room.fist, start..f64::INFINITY, rng);
            if keyed.end() <= start + room.longest_s {
                return (message, keyed);
            }
        }
        let message = compose::last_resort(c.task, source, &c.text, rng);
        let keyed = key(&message.sent, room.fist, start..f64::INFINITY, rng);
        (message, keyed)
    }

    /// The keyed signal as the listener hears it: carrier, other stations, noise, static and filter.
    fn receive(&self, info: &CwInfo, keyed: &Keyed, length: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let filter = info.filter_hz.map(|width| Filter::new(info.pitch_hz.into(), width.into()));
        let delay = filter.as_ref().map_or(0, |filter| filter.delay);
        let mut audio = vec![0.0; length + delay];
        let carrier = Carrier {
            pitch_hz: info.pitch_hz.into(),
            amplitude: 1.0,
            drift: info.drift,
            chirp: info.chirp,
            qsb: info.qsb,
        };
        let rise_s = f64::from(info.rise_ms) / 1000.0;
        let envelope = keying::envelope(&keyed.elements, rise_s, RATE, audio.len());
        carrier.add(&envelope, &keyed.elements, rng, &mut audio);
        add_others(&info.qrm, &self.config.text, info.rise_ms, rng, &mut audio);
        if let Some(snr_db) = info.snr_db {
            channel::add_noise(snr_db, info.snr_bandwidth_hz, rng, &mut audio);
        }
        if let Some(qrn) = info.qrn {
            channel::add_static(qrn, rng, &mut audio);
        }
        if let Some(filter) = filter {
            filter.apply(&mut audio);
            audio.drain(..delay);
        }
        audio
    }
}

/// Scales the loudest sample to `level_dbfs` and returns by how much. Nothing is clipped, so nothing is distorted, and
/// the ratio of carrier to noise stays what it is.
fn set_level(audio: &mut [f32], level_dbfs: f32) -> f32 {
    let peak = audio.iter().fold(0f32, |peak, sample| peak.max(sample.abs()));
    if peak == 0.0 {
        return 1.0;
    }
    let scale = channel::amplitude(level_dbfs) as f32 / peak;
    for sample in audio {
        *sample = (*sample * scale).clamp(-1.0, 1.0);
    }
    scale
}

fn transcript(keyed: &Keyed) -> (String, Vec<CwMark>) {
    let mut marks: Vec<CwMark> = Vec::new();
    let mut word = 0;
    for symbol in &keyed.symbols {
        let [start, end] = keyed.extent(symbol).map(|seconds| seconds as f32);
        if symbol.word != word {
            let gap = marks.last().map_or(0.0, |mark| mark.end);
            marks.push(CwMark { start: gap, end: start, character: ' ' });
            word = symbol.word;
        }
        marks.extend(symbol.spelling.chars().map(|character| CwMark { start, end, character }));
    }
    (marks.iter().map(|mark| mark.character).collect(), marks)
}
