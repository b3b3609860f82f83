//! What needs no model: the answers that a task's metrics are to be compared with.

use super::answer::Answer;
use super::batch::{TaskDataset, TaskSamples};
use super::config::TaskConfig;
use super::evaluate::{Judged, Scoring};
use super::head_config::HeadConfig;
use super::text_data::{Target, TextDataset, TextSample};
use crate::TextNormalizer;
use std::collections::BTreeMap;
use undertone_train::BoxError;

/// An answer that needs no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trivial {
    /// The most frequent label, no entity, the source as it is.
    Copy,
    /// The first sentence: of the source, or of the context.
    Lead,
}

impl Trivial {
    /// The heads it has answers for.
    pub fn answers(self, head: &HeadConfig) -> bool {
        match self {
            Self::Copy => !matches!(head, HeadConfig::Span(_)),
            Self::Lead => matches!(head, HeadConfig::Span(_) | HeadConfig::Seq2seq(_)),
        }
    }

    /// Its scores on `judged`; labels are counted in `train`.
    pub fn judge(self, tasks: &[TaskConfig], train: &TaskDataset, judged: &TaskDataset) -> Result<Judged, BoxError> {
        let mut scoring = Scoring::new(tasks, &TextNormalizer::None);
        for (task, (train, judged)) in train.tasks().iter().zip(judged.tasks()).enumerate() {
            let (TaskSamples::Text(train), TaskSamples::Text(judged)) = (train, judged) else { continue };
            let label = frequent_label(&tasks[task].head, train);
            for sample in judged.samples() {
                scoring.add_text(task, sample, Some(&self.answer(sample, &label)))?;
            }
        }
        scoring.finish()
    }

    fn answer(self, sample: &TextSample, label: &str) -> Answer {
        match &sample.target {
            Target::Label(_) => Answer::Label(label.to_owned()),
            Target::Tags { .. } => Answer::Text(String::new()),
            Target::Text { source, .. } if self == Self::Lead => Answer::Text(first_sentence(source).to_owned()),
            Target::Text { source, .. } => Answer::Text(source.clone()),
            Target::Span { record, .. } => Answer::Text(first_sentence(&record.context).to_owned()),
        }
    }
}

fn frequent_label(head: &HeadConfig, train: &TextDataset) -> String {
    let HeadConfig::Classify(config) = head else { return String::new() };
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for sample in train.samples() {
        if let Target::Label(label) = sample.target {
            *counts.entry(label).or_default() += 1;
        }
    }
    let most = counts.iter().rev().max_by_key(|(_, count)| **count);
    most.map_or(String::new(), |(label, _)| config.labels[*label].clone())
}

/// Up to the first full stop, question or exclamation mark that white space follows.
fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let ends = text.char_indices().zip(text.chars().skip(1)).find_map(|((at, c), next)| {
        (matches!(c, '.' | '?' | '!') && next.is_whitespace()).then_some(at + c.len_utf8())
    });
    &text[..ends.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_at_a_mark_before_white_space() {
        assert_eq!(first_sentence(" It is 3.5 m. It fell."), "It is 3.5 m.");
        assert_eq!(first_sentence("No end"), "No end");
        assert_eq!(first_sentence("Über! So"), "Über!");
    }
}
