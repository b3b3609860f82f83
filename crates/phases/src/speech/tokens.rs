//! Encodes a sample's text as the tokens that a speech backbone reads and writes.

use super::error::SpeechError;
use crate::Experiment;
use crate::backbone::{SpeechBackbone, SpeechTokenizer};
use std::sync::Arc;
use undertone_data::cut::{Mark, TimedText, marks};
use undertone_data::text::append;
use undertone_model::whisper::TokenizerError;

/// Encoder of texts.
#[derive(Clone)]
pub(crate) struct Tokens {
    tokenizer: Arc<dyn SpeechTokenizer>,
    language: String,
    task: String,
    /// Window of the model, in seconds.
    window: f64,
}

/// Text of a sample, and its properties that affect the tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spoken<'a> {
    /// Text.
    pub text: &'a str,
    /// Parts of the text with their times, which become timestamp tokens.
    pub timed: Option<&'a [TimedText]>,
    /// Preceding text.
    pub previous: Option<&'a str>,
    /// Language, if it differs from that of all data.
    pub language: Option<&'a str>,
    /// Task, if it differs from that of all data.
    pub task: Option<&'a str>,
}

impl Tokens {
    pub fn new(experiment: &Experiment, speech: &SpeechBackbone) -> Self {
        Self {
            tokenizer: speech.tokenizer.clone(),
            language: experiment.data.language.clone(),
            task: experiment.data.task.clone(),
            window: speech.max_frames as f64 / 100.0,
        }
    }

    /// Whether the model has timestamp tokens.
    pub fn tell_times(&self) -> bool {
        self.tokenizer.timestamp_begin().is_some()
    }

    /// Whether the model has a token that introduces preceding text.
    pub fn recall(&self) -> bool {
        self.tokenizer.start_of_previous().is_some()
    }

    pub fn tokenizer(&self) -> &dyn SpeechTokenizer {
        &*self.tokenizer
    }

    /// Returns the number of decoder positions.
    pub fn positions(&self) -> usize {
        self.tokenizer.max_tokens()
    }

    /// Returns the number of positions that a sample's tokens take: a decoder reads all but the last.
    pub fn length(&self, tokens: &[u32]) -> usize {
        tokens.len() - usize::from(self.tokenizer.end().is_some())
    }

    /// Returns the maximum number of decoder positions that a text takes in a packed window, without a prompt, with or
    /// without timestamps.
    ///
    /// # Errors
    /// If the vocabulary cannot encode it.
    pub fn room(&self, text: &str, timed: Option<&[TimedText]>) -> Result<usize, TokenizerError> {
        let (plain, spaced) = (self.tokenizer.encode(text)?.len(), self.tokenizer.encode(&format!(" {text}"))?.len());
        let timed = timed.map_or(Ok(0), |timed| {
            // A space before each text but the first, which takes at most one token.
            self.text(Spoken { text, timed: Some(timed), ..Spoken::default() }).map(|tokens| tokens.len() + 1)
        });
        Ok(plain.max(spaced).max(timed?))
    }

    /// Returns prompt, text and end tokens, and the length of the prompt.
    ///
    /// # Errors
    /// Names the sample if the vocabulary cannot encode its text, or if it is too long for the decoder.
    pub fn encode(&self, name: &str, spoken: Spoken) -> Result<(Vec<u32>, usize), SpeechError> {
        let named = |source| SpeechError::Text { name: name.to_owned(), source };
        let text = self.text(spoken).map_err(named)?;
        let start = self.prompt(spoken).map_err(named)?;
        // The decoder reads all tokens but the last.
        let (needed, positions) = (start.len() + text.len(), self.positions());
        if needed > positions {
            let text = spoken.text.to_owned();
            return Err(named(TokenizerError::TooLong { tokens: needed, room: positions, text }));
        }
        let mut tokens = match spoken.previous {
            Some(previous) => self.before(previous, positions - needed).map_err(named)?,
            None => Vec::new(),
        };
        tokens.extend(start);
        let prompt = tokens.len();
        tokens.extend(text);
        tokens.extend(self.tokenizer.end());
        Ok((tokens, prompt))
    }

    /// Returns the tokens from the start of a transcript to the beginning of its text.
    pub fn prompt(&self, spoken: Spoken) -> Result<Vec<u32>, TokenizerError> {
        let language = spoken.language.unwrap_or(&self.language);
        let task = spoken.task.unwrap_or(&self.task);
        let mut prompt = self.tokenizer.prompt(Some(language), Some(task))?;
        if spoken.timed.is_some() && self.tell_times() {
            // The last token announces that there are no timestamps.
            prompt.pop();
        }
        Ok(prompt)
    }

    fn text(&self, spoken: Spoken) -> Result<Vec<u32>, TokenizerError> {
        let (Some(timed), Some(first)) = (spoken.timed, self.tokenizer.timestamp_begin()) else {
            return self.tokenizer.encode(spoken.text);
        };
        let (mut tokens, mut said) = (Vec::new(), String::new());
        for mark in marks(timed, self.window) {
            match mark {
                Mark::Time(steps) => tokens.push(first + steps),
                // Timestamps leave no trace in the transcript, so a space between two texts belongs to the second.
                Mark::Text(text) => {
                    let end = said.len();
                    append(&mut said, text);
                    tokens.extend(self.tokenizer.encode(&said[end..])?);
                }
            }
        }
        Ok(tokens)
    }

    /// Returns the end of the preceding text, after the token that introduces it. As in OpenAI's code it takes less
    /// than half of the decoder's positions, and at most the `room` that the text leaves.
    fn before(&self, previous: &str, room: usize) -> Result<Vec<u32>, TokenizerError> {
        let text = self.tokenizer.encode(previous)?;
        let most = (self.positions() / 2).saturating_sub(1).min(room.saturating_sub(1));
        let Some(introduction) = self.tokenizer.start_of_previous().filter(|_| !text.is_empty() && most > 0) else {
            return Ok(Vec::new());
        };
        let mut tokens = vec![introduction];
        tokens.extend(&text[text.len().saturating_sub(most)..]);
        Ok(tokens)
    }
}
