//! Evaluation shared by several ranks: each computes the answers to its batches and sends them to the others.

use super::batch::{References, TaskBatch};
use super::scoring::{Answered, Asked};
use crate::SampleFacts;
use crate::config::TaskConfig;
use serde::{Deserialize, Serialize};
use undertone_report::RoutedSample;
use undertone_tasks::Answer;
use undertone_train::{BoxError, ProcessGroup, TrainError};

/// Answers to a batch that a rank sends to the others. Floating-point numbers are sent as bits, because JSON has no
/// NaN.
#[derive(Serialize, Deserialize)]
pub(super) struct SharedAnswers {
    /// Index of the batch.
    pub number: usize,
    /// References of a batch of speech, which the other ranks have not loaded.
    pub spoken: Option<Spoken>,
    chosen: Vec<usize>,
    answers: Vec<String>,
    losses: Vec<u32>,
    /// Task, router probabilities and confidence of each sample.
    routed: Vec<(usize, Vec<u32>, u32)>,
}

/// References of a batch of speech.
#[derive(Serialize, Deserialize)]
pub(super) struct Spoken {
    tasks: Vec<usize>,
    decisions: Vec<f64>,
    names: Vec<String>,
    texts: Vec<String>,
    facts: Vec<SampleFacts>,
}

impl SharedAnswers {
    /// Packs the answers to batch `number`; `None` if some answer cannot be serialised.
    pub fn of(number: usize, batch: &TaskBatch, answered: &Answered, tasks: &[TaskConfig]) -> Option<Self> {
        let Answered { losses, routed, chosen, answers } = answered;
        let answers = answers.iter().zip(chosen).map(|(answer, task)| tasks[*task].head.pack(answer));
        let spoken = match batch.input.references() {
            References::Speech { names, texts, facts } => Some(Spoken {
                tasks: batch.tasks.clone(),
                decisions: (0..tasks.len()).map(|task| batch.decisions_of(task)).collect(),
                names: names.to_vec(),
                texts: texts.to_vec(),
                facts: facts.to_vec(),
            }),
            References::Text(_) => None,
        };
        let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect();
        let sample = |sample: &RoutedSample| (sample.task, bits(&sample.gates), sample.confidence.to_bits());
        Some(Self {
            number,
            spoken,
            chosen: chosen.clone(),
            answers: answers.collect::<Option<_>>()?,
            losses: bits(losses),
            routed: routed.iter().map(sample).collect(),
        })
    }

    /// Unpacks the answers.
    pub fn answered(self, tasks: &[TaskConfig]) -> Result<Answered, BoxError> {
        let Self { chosen, answers, losses, routed, .. } = self;
        let floats = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
        let answer = |(packed, task): (String, &usize)| -> Option<Answer> { tasks.get(*task)?.head.unpack(&packed) };
        let answers = answers.into_iter().zip(&chosen).map(answer).collect::<Option<_>>();
        let sample = |(task, gates, confidence)| RoutedSample {
            task,
            gates: floats(gates),
            confidence: f32::from_bits(confidence),
        };
        Ok(Answered {
            answers: answers.ok_or("another rank sent an answer that does not fit the head of its task")?,
            losses: floats(losses),
            routed: routed.into_iter().map(sample).collect(),
            chosen,
        })
    }
}

impl Spoken {
    /// Returns them in the form for scoring.
    pub fn asked(&self) -> Asked<'_> {
        let Self { tasks, decisions, names, texts, facts } = self;
        Asked { tasks, decisions: decisions.clone(), rows: References::Speech { names, texts, facts } }
    }
}

/// Gathers the answers of all ranks, in the order of batches; `None` if some rank has an answer that cannot be
/// serialised. An error on one rank is an error on all.
pub(super) fn gather(
    process_group: &ProcessGroup,
    own: Result<Option<Vec<SharedAnswers>>, BoxError>,
) -> Result<Option<Vec<SharedAnswers>>, BoxError> {
    let (sent, error) = match own {
        Ok(answers) => (Ok(answers), None),
        Err(error) => (Err(error.to_string()), Some(error)),
    };
    let mut all = Vec::new();
    let mut complete = true;
    let mut failed = None;
    for (rank, received) in process_group.all_gather(sent)?.into_iter().enumerate() {
        match received {
            Ok(Some(answers)) => all.extend(answers),
            Ok(None) => complete = false,
            Err(message) => failed = failed.or(Some((rank, message))),
        }
    }
    if let Some(error) = error {
        return Err(error);
    }
    if let Some((rank, message)) = failed {
        return Err(TrainError::Rank { rank: process_group.name(rank), message }.into());
    }
    all.sort_by_key(|answers| answers.number);
    Ok(complete.then_some(all))
}
