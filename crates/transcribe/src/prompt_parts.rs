//! Parts of prompts that the options give.

use crate::error::TranscribeError;
use crate::options::TranscribeOptions;
use undertone_model::whisper::PretrainedWhisper;

/// Parts of a prompt that are the same for all recordings.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptParts {
    /// Tokens of the text before the first window.
    pub initial: Vec<u32>,
    /// Tokens of the words before every window.
    pub hotwords: Vec<u32>,
    /// Tokens that the first window's text begins with.
    pub prefix: Vec<u32>,
}

impl PromptParts {
    pub fn new(whisper: &PretrainedWhisper, options: &TranscribeOptions) -> Result<Self, TranscribeError> {
        // Half of the positions are for the text, and one token starts the context.
        let room = (whisper.config.max_target_positions / 2).saturating_sub(1);
        let tokens = |text: &Option<String>| -> Result<Vec<u32>, TranscribeError> {
            let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
                return Ok(Vec::new());
            };
            Ok(whisper.tokenizer.encode(&format!(" {text}"))?)
        };
        let fits = |option, tokens: usize, room: usize| match tokens > room {
            true => Err(TranscribeError::LongPrompt { option, tokens, room }),
            false => Ok(()),
        };
        let (mut initial, hotwords) = (tokens(&options.initial_prompt)?, tokens(&options.hotwords)?);
        let prefix = tokens(&options.prefix)?;
        fits("list of hotwords", hotwords.len(), room)?;
        fits("prefix", prefix.len(), room)?;
        // Context is cut at its beginning, like the text of earlier windows.
        let cut = initial.len().saturating_sub(room - hotwords.len());
        if cut > 0 {
            tracing::warn!(
                "the initial prompt is too long for the model's context: its first {cut} tokens are left out"
            );
            initial.drain(..cut);
        }
        let parts = Self { initial, hotwords, prefix };
        if !(parts.initial.is_empty() && parts.hotwords.is_empty()) {
            whisper.tokenizer.start_of_previous()?;
        }
        // A quarter of the positions is for what comes after all of them.
        let all = parts.initial.len() + parts.hotwords.len() + parts.prefix.len();
        fits("initial prompt with hotwords and prefix", all, whisper.config.max_target_positions / 4 * 3)?;
        Ok(parts)
    }
}
