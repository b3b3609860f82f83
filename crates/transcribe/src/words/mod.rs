//! Words with times: where in the audio the decoder looks when it writes each of them.

mod align;
mod split;

use align::Attention;
use burn::tensor::{Int, Tensor, TensorData};
use split::{Join, joins, split};
use undertone_model::whisper::{PretrainedWhisper, WhisperDecoder};

/// A word in a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimedWord {
    pub text: String,
    /// Number of its tokens.
    pub tokens: usize,
    /// Start and end in the window, in seconds.
    pub start: f64,
    pub end: f64,
    /// Mean probability of its tokens.
    pub probability: f32,
}

/// Text of a window, to be aligned with its audio.
#[derive(Clone, Debug)]
pub(crate) struct WindowText<'a> {
    /// Tokens before the text, without context.
    pub prompt: &'a [u32],
    /// Tokens of the text, without timestamps.
    pub tokens: Vec<u32>,
    /// Log probability of each token.
    pub log_probs: Vec<f32>,
    /// Number of frames of 20 ms with audio.
    pub frames: usize,
    /// Language of the text.
    pub language: Option<&'a str>,
}

/// Frames of the encoder in a second.
const FRAMES_PER_SECOND: f64 = 50.0;

/// Returns the words of each window, given the encoder's states, `[windows, time, d_model]`.
pub(crate) fn timed_words(whisper: &PretrainedWhisper, states: Tensor<3>, texts: &[WindowText]) -> Vec<Vec<TimedWord>> {
    // A window without text needs no pass.
    let rows: Vec<usize> = (0..texts.len()).filter(|row| !texts[*row].tokens.is_empty()).collect();
    let mut words = vec![Vec::new(); texts.len()];
    if rows.is_empty() {
        return words;
    }
    let end = whisper.tokenizer.end();
    let positions = whisper.config.max_target_positions;
    // The end is left out where a text reaches to the last position.
    let sequence = |text: &WindowText| {
        let mut sequence = [text.prompt, &text.tokens, &[end]].concat();
        sequence.truncate(positions);
        sequence
    };
    let sequences: Vec<Vec<u32>> = rows.iter().map(|row| sequence(&texts[*row])).collect();
    let longest = sequences.iter().map(Vec::len).max().unwrap_or_default();
    let ids = sequences.iter().flat_map(|ids| (0..longest).map(|i| i64::from(*ids.get(i).unwrap_or(&end)))).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new::<i64, _>(ids, [rows.len(), longest]), &states.device());
    let attention = attention(&whisper.model.decoder, states, &rows, ids, &whisper.alignment_heads());
    let [_, heads, tokens, frames] = attention.dims();
    let weights = undertone_ops::read(attention);
    for ((row, sequence), weights) in rows.iter().zip(&sequences).zip(weights.chunks_exact(heads * tokens * frames)) {
        // Tokens after the end attend to nothing that matters.
        let own: Vec<f32> = weights
            .chunks_exact(tokens * frames)
            .flat_map(|head| head[..sequence.len() * frames].iter().copied())
            .collect();
        let attention = Attention { weights: &own, heads, tokens: sequence.len(), frames };
        words[*row] = words_of(whisper, &texts[*row], &attention);
    }
    words
}

/// Returns how some rows' tokens attend to the audio, `[rows, heads, tokens, time]`.
fn attention(
    decoder: &WhisperDecoder,
    states: Tensor<3>,
    rows: &[usize],
    ids: Tensor<2, Int>,
    heads: &[(usize, usize)],
) -> Tensor<4> {
    let index: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    let index = Tensor::from_ints(TensorData::from(index.as_slice()), &states.device());
    let states = if rows.len() == states.dims()[0] { states } else { states.select(0, index) };
    decoder.cross_attention(ids, decoder.cache(states, None), heads)
}

fn words_of(whisper: &PretrainedWhisper, text: &WindowText, attention: &Attention) -> Vec<TimedWord> {
    // A token's row of weights is that of the token before it, which predicts it. The last one is that of the end.
    let first = text.prompt.len() - 1;
    let starts = attention.starts(first, first + text.tokens.len() + 1, text.frames);
    let seconds = |token: usize| starts[token] as f64 / FRAMES_PER_SECOND;
    let mut at = 0;
    let mut words: Vec<TimedWord> = Vec::new();
    for word in split(&whisper.tokenizer, &text.tokens, text.language) {
        let own = at..at + word.tokens;
        let probability = text.log_probs[own.clone()].iter().map(|p| p.exp()).sum::<f32>() / own.len().max(1) as f32;
        words.push(TimedWord {
            text: word.text,
            tokens: word.tokens,
            start: seconds(own.start),
            end: seconds(own.end),
            probability,
        });
        at = own.end;
    }
    shorten(&mut words);
    merge_punctuation(words)
}

/// Marks that end a sentence.
const SENTENCE_ENDS: &str = ".。!！?？";
/// Maximum of the median length of a word, in seconds.
const LONGEST_MEDIAN: f64 = 0.7;

/// Median length of the words, in seconds; at most [`LONGEST_MEDIAN`].
fn median_length(words: &[TimedWord]) -> f64 {
    let mut lengths: Vec<f64> = words.iter().map(|word| word.end - word.start).filter(|length| *length > 0.0).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let median = match lengths.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (lengths[n / 2 - 1] + lengths[n / 2]) / 2.0,
        n => lengths[n / 2],
    };
    median.min(LONGEST_MEDIAN)
}

/// Shortens words at the ends of sentences to twice the median length: the pause between two sentences is part of neither.
fn shorten(words: &mut [TimedWord]) {
    let longest = 2.0 * median_length(words);
    let ends = |word: &TimedWord| !word.text.is_empty() && SENTENCE_ENDS.contains(word.text.as_str());
    for index in 1..words.len() {
        if words[index].end - words[index].start <= longest {
            continue;
        }
        if ends(&words[index]) {
            words[index].end = words[index].start + longest;
        } else if ends(&words[index - 1]) {
            words[index].start = words[index].end - longest;
        }
    }
}

/// Joins punctuation with the words that it belongs to. The times are those of the words.
fn merge_punctuation(words: Vec<TimedWord>) -> Vec<TimedWord> {
    let mut merged: Vec<TimedWord> = Vec::new();
    let mut opening: Option<TimedWord> = None;
    for word in words {
        let join = joins(&word.text);
        match (&mut opening, merged.last_mut()) {
            (None, Some(previous)) if join == Join::Previous => {
                previous.text.push_str(&word.text);
                previous.tokens += word.tokens;
            }
            (None, _) if join == Join::Next => opening = Some(word),
            _ => {
                let Some(before) = opening.take() else {
                    merged.push(word);
                    continue;
                };
                let (text, tokens) = (before.text + &word.text, before.tokens + word.tokens);
                merged.push(TimedWord { text, tokens, ..word });
            }
        }
    }
    merged.extend(opening);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, start: f64, end: f64) -> TimedWord {
        TimedWord { text: text.into(), tokens: 1, start, end, probability: 0.5 }
    }

    #[test]
    fn punctuation_has_no_time_of_its_own() {
        let words = [
            word(" (", 0.0, 0.1),
            word("Yes", 0.1, 0.4),
            word(")", 0.4, 0.5),
            word(".", 0.5, 0.9),
            word(" No", 1.0, 1.2),
        ];
        let merged = merge_punctuation(words.to_vec());
        let found: Vec<(&str, usize, f64, f64)> =
            merged.iter().map(|word| (word.text.as_str(), word.tokens, word.start, word.end)).collect();
        assert_eq!(found, [(" (Yes).", 4, 0.1, 0.4), (" No", 1, 1.0, 1.2)]);
    }

    #[test]
    fn the_pause_after_a_sentence_is_part_of_no_word() {
        let mut words = [word(" One", 0.0, 0.4), word(".", 0.4, 3.0), word(" Two", 3.0, 6.0), word(" three", 6.0, 6.4)];
        shorten(&mut words);
        assert_eq!((words[1].end, words[2].start), (0.4 + 1.4, 6.0 - 1.4), "the median is at most 0.7 s");
        assert_eq!(words[3], word(" three", 6.0, 6.4));
    }
}
