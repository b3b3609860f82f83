//! The batches of an optimizer step, and this rank's share of them.

use super::loss_terms::step_terms;
use crate::TrainError;
use crate::objective::{LossTerm, Objective};
use crate::tally::StepTerm;
use serde::{Deserialize, Serialize};

/// This rank's share of a step's batches, and what is known of the step over all ranks.
pub(crate) struct Plan {
    /// Those of this rank's batches.
    pub(super) batches: Vec<BatchPlan>,
    /// Loss terms, with their counts over the batches of all ranks.
    pub terms: Vec<StepTerm>,
    /// Names of the samples of all ranks, for messages.
    pub names: Vec<String>,
}

/// What a step is computed with, besides the model and the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSettings {
    /// Step number, from 1.
    pub step: u64,
    /// Seed of the step's random numbers. As it is the step's own, dropout is the same on any device and in any
    /// session.
    pub seed: u64,
    /// Factor on the loss.
    pub loss_scale: f64,
    pub learning_rate: f64,
}

/// One batch of a step.
pub(super) struct BatchPlan {
    /// Index in the step.
    pub place: usize,
    /// Weight of each loss term.
    pub weights: Vec<f64>,
}

/// Message of a rank about its batches of a step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Number of each batch, and its loss terms.
    pub terms: Vec<(usize, Vec<LossTerm>)>,
    pub names: Vec<String>,
    /// Whether the epoch has no more batches.
    pub ended: bool,
    pub interrupted: bool,
    pub failure: Option<String>,
}

impl Loaded {
    /// Makes the message about `batches`, of which there may be more. `numbers` are their numbers in the epoch.
    pub fn new<O: Objective>(objective: &O, batches: &[O::Batch], numbers: &[usize]) -> Self {
        Self {
            terms: numbers.iter().copied().zip(batches.iter().map(|batch| objective.loss_terms(batch))).collect(),
            names: batches.iter().flat_map(|batch| objective.names(batch)).collect(),
            ..Self::default()
        }
    }
}

impl Plan {
    /// Makes the plan of a step from the messages of all ranks. `numbers` are the numbers of this rank's batches, and
    /// `begin` is the number of the step's first batch.
    ///
    /// # Errors
    /// When batches have different loss terms.
    pub fn of(numbers: &[usize], begin: usize, received: Vec<Loaded>) -> Result<Self, TrainError> {
        let (mut batches, mut names) = (Vec::new(), Vec::new());
        for loaded in received {
            batches.extend(loaded.terms);
            names.extend(loaded.names);
        }
        // In the order of the batches in the step, whichever rank has them.
        batches.sort_by_key(|(number, _)| *number);
        let terms = step_terms(batches.iter().map(|(_, terms)| terms.as_slice()))?;
        let own = batches.into_iter().filter(|(number, _)| numbers.contains(number));
        let plan = |(number, terms): (usize, Vec<LossTerm>)| BatchPlan {
            place: number - begin,
            weights: terms.into_iter().map(|term| term.weight).collect(),
        };
        Ok(Self { batches: own.map(plan).collect(), terms, names })
    }
}
