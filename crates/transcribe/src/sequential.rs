//! One window after the other, each from where the timestamps of the one before end: the procedure of openai-whisper's
//! `transcribe` (Radford et al., 2022, section 4.5).

use crate::decoded::Decoded;
use crate::transcriber::{Transcriber, frames};
use crate::transcript::{DetectedLanguage, Segment, Transcript, Word};
use crate::words::{WindowText, timed_words};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use std::ops::Range;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::features::HOP;

/// Length of a timestamp's step, in samples: 20 ms.
const STEP: usize = SAMPLE_RATE as usize / 50;
/// Temperature above which a window's text is no context for the next one.
const UNSURE: f64 = 0.5;

/// Recording that is read as far as it is needed.
struct Window<R> {
    read: R,
    /// Samples from `offset` on.
    audio: Vec<f32>,
    offset: usize,
    is_complete: bool,
}

impl<R: FnMut() -> Result<Option<Vec<f32>>, E>, E> Window<R> {
    /// Returns up to `length` samples from `start` on, which is not before an earlier start.
    fn from(&mut self, start: usize, length: usize) -> Result<&[f32], E> {
        // Less than a hop is no frame of features.
        while !self.is_complete && self.offset + self.audio.len() < start + length + HOP {
            match (self.read)()? {
                Some(block) => self.audio.extend(block),
                None => self.is_complete = true,
            }
            let passed = start.saturating_sub(self.offset).min(self.audio.len());
            self.audio.drain(..passed);
            self.offset += passed;
        }
        let begin = (start - self.offset).min(self.audio.len());
        Ok(&self.audio[begin..(begin + length).min(self.audio.len())])
    }

    /// Number of samples so far, from the start of the recording.
    fn length(&self) -> usize {
        self.offset + self.audio.len()
    }
}

/// Part of a window's tokens between two timestamps, with its place in the window in samples.
#[derive(Debug, PartialEq)]
struct Part {
    tokens: Range<usize>,
    samples: Range<usize>,
}

/// Division of a window's tokens, and how far the next window begins after this one, in samples.
#[derive(Debug, PartialEq)]
struct Parts {
    parts: Vec<Part>,
    advance: usize,
    /// Whether the window ends with one timestamp: there is no speech after it.
    ends_in_silence: bool,
}

/// Divides the tokens of a window of `length` samples at their timestamps, from token `begin` on.
fn parts(tokens: &[u32], begin: u32, length: usize) -> Parts {
    let is_time: Vec<bool> = tokens.iter().map(|token| *token >= begin).collect();
    // A model may write a time after the end of the audio.
    let time = |index: usize| ((tokens[index] - begin) as usize * STEP).min(length);
    let ends_in_silence = is_time.len() >= 2 && is_time.ends_with(&[false, true]);
    let mut cuts: Vec<usize> = (1..tokens.len()).filter(|index| is_time[index - 1] && is_time[*index]).collect();
    if cuts.is_empty() {
        let last = (0..tokens.len()).rev().find(|index| is_time[*index]).map(time).filter(|end| *end > 0);
        let whole = Part { tokens: 0..tokens.len(), samples: 0..last.unwrap_or(length) };
        return Parts { parts: vec![whole], advance: length, ends_in_silence };
    }
    if ends_in_silence {
        cuts.push(tokens.len());
    }
    let mut start = 0;
    let mut parts = Vec::new();
    for end in cuts {
        let at = |index: usize| if is_time[index] { time(index) } else { 0 };
        parts.push(Part { tokens: start..end, samples: at(start)..at(end - 1) });
        start = end;
    }
    // What comes after the last pair is unfinished: it is decoded again.
    let advance = if ends_in_silence { length } else { time(start - 1) };
    Parts { parts, advance, ends_in_silence }
}

impl Transcriber {
    /// Transcribes a recording window by window. `read` returns the next samples, and `on` is called with the new segments and
    /// the position that is reached, in samples.
    pub(crate) fn sequential<E>(
        &self,
        read: impl FnMut() -> Result<Option<Vec<f32>>, E>,
        on: &mut dyn FnMut(&[Segment], usize),
    ) -> Result<Transcript, E> {
        let mut source = Window { read, audio: Vec::new(), offset: 0, is_complete: false };
        let mut transcript = Transcript { language: None, samples: 0, segments: Vec::new() };
        let mut language = self.known_language();
        // All tokens so far, with those that are context for the next window from `context` on.
        let (mut tokens, mut context) = (self.parts.initial.clone(), 0);
        let (mut seek, mut last_word_end) = (0, 0.0);
        loop {
            let audio = source.from(seek, self.window())?.to_vec();
            let length = audio.len() / HOP * HOP;
            if length == 0 {
                break;
            }
            let states = self.encode(&[audio.as_slice()]);
            let known = language.get_or_insert_with(|| self.detect(states.clone()).pop());
            let code = known.as_ref().map(|language: &DetectedLanguage| language.code.clone());
            let mut start = self.start(code.as_deref(), None).unwrap_or_default();
            let mut plain = start.clone();
            if seek == 0 {
                plain.extend_from_slice(&self.parts.prefix);
            }
            start.pop();
            let begin = self.whisper.tokenizer.times().start;
            let mut begun = 0;
            if seek == 0 && !self.parts.prefix.is_empty() {
                // Without a time before it, the first time would stand within its sentence.
                start.push(begin);
                begun = 1 + self.parts.prefix.len();
            }
            let prompt = self.prompt(&tokens[context..], &start, seek == 0);
            let Some(decoded) = self.decode(&states, &[prompt], Some(begun)).pop() else { break };
            if self.is_silent(&decoded) {
                seek += length;
                on(&[], seek);
                continue;
            }
            let Parts { parts, mut advance, ends_in_silence } = parts(&decoded.generated.tokens, begin, length);
            let mut segments: Vec<Segment> = parts.iter().map(|part| self.segment_at(&decoded, part, seek)).collect();
            if self.options.words {
                let text = (plain.as_slice(), self.written_language(code.as_deref()));
                self.add_words(&mut segments, &parts, &decoded, states, text, length, seek, last_word_end);
                let end = segments.iter().rev().find_map(|segment| segment.words.last()).map(|word| word.end);
                last_word_end = end.unwrap_or(last_word_end);
                let end = end.map(|end| (end * f64::from(SAMPLE_RATE)) as usize / HOP * HOP);
                if let Some(end) = end.filter(|end| !ends_in_silence && *end > seek) {
                    advance = end - seek;
                }
            }
            // A window that ends where it begins would be decoded for ever.
            seek += if advance == 0 { length } else { advance };
            segments.retain(|segment| !segment.samples.is_empty() && !segment.characters.is_empty());
            tokens.extend(segments.iter().flat_map(|segment| &segment.tokens));
            if !self.options.condition_on_previous || decoded.temperature > UNSURE {
                context = tokens.len();
            }
            on(&segments, seek);
            transcript.segments.extend(segments);
        }
        transcript.samples = source.length();
        transcript.language = language.flatten();
        Ok(transcript)
    }

    fn segment_at(&self, decoded: &Decoded, part: &Part, seek: usize) -> Segment {
        let mut own = decoded.clone();
        own.generated.tokens = decoded.generated.tokens[part.tokens.clone()].to_vec();
        own.generated.log_probs = decoded.generated.log_probs[part.tokens.clone()].to_vec();
        let samples = seek + part.samples.start..seek + part.samples.end;
        let segment = self.segment_of(own, samples, true, Vec::new());
        // Of the whole window, as the compression ratio.
        Segment { mean_log_prob: decoded.generated.mean_log_prob(), ..segment }
    }

    #[allow(clippy::too_many_arguments)]
    fn add_words(
        &self,
        segments: &mut [Segment],
        parts: &[Part],
        decoded: &Decoded,
        states: Tensor<3>,
        (prompt, language): (&[u32], Option<&str>),
        length: usize,
        seek: usize,
        last_word_end: f64,
    ) {
        let times = self.whisper.tokenizer.times();
        let is_text = |index: &usize| !times.contains(&decoded.generated.tokens[*index]);
        let kept: Vec<usize> = parts.iter().flat_map(|part| part.tokens.clone().filter(is_text)).collect();
        let tokens: Vec<u32> = kept.iter().map(|index| decoded.generated.tokens[*index]).collect();
        let log_probs = self.log_probs_as_text(states.clone(), prompt, &tokens);
        let text = WindowText { prompt, tokens, log_probs, frames: frames(length), language };
        let mut words = timed_words(&self.whisper, states, &[text]).pop().unwrap_or_default().into_iter().peekable();
        let mut pause_from = last_word_end;
        for (segment, part) in segments.iter_mut().zip(parts) {
            let mut left = part.tokens.clone().filter(is_text).count();
            let mut own = Vec::new();
            while left > 0
                && let Some(word) = words.next()
            {
                left = left.saturating_sub(word.tokens);
                own.push(word);
            }
            let mut placed: Vec<Word> =
                own.into_iter().map(|word| Word::placed(word, |at| seek + at.start..seek + at.end)).collect();
            fit(&mut placed, segment, pause_from);
            pause_from = placed.last().map_or(pause_from, |word| word.end);
            segment.words = placed;
        }
    }
}

impl Transcriber {
    /// Returns the log probability of each of a window's tokens among those of texts, where nothing but the text follows the prompt, as in
    /// openai-whisper. As they were decoded, times were as likely before many of them.
    fn log_probs_as_text(&self, states: Tensor<3>, prompt: &[u32], tokens: &[u32]) -> Vec<f32> {
        let (decoder, end) = (&self.whisper.model.decoder, self.whisper.tokenizer.end());
        let sequence: Vec<i64> = prompt.iter().chain(tokens).map(|token| i64::from(*token)).collect();
        let length = sequence.len().min(self.whisper.config.max_target_positions);
        let known = length.saturating_sub(prompt.len());
        if known == 0 {
            return vec![0.0; tokens.len()];
        }
        let ids = TensorData::new::<i64, _>(sequence[..length].to_vec(), [1, length]);
        let ids = Tensor::<2, Int>::from_data(ids, &states.device());
        let read = decoder.forward_all(ids, decoder.cache(states, None)).narrow(1, prompt.len() - 1, known);
        let logits: Tensor<2> = decoder.logits(read).squeeze_dim(0);
        // Words that somebody has added to the vocabulary come after the end.
        let vocabulary = if tokens.iter().all(|token| *token < end) { end as usize } else { logits.dims()[1] };
        let log_probs = undertone_ops::read(log_softmax(logits.narrow(1, 0, vocabulary), 1));
        let own = log_probs.chunks_exact(vocabulary).zip(tokens).map(|(row, token)| row[*token as usize]);
        own.chain(std::iter::repeat(0.0)).take(tokens.len()).collect()
    }
}

/// Fits words and their segment to each other. A word that follows a pause is no longer than the words beside it, and where
/// the segment's own timestamps say that it is shorter, they are right.
fn fit(words: &mut [Word], segment: &mut Segment, pause_from: f64) {
    let mut lengths: Vec<f64> = words.iter().map(|word| word.end - word.start).filter(|length| *length > 0.0).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or_default().min(0.7);
    let longest = 2.0 * median;
    let (start, end) = (segment.start(), segment.end());
    let Some(first) = words.first_mut() else { return };
    if first.end - pause_from > 2.0 * longest && first.end - first.start > longest {
        first.start = first.end - longest;
    }
    if start < first.end && start - 0.5 > first.start {
        first.start = (first.end - median).min(start).max(0.0);
    }
    let from = first.start;
    let Some(last) = words.last_mut() else { return };
    if end > last.start && end + 0.5 < last.end {
        last.end = (last.start + median).max(end);
    }
    let sample = |seconds: f64| (seconds * f64::from(SAMPLE_RATE)).round() as usize;
    segment.samples = sample(from)..sample(last.end).max(sample(from) + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u32 = 100;

    fn time(seconds: f64) -> u32 {
        BEGIN + (seconds * 50.0) as u32
    }

    fn part(tokens: Range<usize>, start: f64, end: f64) -> Part {
        let sample = |seconds: f64| (seconds * 16_000.0) as usize;
        Part { tokens, samples: sample(start)..sample(end) }
    }

    #[test]
    fn windows_are_divided_at_pairs_of_timestamps() {
        let tokens = [time(0.0), 1, 2, time(2.0), time(2.5), 3, time(4.0), time(4.0), 5];
        let found = parts(&tokens, BEGIN, 480_000);
        assert_eq!(found.parts, [part(0..4, 0.0, 2.0), part(4..7, 2.5, 4.0)]);
        assert_eq!((found.advance, found.ends_in_silence), (64_000, false), "what is unfinished is decoded again");
    }

    #[test]
    fn one_timestamp_at_the_end_says_that_nothing_follows() {
        let tokens = [time(0.0), 1, time(2.0), time(2.5), 3, time(4.0)];
        let found = parts(&tokens, BEGIN, 480_000);
        assert_eq!(found.parts, [part(0..3, 0.0, 2.0), part(3..6, 2.5, 4.0)]);
        assert_eq!((found.advance, found.ends_in_silence), (480_000, true));
    }

    #[test]
    fn without_pairs_a_window_is_one_segment() {
        let found = parts(&[time(0.0), 1, 2, time(3.0)], BEGIN, 480_000);
        assert_eq!((found.parts, found.advance), (vec![part(0..4, 0.0, 3.0)], 480_000));
        let found = parts(&[1, 2], BEGIN, 160_000);
        assert_eq!((found.parts, found.advance), (vec![part(0..2, 0.0, 10.0)], 160_000));
        assert_eq!(parts(&[], BEGIN, 160_000).advance, 160_000);
    }
}
