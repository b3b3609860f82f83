//! Encodes a sample's text as the tokens that a Whisper reads and writes.

use super::error::SpeechError;
use crate::Experiment;
use undertone_data::cut::{Mark, TimedText, marks};
use undertone_data::text::append;
use undertone_model::whisper::{GenerationConfig, PretrainedWhisper, TokenizerError, WhisperTokenizer};

/// Encoder of texts.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    tokenizer: WhisperTokenizer,
    generation: GenerationConfig,
    language: String,
    task: String,
    /// Number of decoder positions.
    positions: usize,
    /// Timestamp token of 0 s, if the model has timestamp tokens.
    times: Option<u32>,
    /// Window of the model, in seconds.
    window: f64,
}

/// Index of the last timestamp token, 30 s, in steps of 20 ms.
const LAST: u32 = 1500;

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
    pub fn new(experiment: &Experiment, whisper: &PretrainedWhisper) -> Self {
        let first = whisper.tokenizer.timestamp_begin();
        Self {
            times: (whisper.config.vocab_size > (first + LAST) as usize).then_some(first),
            tokenizer: whisper.tokenizer.clone(),
            generation: whisper.generation.clone(),
            language: experiment.data.language.clone(),
            task: experiment.data.task.clone(),
            positions: whisper.config.max_target_positions,
            window: whisper.config.max_frames() as f64 / 100.0,
        }
    }

    /// Whether the model has timestamp tokens.
    pub fn tell_times(&self) -> bool {
        self.times.is_some()
    }

    /// Whether the model has a token that introduces preceding text.
    pub fn recall(&self) -> bool {
        self.tokenizer.start_of_previous().is_ok()
    }

    pub fn tokenizer(&self) -> &WhisperTokenizer {
        &self.tokenizer
    }

    /// Returns the number of decoder positions.
    pub fn positions(&self) -> usize {
        self.positions
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
        let needed = start.len() + text.len();
        if needed > self.positions {
            let text = spoken.text.to_owned();
            return Err(named(TokenizerError::TooLong { tokens: needed, room: self.positions, text }));
        }
        let mut tokens = match spoken.previous {
            Some(previous) => self.before(previous, self.positions - needed).map_err(named)?,
            None => Vec::new(),
        };
        tokens.extend(start);
        let prompt = tokens.len();
        tokens.extend(text);
        tokens.push(self.tokenizer.end());
        Ok((tokens, prompt))
    }

    /// Returns the tokens from the start of a transcript to the beginning of its text.
    pub fn prompt(&self, spoken: Spoken) -> Result<Vec<u32>, TokenizerError> {
        let language = spoken.language.unwrap_or(&self.language);
        let task = spoken.task.unwrap_or(&self.task);
        let mut prompt = self.tokenizer.prompt(&self.generation, Some(language), Some(task))?;
        if spoken.timed.is_some() && self.tell_times() {
            // The last token announces that there are no timestamps.
            prompt.pop();
        }
        Ok(prompt)
    }

    fn text(&self, spoken: Spoken) -> Result<Vec<u32>, TokenizerError> {
        let (Some(timed), Some(first)) = (spoken.timed, self.times) else { return self.tokenizer.encode(spoken.text) };
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
        let most = (self.positions / 2 - 1).min(room.saturating_sub(1));
        if text.is_empty() || most == 0 {
            return Ok(Vec::new());
        }
        let mut tokens = vec![self.tokenizer.start_of_previous()?];
        tokens.extend(&text[text.len().saturating_sub(most)..]);
        Ok(tokens)
    }
}
