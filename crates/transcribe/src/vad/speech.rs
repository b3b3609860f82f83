//! Stretches of speech, from the probabilities of the network.

use super::{FRAME, VadNetwork, VadState};
use std::iter::once;
use std::ops::Range;

/// Settings of the search for speech.
#[derive(Clone, Debug, PartialEq)]
pub struct VadOptions {
    /// Probability above which a stretch of speech begins. It ends below 0.15 less.
    pub threshold: f32,
    /// Minimum length of a stretch, in seconds.
    pub min_speech_s: f64,
    /// Silence that ends a stretch, in seconds.
    pub min_silence_s: f64,
    /// Audio that is kept before and after each stretch, in seconds.
    pub pad_s: f64,
}

impl Default for VadOptions {
    fn default() -> Self {
        Self { threshold: 0.5, min_speech_s: 0.25, min_silence_s: 0.16, pad_s: 0.4 }
    }
}

/// Stretch of a recording in which somebody speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Position in the recording, in samples, with the audio that is kept around the speech.
    pub samples: Range<usize>,
    /// Speech without the pauses within it, in samples of the recording.
    pub speech: Vec<Range<usize>>,
}

impl Stretch {
    /// Cuts the stretch in the middle of its pauses.
    pub fn at_pauses(self) -> Vec<Self> {
        let middles = self.speech.windows(2).map(|pair| pair[0].end.midpoint(pair[1].start));
        let cuts: Vec<usize> = once(self.samples.start).chain(middles).chain(once(self.samples.end)).collect();
        let parts = self.speech.into_iter().zip(cuts.windows(2));
        parts.map(|(speech, cut)| Self { samples: cut[0]..cut[1], speech: vec![speech] }).collect()
    }
}

/// Search for speech in audio that comes block by block.
///
/// A stretch begins and ends as in Silero's own `get_speech_timestamps`, but those that touch once they are padded are one.
/// A stretch is returned as soon as nothing that follows can change it, and at the latest when it is `longest` samples long.
#[derive(Debug)]
pub struct SpeechFinder<'a> {
    network: &'a VadNetwork,
    options: VadOptions,
    /// Maximum length of a stretch, in samples.
    longest: usize,
    state: VadState,
    /// Samples that do not fill a frame yet.
    pending: Vec<f32>,
    /// Number of samples that the network has read.
    read: usize,
    /// First sample of the speech, if somebody is speaking.
    speaking_since: Option<usize>,
    /// First sample of the silence after it.
    silent_since: Option<usize>,
    /// Stretch that is over, but may be joined by the next one.
    last: Option<Stretch>,
    /// Probabilities of the frames since the start of the stretch: position and value.
    probabilities: Vec<(usize, f32)>,
    /// First sample that has not been returned.
    free_from: usize,
}

impl<'a> SpeechFinder<'a> {
    /// Starts at the beginning of a recording. A stretch is at most `longest` samples long.
    pub fn new(network: &'a VadNetwork, options: VadOptions, longest: usize) -> Self {
        Self {
            network,
            options,
            longest: longest.max(2 * FRAME),
            state: VadState::default(),
            pending: Vec::new(),
            read: 0,
            speaking_since: None,
            silent_since: None,
            last: None,
            probabilities: Vec::new(),
            free_from: 0,
        }
    }

    /// Takes the next samples, and returns the stretches that are complete.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Stretch> {
        self.pending.extend_from_slice(samples);
        let whole = self.pending.len() / FRAME * FRAME;
        let rest = self.pending.split_off(whole);
        let frames = std::mem::replace(&mut self.pending, rest);
        self.advance(&frames)
    }

    /// Returns the last stretches. Nothing may follow.
    pub fn finish(&mut self) -> Vec<Stretch> {
        let length = self.read + self.pending.len();
        let mut last = std::mem::take(&mut self.pending);
        let mut found = Vec::new();
        if !last.is_empty() {
            last.resize(FRAME, 0.0);
            found = self.advance(&last);
        }
        if let Some(start) = self.speaking_since {
            let end = self.silent_since.unwrap_or(length).min(length);
            self.over(start..end, &mut found);
        }
        found.extend(self.last.take());
        for stretch in &mut found {
            let parts = stretch.speech.iter_mut().chain([&mut stretch.samples]);
            parts.for_each(|part| part.end = part.end.min(length));
        }
        found.retain(|stretch| !stretch.samples.is_empty());
        found
    }

    /// Whether there is speech that has not been returned.
    pub fn is_open(&self) -> bool {
        self.last.is_some() || self.speaking_since.is_some()
    }

    /// First sample that may still be part of a stretch.
    pub fn needed_from(&self) -> usize {
        let pad = self.samples(self.options.pad_s);
        let open = self.last.as_ref().map(|last| last.samples.start);
        let begun = self.speaking_since.map(|start| start.saturating_sub(pad));
        open.or(begun).unwrap_or(self.read.saturating_sub(pad)).max(self.free_from)
    }

    fn samples(&self, seconds: f64) -> usize {
        (seconds * f64::from(undertone_data::audio::SAMPLE_RATE)).round() as usize
    }

    fn advance(&mut self, frames: &[f32]) -> Vec<Stretch> {
        let mut found = Vec::new();
        for probability in self.network.forward(frames, &mut self.state) {
            self.take(probability, &mut found);
        }
        found
    }

    /// Takes the probability of the next frame.
    fn take(&mut self, probability: f32, found: &mut Vec<Stretch>) {
        let (at, threshold) = (self.read, self.options.threshold);
        self.read += FRAME;
        if probability >= threshold {
            self.silent_since = None;
            self.speaking_since.get_or_insert(at);
        }
        let Some(start) = self.speaking_since else {
            let pad = self.samples(self.options.pad_s);
            // What begins from here on is too far away to join the last stretch.
            if self.last.as_ref().is_some_and(|last| self.read.saturating_sub(pad) > last.samples.end) {
                found.extend(self.last.take());
                self.probabilities.clear();
            }
            return;
        };
        self.probabilities.push((at, probability));
        if probability < (threshold - HYSTERESIS).max(LEAST) {
            let silent = *self.silent_since.get_or_insert(at);
            if at - silent >= self.samples(self.options.min_silence_s) {
                self.speaking_since = None;
                self.silent_since = None;
                self.over(start..silent, found);
                return;
            }
        }
        self.cut_long(start, found);
    }

    /// Takes speech that is over.
    fn over(&mut self, speech: Range<usize>, found: &mut Vec<Stretch>) {
        if speech.len() < self.samples(self.options.min_speech_s) {
            return;
        }
        let pad = self.samples(self.options.pad_s);
        let padded = speech.start.saturating_sub(pad).max(self.free_from)..speech.end + pad;
        match &mut self.last {
            Some(last) if padded.start <= last.samples.end && padded.end - last.samples.start <= self.longest => {
                last.samples.end = padded.end;
                last.speech.push(speech);
            }
            last => {
                let mut start = padded.start;
                if let Some(last) = last {
                    // Too long together: the pause between them is shared.
                    let middle = last.speech.last().map_or(start, |before| before.end.midpoint(speech.start));
                    last.samples.end = last.samples.end.min(middle.max(last.samples.start));
                    start = start.max(last.samples.end);
                }
                let stretch = Stretch { samples: start..padded.end, speech: vec![speech] };
                found.extend(last.replace(stretch));
            }
        }
    }

    /// Cuts speech that is as long as the longest stretch where speech is least probable, in the second half.
    fn cut_long(&mut self, start: usize, found: &mut Vec<Stretch>) {
        let pad = self.samples(self.options.pad_s);
        let begin = start.saturating_sub(pad).max(self.free_from);
        // The joined stretch before it is complete on its own then.
        if let Some(mut last) = self.last.take_if(|last| self.read + pad - last.samples.start > self.longest) {
            last.samples.end = last.samples.end.min(start);
            self.free_from = self.free_from.max(last.samples.end);
            found.push(last);
            return;
        }
        if self.read + pad - begin <= self.longest {
            return;
        }
        let second_half = self.probabilities.iter().filter(|(at, _)| *at >= begin + self.longest / 2);
        let quietest = second_half.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(self.read, |(at, _)| at + FRAME / 2);
        found.push(Stretch { samples: begin..quietest, speech: once(start..quietest).collect() });
        self.free_from = quietest;
        self.speaking_since = Some(quietest);
        self.silent_since = None;
        self.probabilities.retain(|(at, _)| *at >= quietest);
    }
}

/// Difference of the probabilities at which a stretch begins and ends.
const HYSTERESIS: f32 = 0.15;
/// Least probability at which a stretch ends: below it, none would.
const LEAST: f32 = 0.01;

/// Returns the stretches of speech in a whole recording, each at most `longest` samples long.
pub fn speech(network: &VadNetwork, audio: &[f32], options: &VadOptions, longest: usize) -> Vec<Stretch> {
    let mut finder = SpeechFinder::new(network, options.clone(), longest);
    let mut found = Vec::new();
    for block in audio.chunks(64 * FRAME) {
        found.extend(finder.push(block));
    }
    found.extend(finder.finish());
    found
}

#[cfg(test)]
mod tests;
