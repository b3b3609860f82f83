//! What an optimizer step found, and what became of it.

use super::loss_terms::TermShare;
use super::recovery::StateBeforeStep;
use crate::gradients::BackwardMode;
use crate::stopwatch::RankStep;
use crate::tally::StepTerm;
use crate::{BatchStats, GradientSum};
use burn::tensor::Tensor;
use std::time::Duration;
use undertone_ops::{StepControl, StepNumbers, StepReading, StepRules, read};

/// What an optimizer step found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// The step, from 1.
    pub step: u64,
    /// The loss terms over the step's batches.
    pub terms: Vec<StepTerm>,
    /// Other numbers of the step's last batch, by name.
    pub gauges: Vec<(&'static str, f64)>,
    /// The loss: the weighted sum of the terms.
    pub loss: f64,
    /// The length of all gradients together, before they were clipped.
    pub norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// How many samples the step had.
    pub samples: usize,
    /// How much there was in them to do.
    pub work: BatchStats,
    /// What a person calls its samples.
    pub names: Vec<String>,
}

/// What became of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The parameters have moved.
    Taken,
    /// They are those before the step: its numbers were none to go on with.
    Skipped,
    /// The model is that of the last checkpoint.
    RolledBack,
}

/// An optimizer step before the parameters move: gradients of its mean loss, summed over its batches.
pub(super) struct ComputedStep {
    pub gradients: GradientSum,
    /// The loss where the device decides by it; else it stands in the report already.
    pub losses: DeviceLosses,
    pub report: StepReport,
    /// What was done with gradients while the last backward pass went on.
    pub during: BackwardMode,
    /// How long the backward and forward passes took here.
    pub computing: Duration,
    /// What the step was like on each rank, where there are several.
    pub ranks: Option<RankStep>,
}

/// A step whose numbers the host has not read. Whether its parameters moved was decided on the device.
pub(super) struct PendingStep {
    pub report: StepReport,
    pub reading: StepReading,
    /// What the step changed of the state before they moved.
    pub start: StateBeforeStep,
}

/// The loss of a step where it was computed.
#[derive(Default)]
pub(super) struct DeviceLosses {
    /// Of each term its mean over the step, `[1]`, without autodiff.
    means: Vec<Tensor<1>>,
    /// The same times the weight that each batch gave it.
    weighted: Vec<Tensor<1>>,
}

impl StepReport {
    /// Adds what the terms of one batch were, by their weights.
    pub(super) fn add(&mut self, shares: Vec<TermShare>) {
        for (TermShare { weight, mean }, term) in shares.into_iter().zip(&mut self.terms) {
            let mean = f64::from(read(mean)[0]);
            term.mean += mean;
            term.weighted += weight * mean;
            self.loss += weight * mean;
        }
    }

    /// Takes over what the device found.
    pub(super) fn fill(&mut self, numbers: &StepNumbers) {
        (self.loss, self.norm) = (numbers.loss, numbers.norm);
        let (means, weighted) = numbers.terms.split_at(self.terms.len());
        for ((term, mean), weighted) in self.terms.iter_mut().zip(means).zip(weighted) {
            (term.mean, term.weighted) = (*mean, *weighted);
        }
    }
}

impl DeviceLosses {
    /// Adds what the terms of one batch were.
    pub fn add(&mut self, shares: Vec<TermShare>) {
        let (weights, means): (Vec<f64>, Vec<Tensor<1>>) =
            shares.into_iter().map(|share| (share.weight, share.mean)).unzip();
        let weighted = means.iter().zip(weights).map(|(mean, weight)| mean.clone().mul_scalar(weight));
        self.weighted = sums(std::mem::take(&mut self.weighted), weighted.collect());
        self.means = sums(std::mem::take(&mut self.means), means);
    }

    /// What the device decides by: means and weighted means, the latter of which make the loss.
    pub fn control(self, squares: Tensor<1>, rules: StepRules) -> StepControl {
        let weights: Vec<f64> = self.means.iter().map(|_| 0.0).chain(self.weighted.iter().map(|_| 1.0)).collect();
        StepControl::new(self.means.into_iter().chain(self.weighted).collect(), &weights, squares, rules)
    }
}

fn sums(sums: Vec<Tensor<1>>, more: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    if sums.is_empty() { more } else { sums.into_iter().zip(more).map(|(sum, x)| sum + x).collect() }
}
