//! Configuration of question answering.

use crate::TextError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undertone_model::heads::SpanHeadConfig;

/// Extraction of answers from a context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpanConfig {
    /// Maximum number of tokens of question and context; a longer context is split into windows.
    pub max_length: usize,
    /// Number of tokens that a window shares with the one before it.
    pub doc_stride: usize,
    /// Has no effect; kept so that earlier configurations are read.
    pub n_best: usize,
    /// Maximum number of tokens of an answer.
    pub max_answer_length: usize,
    /// Threshold by which the score of no answer must exceed that of the best answer; without it, every question has an
    /// answer.
    pub null_score_diff_threshold: Option<f32>,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

impl Default for SpanConfig {
    /// Customary values for SQuAD 1.1.
    fn default() -> Self {
        Self {
            max_length: 384,
            doc_stride: 128,
            n_best: 20,
            max_answer_length: 30,
            null_score_diff_threshold: None,
            dropout: SpanHeadConfig::default().dropout,
        }
    }
}

/// Maximum of `n_best`.
const MOST_ANSWERS: usize = 1000;

impl SpanConfig {
    pub(super) fn head_config(&self) -> SpanHeadConfig {
        SpanHeadConfig::new().with_dropout(self.dropout)
    }

    /// Checks the keys of windows, as far as they do not depend on questions.
    pub(super) fn check_windows(&self) -> Result<(), TextError> {
        if self.doc_stride < self.max_length {
            return Ok(());
        }
        let (stride, length) = (self.doc_stride, self.max_length);
        let reason =
            format!("`doc_stride` is {stride}: make it less than `max_length`, {length}, so that windows move on");
        Err(TextError::Config { reason })
    }

    /// Checks the keys of answers.
    pub(super) fn check_answers(&self) -> Result<(), TextError> {
        let fail = |reason: &str| Err(TextError::Config { reason: reason.into() });
        match self {
            Self { n_best: 0, .. } => fail("`n_best` is 0: keep at least 1 answer"),
            Self { n_best, .. } if *n_best > MOST_ANSWERS => {
                fail(&format!("`n_best` is {n_best}: keep at most {MOST_ANSWERS} answers"))
            }
            Self { max_answer_length: 0, .. } => fail("`max_answer_length` is 0: an answer has at least 1 token"),
            Self { null_score_diff_threshold: Some(threshold), .. } if threshold.is_nan() => {
                fail("`null_score_diff_threshold` is not a number: give 0 or a margin")
            }
            _ => Ok(()),
        }
    }
}
