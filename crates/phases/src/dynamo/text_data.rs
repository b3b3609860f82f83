//! Samples of text tasks: tokens for the backbone, and what should be answered.

use super::config::TaskConfig;
use super::head_config::HeadConfig;
use crate::text::{
    Framer, SpanWindow, TagFeatures, TextError, classify_features, seq2seq_features, span_windows, tag_features,
};
use crate::{SourceConfig, SourceError};
use std::sync::Arc;
use undertone_data::records::{ClassifyRecord, PairRecord, RecordsConfig, RecordsError, SpanRecord, TagRecord};

/// One row of tokens, and what should be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSample {
    /// What a person would call it: file and line.
    pub name: String,
    /// Tokens, special ones included.
    pub ids: Vec<u32>,
    /// As many types.
    pub type_ids: Vec<u32>,
    /// What should be answered.
    pub target: Target,
}

/// What should be answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A label's number.
    Label(usize),
    /// A span of a window of a question's context; a question has as many samples as windows.
    Span {
        /// The window.
        window: Arc<SpanWindow>,
        /// The question, its context and its answers.
        record: Arc<SpanRecord>,
    },
    /// A tag for each word.
    Tags {
        /// Where the words' tokens are.
        features: Arc<TagFeatures>,
        /// The words' tags.
        tags: Vec<usize>,
    },
    /// Text.
    Text {
        /// What it is to be made from.
        source: String,
        /// It, between the start and the end token.
        tokens: Vec<u32>,
        /// It, as it was written.
        text: String,
    },
}

impl Target {
    /// How many decisions it asks for: what its loss is divided by.
    pub fn count(&self) -> usize {
        match self {
            Self::Label(_) | Self::Span { .. } => 1,
            Self::Tags { features, .. } => features.labels.iter().filter(|label| **label >= 0).count(),
            Self::Text { tokens, .. } => tokens.len() - 1,
        }
    }
}

/// Why the records of a task cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextDataError {
    /// The hub did not give them.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file does not hold what the task needs.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// They do not become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// The samples of a task, in memory.
#[derive(Clone, Debug)]
pub struct TextDataset {
    samples: Vec<TextSample>,
    cut: Cut,
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Inputs that lost tokens.
    pub inputs: usize,
    /// Texts that lost tokens, sentences that lost words, and answers that are whole in no window.
    pub targets: usize,
}

impl TextDataset {
    /// Reads the records of `source` as the task's head needs them.
    ///
    /// # Errors
    /// Names the file and the line that does not fit.
    pub fn new(task: &TaskConfig, source: &SourceConfig, framer: &Framer) -> Result<Self, TextDataError> {
        let records = source.records()?;
        let mut cut = Cut::default();
        let samples = match &task.head {
            HeadConfig::Classify(head) => classify(&records, &head.labels, head.max_length, framer, &mut cut)?,
            HeadConfig::Span(head) => {
                let records: Vec<Arc<SpanRecord>> = SpanRecord::read(&records)?.into_iter().map(Arc::new).collect();
                let samples = spans(&records, &head.window(), framer)?;
                cut.targets = unreachable(&records, &samples);
                samples
            }
            HeadConfig::Tag(head) => tags(&records, &head.labels, head.max_length, framer, &mut cut)?,
            HeadConfig::Seq2seq(head) => texts(&records, head.max_source, head.max_target, framer, &mut cut)?,
        };
        Ok(Self { samples, cut })
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// A sample.
    pub fn get(&self, index: usize) -> TextSample {
        self.samples[index].clone()
    }

    /// All of them.
    pub fn samples(&self) -> &[TextSample] {
        &self.samples
    }

    /// A sample with the longest input of all and, where it is text that is to be answered, the longest of those; none of
    /// no samples.
    pub fn most_demanding(&self) -> Option<TextSample> {
        let mut longest = self.samples.iter().max_by_key(|sample| sample.ids.len())?.clone();
        let written = |sample: &TextSample| match &sample.target {
            Target::Text { tokens, .. } => tokens.len(),
            _ => 0,
        };
        if let Some(wordy) = self.samples.iter().max_by_key(|sample| written(sample)).filter(|s| written(s) > 0) {
            longest.target = wordy.target.clone();
        }
        Some(longest)
    }

    /// What did not fit.
    pub fn cut(&self) -> Cut {
        self.cut
    }
}

fn classify(
    config: &RecordsConfig,
    labels: &[String],
    max_length: usize,
    framer: &Framer,
    cut: &mut Cut,
) -> Result<Vec<TextSample>, TextDataError> {
    let records = ClassifyRecord::read(config, labels)?;
    let texts: Vec<_> = records.iter().map(|r| (r.text.as_str(), r.text_pair.as_deref())).collect();
    let rows = classify_features(framer, &texts, max_length)?;
    let samples = records.iter().zip(rows).map(|(record, row)| {
        cut.inputs += usize::from(row.cut > 0);
        let name = record.origin.to_string();
        TextSample { name, ids: row.ids, type_ids: row.type_ids, target: Target::Label(record.label) }
    });
    Ok(samples.collect())
}

/// The samples of questions that have been read: their windows.
pub(super) fn spans(
    records: &[Arc<SpanRecord>],
    config: &crate::text::WindowConfig,
    framer: &Framer,
) -> Result<Vec<TextSample>, TextDataError> {
    let plain: Vec<SpanRecord> = records.iter().map(|record| SpanRecord::clone(record)).collect();
    let samples = span_windows(framer, &plain, config)?.into_iter().map(|window| {
        let record = records[window.record].clone();
        TextSample {
            name: record.origin.to_string(),
            ids: window.ids.clone(),
            type_ids: window.type_ids.clone(),
            target: Target::Span { window: Arc::new(window), record },
        }
    });
    Ok(samples.collect())
}

/// How many questions have an answer that is whole in none of their windows.
fn unreachable(records: &[Arc<SpanRecord>], samples: &[TextSample]) -> usize {
    let mut found = vec![false; records.len()];
    for sample in samples {
        if let Target::Span { window, .. } = &sample.target {
            found[window.record] |= window.start > 0;
        }
    }
    records.iter().zip(found).filter(|(record, found)| !record.answers.is_empty() && !found).count()
}

fn tags(
    config: &RecordsConfig,
    labels: &[String],
    max_length: usize,
    framer: &Framer,
    cut: &mut Cut,
) -> Result<Vec<TextSample>, TextDataError> {
    let records = TagRecord::read(config, labels)?;
    let rows = tag_features(framer, &records, max_length)?;
    let samples = records.into_iter().zip(rows).map(|(record, row)| {
        cut.inputs += usize::from(row.cut > 0);
        cut.targets += usize::from(row.lost > 0);
        TextSample {
            name: record.origin.to_string(),
            ids: row.ids.clone(),
            type_ids: row.type_ids.clone(),
            target: Target::Tags { features: Arc::new(row), tags: record.tags },
        }
    });
    Ok(samples.collect())
}

fn texts(
    config: &RecordsConfig,
    max_source: usize,
    max_target: usize,
    framer: &Framer,
    cut: &mut Cut,
) -> Result<Vec<TextSample>, TextDataError> {
    let records = PairRecord::read(config)?;
    let pairs: Vec<_> = records.iter().map(|r| (r.source.as_str(), r.target.as_str())).collect();
    let rows = seq2seq_features(framer, &pairs, max_source, max_target)?;
    let samples = records.into_iter().zip(rows).map(|(record, row)| {
        cut.inputs += usize::from(row.source_cut > 0);
        cut.targets += usize::from(row.target_cut > 0);
        TextSample {
            name: record.origin.to_string(),
            ids: row.source,
            type_ids: row.source_type_ids,
            target: Target::Text { source: record.source, tokens: row.target, text: record.target },
        }
    });
    Ok(samples.collect())
}

/// Rows of tokens, padded to the longest.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBatch {
    /// What it is made of.
    pub samples: Vec<TextSample>,
    /// `[batch, tokens]`.
    pub ids: Vec<i64>,
    /// `[batch, tokens]`.
    pub type_ids: Vec<i64>,
    /// Tokens per row.
    pub tokens: usize,
}

impl TextBatch {
    /// About how much memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        // Ids twice, and once more what each sample holds of its own.
        3 * 8 * self.ids.len()
    }
}

/// Pads samples to a batch.
pub(super) fn collate_text(samples: Vec<TextSample>, pad: u32) -> TextBatch {
    let tokens = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or_default();
    let padded = |row: fn(&TextSample) -> &[u32], with: u32| -> Vec<i64> {
        samples.iter().flat_map(|sample| pad_row(row(sample), tokens, i64::from(with))).collect()
    };
    let ids = padded(|sample| &sample.ids, pad);
    let type_ids = padded(|sample| &sample.type_ids, 0);
    TextBatch { samples, ids, type_ids, tokens }
}

/// A row of numbers, filled up to a length.
pub(super) fn pad_row<T: Copy + Into<i64>>(row: &[T], length: usize, with: i64) -> impl Iterator<Item = i64> {
    row.iter().map(|x| (*x).into()).chain(std::iter::repeat(with)).take(length)
}
