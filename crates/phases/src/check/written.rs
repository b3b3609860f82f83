//! Checks text sources, which tasks on a text backbone read.

use super::leak::Print;
use super::place::Look;
use super::report::{ProblemKind, Severity, SourceCheck, Spread};
use crate::SourceConfig;
use crate::backbone::TextBackbone;
use crate::config::{DataConfig, TaskConfig};
use crate::run::read_texts;
use undertone_data::records::{Origin, RecordsConfig};
use undertone_tasks::kinds::tag::TagConfig;
use undertone_tasks::{TextDataset, TextSample};
use undertone_train::BoxError;

/// Share of unknown tokens above which the vocabulary does not match the text.
const UNKNOWN: f64 = 0.05;

/// Share of records with one word above which a table has probably a row for each word, instead of for each sentence.
const ONE_WORD: f64 = 0.9;

type Read = (Vec<(Origin, String)>, Vec<Vec<String>>, TextDataset);

/// Checks text sources for a model.
pub(super) struct Written<'a> {
    pub data: &'a DataConfig,
    pub backbone: &'a TextBackbone,
}

impl Written<'_> {
    /// Checks a task's source.
    pub fn source(&self, look: &mut Look, source: &SourceConfig) -> (SourceCheck, Vec<Print>) {
        let task = look.place.task;
        let (limit, target_limit) = (task.head.max_input(), task.head.max_target());
        let mut check = SourceCheck { target_limit, ..SourceCheck::of(source, limit) };
        if let Err(reason) = task.head.fits(self.backbone.network.d_model(), self.backbone.max_tokens) {
            look.add(Severity::Failure, ProblemKind::Refused, 1, [reason]);
        }
        let (inputs, passages, dataset) = match self.read(task, source) {
            Ok(read) => read,
            Err(error) => {
                look.add(Severity::Failure, ProblemKind::Source, 1, [error.to_string()]);
                return (check, Vec::new());
            }
        };
        let (samples, all) = (dataset.samples(), inputs.len());
        check.samples = all;
        check.empty_texts = inputs.iter().filter(|(_, text)| text.trim().is_empty()).count();
        let empty = inputs.iter().filter(|(_, text)| text.trim().is_empty()).map(|(origin, _)| origin.to_string());
        look.add(Severity::Warning, ProblemKind::Empty, all, empty);
        if task.head.downcast_ref::<TagConfig>().is_some() {
            let words = inputs.iter().filter(|(_, text)| !text.trim().contains(char::is_whitespace));
            let words: Vec<String> = words.map(|(origin, _)| origin.to_string()).collect();
            if words.len() as f64 > ONE_WORD * all as f64 {
                look.add(Severity::Warning, ProblemKind::OneWord, all, words);
            }
        }
        check.tokens = Spread::of(samples.iter().map(|sample| sample.ids.len() as f64).collect(), 1.0);
        check.target_tokens = Spread::of(samples.iter().filter_map(written).collect(), 1.0);
        check.labels = task.head.label_counts(samples);
        for (severity, kind, count) in [
            (Severity::Note, ProblemKind::CutInput, dataset.cut().inputs),
            (Severity::Warning, ProblemKind::CutTarget, dataset.cut().targets),
        ] {
            look.found.add_unnamed(severity, kind, look.at, all, count);
        }
        if look.place.training() {
            let missing = check.labels.iter().filter(|(_, count)| **count == 0).map(|(label, _)| format!("`{label}`"));
            look.add(Severity::Warning, ProblemKind::NoSample, check.labels.len(), missing.collect::<Vec<_>>());
        }
        check.unknown_share = self.unknown(look, samples);
        let compared = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let mut passages = passages.into_iter();
        let print = |(origin, text): (Origin, String)| Print {
            name: origin.to_string(),
            recording: None,
            audio: None,
            seconds: None,
            text: compared(&text),
            passages: passages.next().unwrap_or_default().iter().map(|passage| compared(passage)).collect(),
            written: true,
        };
        (check, inputs.into_iter().map(print).collect())
    }

    /// Returns the texts and the passages of the records, and the samples made of them.
    fn read(&self, task: &TaskConfig, source: &SourceConfig) -> Result<Read, BoxError> {
        let records = RecordsConfig { skip: self.data.skip(), ..source.records()? };
        let (inputs, passages) = (task.head.texts(&records)?, task.head.passages(&records)?);
        Ok((inputs, passages, read_texts(self.data, task, source, &self.backbone.framer)?))
    }

    /// Returns the share of unknown tokens, if the vocabulary has a token for them.
    fn unknown(&self, look: &mut Look, samples: &[TextSample]) -> Option<f64> {
        let unknown =
            ["[UNK]", "<unk>"].into_iter().find_map(|token| self.backbone.tokenizer.inner().token_to_id(token))?;
        let all: usize = samples.iter().map(|sample| sample.ids.len()).sum();
        let count: usize = samples.iter().map(|s| s.ids.iter().filter(|id| **id == unknown).count()).sum();
        let share = count as f64 / all.max(1) as f64;
        let severity = if share > UNKNOWN { Severity::Warning } else { Severity::Note };
        look.found.add_unnamed(severity, ProblemKind::Unknown, look.at, all, count);
        Some(share)
    }
}

/// Returns the number of target tokens, special tokens included; `None` without a target.
fn written(sample: &TextSample) -> Option<f64> {
    Some(sample.target.written()).filter(|tokens| *tokens > 0).map(|tokens| tokens as f64)
}
