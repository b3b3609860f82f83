//! The synthesiser: draws the parameters of a clip, then makes it.

use super::{
    CwConfig, CwError, CwIdleSound, CwInfo, CwSource, CwTask,
    carrier::Carrier,
    compose,
    interference::{add_others, key},
    keying::{self, Keyed},
    message::{Message, Room},
    narrow,
    stream::{self, Stream},
    text, transmitter,
};
use crate::radio::{Filter, RATE, channel};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::ops::Range;
use undertone_data::random::{self, between};

/// Samples per second of every clip.
pub const SAMPLE_RATE: u32 = RATE as u32;

/// An unlimited collection of labelled Morse clips.
#[derive(Debug, Clone)]
pub struct CwSynth {
    config: CwConfig,
    seed: u64,
}

/// A clip and its label.
#[derive(Debug, Clone, PartialEq)]
pub struct CwSample {
    /// Mono audio at [`SAMPLE_RATE`], from -1 to 1.
    pub audio: Vec<f32>,
    /// Label, in characters of [`morse::alphabet`](crate::morse::alphabet): the same as `sent` for the task `copy`, and
    /// for the others at most 100 characters. Empty without a sender.
    pub text: String,
    /// Exactly the keyed text, in characters of [`morse::alphabet`](crate::morse::alphabet); empty without a sender.
    pub sent: String,
    /// One mark for each character of `sent`, in order.
    pub marks: Vec<CwMark>,
    /// How the clip was made.
    pub info: CwInfo,
}

/// Time of a character: from its first key-down to its last key-up, measured at half the carrier's amplitude. The mark
/// of a space is the gap between its neighbours. The characters of a prosign, brackets included, are keyed as one and
/// have the same times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CwMark {
    /// Start, in seconds from the start of the clip.
    pub start: f32,
    /// End, in seconds from the start of the clip.
    pub end: f32,
    /// The character.
    pub character: char,
}

/// Number of attempts to compose a message before one of the shortest is sent.
const MESSAGE_TRIES: usize = 16;

/// Transmission of one station.
struct Sent {
    keyed: Keyed,
    /// Length of the clip, in samples.
    length: usize,
    /// Label, if it differs from the keyed text.
    written: Option<String>,
}

impl CwSynth {
    /// Checks the configuration; after that nothing can fail.
    pub fn new(config: CwConfig, seed: u64) -> Result<Self, CwError> {
        config.validate()?;
        Ok(Self { config, seed })
    }

    /// Returns the configuration it was made with.
    pub fn config(&self) -> &CwConfig {
        &self.config
    }

    /// Returns the clip of this index: the same bits each time, on any thread, and independent of every other index.
    pub fn sample(&self, index: u64) -> CwSample {
        let rng = &mut random::stream(self.seed, index);
        let draw = stream::of_clip(self.seed, index);
        let mut info = CwInfo::draw(&self.config, draw, rng);
        let Sent { keyed, length, written } = self.send(&info, draw, rng);
        let mut audio = self.receive(&info, &keyed, length, draw, rng);
        info.carrier_amplitude = set_level(&mut audio, info.level_dbfs);
        let (sent, marks) = transcript(&keyed);
        CwSample { audio, text: written.unwrap_or_else(|| sent.clone()), sent, marks, info }
    }

    /// Keys a text that fits into the clip.
    fn send(&self, info: &CwInfo, draw: u64, rng: &mut ChaCha8Rng) -> Sent {
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
            Some(source) if info.cut != [false; 2] => {
                let (keyed, duration) = self.send_on(info, source, start..duration - after, duration, draw, rng);
                return Sent { keyed, length: (duration * RATE).round() as usize, written };
            }
            Some(source) => {
                let end = duration - after;
                let text = text::fill(source, &c.text, (end - start) / info.fist().effective_unit_s(), rng);
                let mut keyed = key(&text, &info.fist(), start..end, rng);
                if keyed.symbols.is_empty() {
                    keyed = key(random::pick(rng, &text::SHORTEST), &info.fist(), start..end, rng);
                }
                if info.brief {
                    let brief = &mut Stream::BriefPlace.of(draw);
                    keyed.keep_words(random::whole(brief, 1..=2));
                    keyed.delay((end - keyed.end()) * f64::from(between(brief, [0.0, 1.0])));
                }
                keyed
            }
        };
        let duration = duration.max(keyed.end() + after).min(longest);
        Sent { keyed, length: (duration * RATE).round() as usize, written }
    }

    /// Keys a text that continues beyond the clip's start, its end or both, and keeps the symbols that are complete in
    /// the clip. The clip lasts for `duration` seconds or, to avoid a cut in a gap inside a symbol, slightly less.
    fn send_on(
        &self,
        info: &CwInfo,
        source: CwSource,
        uncut: Range<f64>,
        duration: f64,
        draw: u64,
        rng: &mut ChaCha8Rng,
    ) -> (Keyed, f64) {
        let [started, going_on] = info.cut;
        let fist = info.fist();
        // Up to a word before the start, so that the cut is at a random place; and as much after the end.
        let word = 50.0 * fist.effective_unit_s();
        let before = word * f64::from(between(&mut Stream::CutPlace.of(draw), [0.1, 1.0]));
        let start = if started { -before } else { uncut.start };
        let end = if going_on { duration + word } else { uncut.end };
        let text = text::fill(source, &self.config.text, (end - start) / fist.effective_unit_s(), rng);
        let mut keyed = key(&text, &fist, start..end, rng);
        if started {
            keyed.delay(-keyed.cut_before(0.0));
        }
        let duration = keyed.cut_before(duration);
        keyed.keep_whole(0.0..duration);
        (keyed, duration)
    }

    /// Keys a whole message from `start` seconds on. If jitter makes it too long, another one is tried. After several
    /// attempts one of the shortest is used, for which the validation has checked that there is room.
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

    /// Returns the received signal: the keyed signal, other stations, noise and static, after the receiver.
    fn receive(&self, info: &CwInfo, keyed: &Keyed, length: usize, draw: u64, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let filter = info.filter_hz.map(|width| Filter::new(info.pitch_hz.into(), width.into()));
        let delay = filter.as_ref().map_or(0, |filter| filter.delay);
        let mut audio = vec![0.0; length + delay];
        let rise_s = f64::from(info.rise_ms) / 1000.0;
        let envelope = keying::envelope(&keyed.elements, rise_s, RATE, audio.len());
        transmit(info, keyed, &envelope, draw, rng, &mut audio);
        info.path.apply(draw, &mut audio);
        let sent = info.muting_ms.map(|_| std::mem::replace(&mut audio, vec![0.0; length + delay]));
        add_others(&info.qrm, &self.config.text, info.rise_ms, rng, &mut audio);
        if let Some(snr_db) = info.snr_db {
            channel::add_noise(snr_db, info.snr_bandwidth_hz, rng, &mut audio);
        }
        if let Some(qrn) = info.qrn {
            channel::add_static(qrn, rng, &mut audio);
        }
        if let (Some(hold_ms), Some(sent)) = (info.muting_ms, sent) {
            mute(hold_ms, &envelope, &mut audio);
            audio.iter_mut().zip(&sent).for_each(|(out, sample)| *out += sample);
        }
        if let Some(filter) = filter {
            filter.apply(&mut audio);
            audio.drain(..delay);
        }
        info.receiver.apply(draw, &mut audio);
        info.recorder.apply(draw, &mut audio);
        match (info.narrowed, info.source) {
            (false, _) => audio,
            // Without a sender it is whatever the reader would find.
            (true, None) => narrow::narrowed(&audio),
            (true, Some(_)) => narrow::narrowed_at(&audio, info.pitch_hz.into()),
        }
    }
}

/// Adds the transmitted carrier, or the sound that replaces it without a sender.
fn transmit(info: &CwInfo, keyed: &Keyed, envelope: &[f32], draw: u64, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let carrier =
        Carrier { pitch_hz: info.pitch_hz.into(), amplitude: 1.0, drift: info.drift, chirp: info.chirp, qsb: info.qsb };
    carrier.add(envelope, &keyed.elements, rng, audio);
    let steady = vec![1.0; audio.len()];
    match info.idle {
        Some(CwIdleSound::Carrier) => carrier.add(&steady, &[], &mut Stream::Sound.of(draw), audio),
        Some(sound) => return sound.add(&mut Stream::Sound.of(draw), audio),
        None => {}
    }
    let transmitter = &info.transmitter;
    if let Some(drawn) = transmitter.distortion {
        transmitter::distort(drawn, audio);
    }
    if let Some(drawn) = transmitter.ripple {
        transmitter::ripple(drawn, &mut Stream::RipplePhase.of(draw), audio);
    }
    if let Some((level_db, offset_hz)) = transmitter.backwave {
        let backwave = Carrier {
            pitch_hz: carrier.pitch_hz + f64::from(offset_hz),
            amplitude: channel::amplitude(level_db),
            chirp: None,
            ..carrier
        };
        backwave.add(&steady, &[], &mut Stream::BackwavePhase.of(draw), audio);
    }
    if let Some(drawn) = transmitter.clicks {
        transmitter::click(drawn, &keyed.elements, &mut Stream::ClickNoise.of(draw), audio);
    }
}

/// Mutes the signal while the key is down, and for the hold time after it; the transitions take 2 ms.
fn mute(hold_ms: f32, envelope: &[f32], audio: &mut [f32]) {
    let hold = (f64::from(hold_ms) / 1000.0 * RATE) as usize;
    let step = (1.0 / (0.002 * RATE)) as f32;
    let (mut gain, mut held) = (1f32, 0);
    for (sample, shape) in audio.iter_mut().zip(envelope) {
        held = if *shape > 0.0 { hold + 1 } else { held.saturating_sub(1) };
        gain = if held > 0 { (gain - step).max(0.0) } else { (gain + step).min(1.0) };
        *sample *= gain;
    }
}

/// Scales the loudest sample to `level_dbfs` and returns the factor. Nothing is clipped, so there is no distortion, and
/// the ratio of carrier to noise does not change.
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
    let mut word = keyed.symbols.first().map_or(0, |symbol| symbol.word);
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
