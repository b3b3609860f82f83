//! What a task's answers are made by, and what they are judged by.

use crate::text::{AnswerConfig, WindowConfig};
use serde::{Deserialize, Serialize};
use undertone_data::records::OUTSIDE;
use undertone_model::heads::{ClassifyHeadConfig, Pooling, SpanHeadConfig, TagHeadConfig};
use undertone_model::text_decoder::TextDecoderConfig;

/// What a task's answers are made by: `head: {type: classify, labels: [negative, positive]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HeadConfig {
    /// Text. A speech backbone's own decoder writes it, told its task by a learned vector at the start token; over a text
    /// backbone a small decoder does.
    Seq2seq(Seq2seqConfig),
    /// One of several labels for a text.
    Classify(ClassifyConfig),
    /// A part of the context that answers a question.
    Span(SpanConfig),
    /// A tag for each word.
    Tag(TagConfig),
}

/// How text is written over a text backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2seqConfig {
    /// The decoder's blocks.
    pub layers: usize,
    /// Attention heads; divides the backbone's width.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Tokens of a source at most; what is longer is cut.
    pub max_source: usize,
    /// Tokens of a target at most, special ones included; what is longer is cut.
    pub max_target: usize,
    /// Dropout in the decoder, in training.
    pub dropout: f64,
}

/// How a text is classified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyConfig {
    /// Names of the labels; records have names or their numbers from 0.
    pub labels: Vec<String>,
    /// Tokens of a text at most; what is longer is cut.
    pub max_length: usize,
    /// Which states the label is read from: `cls` or `mean`.
    pub pooling: Pooling,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

/// How answers are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanConfig {
    /// Tokens of question and context at most; a longer context is cut into windows.
    pub max_length: usize,
    /// Tokens that a window shares with the one before it.
    pub doc_stride: usize,
    /// How many answers are kept and share the probability.
    pub n_best: usize,
    /// Tokens of an answer at most.
    pub max_answer_length: usize,
    /// By how much no answer must score above the best one to be believed; without it every question has an answer.
    pub null_score_diff_threshold: Option<f32>,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

/// How words are tagged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagConfig {
    /// Names of the tags, `O`, `B-person`, `I-person` and so on; records have names or their numbers from 0.
    pub labels: Vec<String>,
    /// Tokens of a sentence at most; words beyond are tagged `O`.
    pub max_length: usize,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

const WRITTEN: [&str; 7] = ["cer", "wer", "exact", "rouge1", "rouge2", "rouge_l", "bleu"];

impl Default for HeadConfig {
    fn default() -> Self {
        Self::Seq2seq(Seq2seqConfig::default())
    }
}

impl Default for Seq2seqConfig {
    fn default() -> Self {
        let decoder = TextDecoderConfig::default();
        Self {
            layers: decoder.layers,
            heads: decoder.heads,
            ffn: decoder.ffn,
            max_source: 256,
            max_target: decoder.max_length,
            dropout: decoder.dropout,
        }
    }
}

impl Default for ClassifyConfig {
    fn default() -> Self {
        let head = ClassifyHeadConfig::default();
        Self { labels: Vec::new(), max_length: 128, pooling: head.pooling, dropout: head.dropout }
    }
}

impl Default for SpanConfig {
    fn default() -> Self {
        let (window, answer, head) = (WindowConfig::default(), AnswerConfig::default(), SpanHeadConfig::default());
        Self {
            max_length: window.max_length,
            doc_stride: window.doc_stride,
            n_best: answer.n_best,
            max_answer_length: answer.max_answer_length,
            null_score_diff_threshold: answer.null_score_diff_threshold,
            dropout: head.dropout,
        }
    }
}

impl Default for TagConfig {
    fn default() -> Self {
        Self { labels: Vec::new(), max_length: 128, dropout: TagHeadConfig::default().dropout }
    }
}

impl HeadConfig {
    /// The metrics there are for it; the first is the one that decides where none is named.
    pub fn metrics(&self) -> &'static [&'static str] {
        match self {
            Self::Seq2seq(_) => &WRITTEN,
            Self::Classify(_) => &["accuracy", "macro_f1"],
            Self::Span(_) => &["f1", "exact_match"],
            Self::Tag(_) => &["entity_f1"],
        }
    }

    /// Tokens of an input at most, on a text backbone.
    pub(super) fn max_input(&self) -> usize {
        match self {
            Self::Seq2seq(config) => config.max_source,
            Self::Classify(config) => config.max_length,
            Self::Span(config) => config.max_length,
            Self::Tag(config) => config.max_length,
        }
    }

    /// Its name in YAML.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Seq2seq(_) => "seq2seq",
            Self::Classify(_) => "classify",
            Self::Span(_) => "span",
            Self::Tag(_) => "tag",
        }
    }

    /// Whether it makes sense on a backbone of text or of speech; if not, why.
    pub(super) fn validate(&self, text: bool) -> Result<(), String> {
        let sayable = |e: &dyn std::fmt::Display| Err(format!("`head`: {e}"));
        if !text {
            return match self {
                Self::Seq2seq(config) if *config == Seq2seqConfig::default() => Ok(()),
                Self::Seq2seq(_) => {
                    sayable(&"a speech backbone writes with its own decoder: leave out all but the type")
                }
                _ => sayable(&format!("`{}` is for text, and the backbone hears speech: use `seq2seq`", self.name())),
            };
        }
        match self {
            Self::Seq2seq(config) => {
                if config.max_source < 3 || config.max_target < 3 {
                    return sayable(&"`max_source` and `max_target` are at least 3: two tokens frame a text");
                }
                // The width is the backbone's, and checked once that is there.
                config.decoder().validate(config.heads).or_else(|e| sayable(&e))?;
            }
            Self::Classify(config) => {
                if config.labels.len() < 2 {
                    return sayable(&"`labels` are fewer than two: name those that a text can have");
                }
                config.head().validate().or_else(|e| sayable(&e))?;
            }
            Self::Span(config) => {
                config.head().validate().or_else(|e| sayable(&e))?;
                config.window().validate().or_else(|e| sayable(&e))?;
                config.answer().validate().or_else(|e| sayable(&e))?;
            }
            Self::Tag(config) => {
                if !config.labels.iter().any(|label| label == OUTSIDE) || config.labels.len() < 2 {
                    return sayable(&"`labels` need `O`, the tag of words outside of everything, and others");
                }
                let known = |label: &str| label == OUTSIDE || matches!(label.split('-').next(), Some("B" | "I"));
                if let Some(label) = config.labels.iter().find(|label| !known(label)) {
                    return sayable(&format!(
                        "`labels` has `{label}`: tags are `O`, `B-` and a type, or `I-` and a type"
                    ));
                }
                config.head().validate().or_else(|e| sayable(&e))?;
            }
        }
        Ok(())
    }

    /// What its weights were made for, without what may change after training.
    pub(super) fn trained(&self) -> Self {
        let mut head = self.clone();
        if let Self::Span(SpanConfig { n_best, max_answer_length, null_score_diff_threshold, .. }) = &mut head {
            let defaults = SpanConfig::default();
            (*n_best, *max_answer_length) = (defaults.n_best, defaults.max_answer_length);
            *null_score_diff_threshold = defaults.null_score_diff_threshold;
        }
        head
    }
}

impl Seq2seqConfig {
    pub(super) fn decoder(&self) -> TextDecoderConfig {
        TextDecoderConfig {
            layers: self.layers,
            heads: self.heads,
            ffn: self.ffn,
            max_length: self.max_target,
            dropout: self.dropout,
        }
    }
}

impl ClassifyConfig {
    pub(super) fn head(&self) -> ClassifyHeadConfig {
        ClassifyHeadConfig::new().with_pooling(self.pooling).with_dropout(self.dropout)
    }
}

impl SpanConfig {
    pub(super) fn head(&self) -> SpanHeadConfig {
        SpanHeadConfig::new().with_dropout(self.dropout)
    }

    pub(super) fn window(&self) -> WindowConfig {
        WindowConfig { max_length: self.max_length, doc_stride: self.doc_stride }
    }

    pub(super) fn answer(&self) -> AnswerConfig {
        AnswerConfig {
            n_best: self.n_best,
            max_answer_length: self.max_answer_length,
            null_score_diff_threshold: self.null_score_diff_threshold,
        }
    }
}

impl TagConfig {
    pub(super) fn head(&self) -> TagHeadConfig {
        TagHeadConfig::new().with_dropout(self.dropout)
    }
}
