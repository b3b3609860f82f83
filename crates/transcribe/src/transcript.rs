//! What a transcription consists of.

use std::ops::Range;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::text::append;

/// Transcription of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// Language, if it is known.
    pub language: Option<DetectedLanguage>,
    /// Length of the recording, in samples of 16 kHz.
    pub samples: usize,
    /// Segments in order.
    pub segments: Vec<Segment>,
}

/// Language of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedLanguage {
    /// Code, such as `en`.
    pub code: String,
    /// Probability, if the language was detected.
    pub probability: Option<f32>,
}

/// Transcription of a stretch of audio.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Position in the recording, in samples of 16 kHz.
    pub samples: Range<usize>,
    /// Characters, each with the model's confidence, without surrounding spaces.
    pub characters: Vec<(char, f32)>,
    /// Whether it starts with a new word. Otherwise it continues the last word of the segment before.
    pub begins_word: bool,
    /// Tokens, timestamps included.
    pub tokens: Vec<u32>,
    /// Words with their times, if they were asked for.
    pub words: Vec<Word>,
    /// Temperature of the decoding that it is from.
    pub temperature: f64,
    /// Mean log probability of the window's tokens.
    pub mean_log_prob: f64,
    /// Size of the window's text, divided by its size when compressed.
    pub compression_ratio: f64,
    /// Probability that the window has no speech, if the model has a token for it.
    pub no_speech: Option<f32>,
}

/// A word with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Text, with the space before it and with punctuation.
    pub text: String,
    /// Start in the recording, in seconds.
    pub start: f64,
    /// End in the recording, in seconds.
    pub end: f64,
    /// Mean probability of its tokens.
    pub probability: f32,
}

/// Replacement of a character with low confidence.
pub(crate) const UNREAD: char = '_';

impl Segment {
    /// Returns its text, with `_` for each character with a confidence below `least_confidence`.
    pub fn text(&self, least_confidence: f32) -> String {
        text(&self.characters, least_confidence)
    }

    /// Appends its text to that of the segments before.
    pub fn append_to(&self, text: &mut String, least_confidence: f32) {
        let own = self.text(least_confidence);
        if self.begins_word { append(text, &own) } else { text.push_str(&own) }
    }

    /// Start in the recording, in seconds.
    pub fn start(&self) -> f64 {
        seconds(self.samples.start)
    }

    /// End in the recording, in seconds.
    pub fn end(&self) -> f64 {
        seconds(self.samples.end)
    }
}

impl Transcript {
    /// Returns the whole text, with `_` for each character with a confidence below `least_confidence`.
    pub fn text(&self, least_confidence: f32) -> String {
        self.segments.iter().fold(String::new(), |mut text, segment| {
            segment.append_to(&mut text, least_confidence);
            text
        })
    }

    /// Length of the recording, in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.samples)
    }
}

/// Returns the text of characters, with `_` for each with a confidence below `least_confidence`.
pub(crate) fn text(characters: &[(char, f32)], least_confidence: f32) -> String {
    let read = |(character, confidence): &(char, f32)| match *confidence < least_confidence && *character != ' ' {
        true => UNREAD,
        false => *character,
    };
    characters.iter().map(read).collect()
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}
