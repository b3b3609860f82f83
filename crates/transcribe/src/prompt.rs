//! Prompts: what a decoder reads before it writes.

use crate::options::Language;
use crate::transcriber::Transcriber;
use crate::transcript::DetectedLanguage;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use undertone_model::whisper::{TokenizerError, language_code};
use undertone_ops::log_sum_exp;

impl Transcriber {
    /// Maximum number of tokens of a window's text.
    pub(crate) fn most_tokens(&self) -> usize {
        self.whisper.config.max_target_positions / 2
    }

    /// Returns the tokens of start, language and task, and that for no timestamps.
    pub(crate) fn start(&self, language: Option<&str>, task: Option<&str>) -> Result<Vec<u32>, TokenizerError> {
        let task = task.or(self.options.task.as_deref());
        self.whisper.tokenizer.prompt(&self.whisper.generation, language, task)
    }

    /// Returns the prompt of a window: the hotwords and the end of `context`, `start`, and for the first window the prefix.
    pub(crate) fn prompt(&self, context: &[u32], start: &[u32], first: bool) -> Vec<u32> {
        let hotwords = &self.parts.hotwords;
        let room = (self.most_tokens() - 1).saturating_sub(hotwords.len());
        let context = &context[context.len().saturating_sub(room)..];
        let mut prompt = Vec::new();
        if !hotwords.is_empty() || !context.is_empty() {
            // Checked when the parts were made; without context there is none.
            prompt.extend(self.whisper.tokenizer.start_of_previous().ok());
            prompt.extend_from_slice(hotwords);
            prompt.extend_from_slice(context);
        }
        prompt.extend_from_slice(start);
        if first {
            prompt.extend_from_slice(&self.parts.prefix);
        }
        prompt
    }

    /// Returns the language of recordings, if it need not be detected: that of a model that has no choice, or none.
    pub(crate) fn known_language(&self) -> Option<Option<DetectedLanguage>> {
        let known = |code: String| Some(Some(DetectedLanguage { code, probability: None }));
        if !self.whisper.generation.is_multilingual {
            let only = self.whisper.only_language().map(str::to_owned);
            return Some(only.map(|code| DetectedLanguage { code, probability: None }));
        }
        let languages = self.whisper.tokenizer.languages();
        match &self.options.language {
            Language::Code(given) => known(language_code(given).into_owned()),
            Language::OfModel if self.whisper.generation.language.is_some() => {
                known(self.whisper.generation.language.clone()?)
            }
            // What is no speech has no language to detect.
            _ if self.reader().is_some() || languages.is_empty() => Some(None),
            _ if languages.len() == 1 => known(code_of(languages.first_key_value()?.0)),
            _ => None,
        }
    }

    /// Detects the language of windows: the most probable language token after the start token.
    pub(crate) fn detect(&self, states: Tensor<3>) -> Vec<DetectedLanguage> {
        let languages: Vec<(String, u32)> = self.whisper.tokenizer.languages().into_iter().collect();
        let (rows, decoder) = (states.dims()[0], &self.whisper.model.decoder);
        let start = vec![i64::from(self.whisper.tokenizer.start()); rows];
        let start = Tensor::<2, Int>::from_data(TensorData::new(start, [rows, 1]), &states.device());
        let states = decoder.forward(start, &mut decoder.cache(states, None));
        let logits = decoder.logits(states).cast(FloatDType::F32);
        let vocab_size = logits.dims()[2];
        let logits = undertone_ops::read(logits);
        let of_row = |row: &[f32]| {
            let scores: Vec<f32> = languages.iter().map(|(_, id)| row[*id as usize]).collect();
            let sum = log_sum_exp(&scores);
            let best = languages.iter().zip(&scores).max_by(|a, b| a.1.total_cmp(b.1));
            best.map(|((token, _), score)| DetectedLanguage {
                code: code_of(token),
                probability: Some((score - sum).exp()),
            })
        };
        logits.chunks_exact(vocab_size).filter_map(of_row).collect()
    }
}

/// Code of a language token.
fn code_of(token: &str) -> String {
    token.trim_matches(['<', '|', '>']).to_owned()
}
