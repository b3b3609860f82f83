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
        let tokens = |text: &Option<String>, option| -> Result<Vec<u32>, TranscribeError> {
            let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
                return Ok(Vec::new());
            };
            let tokens = whisper.tokenizer.encode(&format!(" {text}"))?;
            if tokens.len() > room {
                return Err(TranscribeError::LongPrompt { option, tokens: tokens.len(), room });
            }
            Ok(tokens)
        };
        let parts = Self {
            initial: tokens(&options.initial_prompt, "initial prompt")?,
            hotwords: tokens(&options.hotwords, "hotwords")?,
            prefix: tokens(&options.prefix, "prefix")?,
        };
        let together = parts.initial.len() + parts.hotwords.len();
        if together > room {
            return Err(TranscribeError::LongPrompt { option: "initial prompt with hotwords", tokens: together, room });
        }
        if together > 0 {
            whisper.tokenizer.start_of_previous()?;
        }
        Ok(parts)
    }
}
