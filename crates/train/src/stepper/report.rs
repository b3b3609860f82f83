//! Result of an optimizer step.

use super::loss_terms::TermShare;
use crate::gradients::BackwardMode;
use crate::tally::StepTerm;
use crate::{BatchStats, GradientSum};
use burn::tensor::Tensor;
use std::time::Duration;
use undertone_ops::{StepControl, StepNumbers, StepRules, read};

/// Measurements of an optimizer step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Step number, from 1.
    pub step: u64,
    /// Loss terms over the step's batches.
    pub terms: Vec<StepTerm>,
    /// Other values of the step's last batch, by name.
    pub gauges: Vec<(&'static str, f64)>,
    /// Loss: the weighted sum of the terms.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub norm: f64,
    /// Learning rate.
    pub rate: f64,
    /// Number of samples.
    pub samples: usize,
    /// Amount of work in the samples.
    pub work: BatchStats,
    /// Names of the samples, for messages.
    pub names: Vec<String>,
}

/// Outcome of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The parameters were updated.
    Taken,
    /// The parameters are unchanged, because of the loss or the gradient norm.
    Skipped,
    /// The model was reset to the last sound checkpoint.
    RolledBack,
}

/// An optimizer step before the update: gradients of its mean loss, summed over its batches.
pub(crate) struct ComputedStep {
    pub gradients: GradientSum,
    /// The loss, if the device decides by it. Otherwise it is in the report already.
    pub(super) losses: DeviceLosses,
    pub report: StepReport,
    /// Treatment of gradients during the last backward pass.
    pub(super) during: BackwardMode,
    /// Time of this rank's forward and backward passes.
    pub(super) computing: Duration,
}

/// Loss of a step on the device.
#[derive(Default)]
pub(super) struct DeviceLosses {
    /// Mean of each term over the step, `[1]`, without autodiff.
    means: Vec<Tensor<1>>,
    /// The same, times the weight in each batch.
    weighted: Vec<Tensor<1>>,
}

impl StepReport {
    /// Adds the contributions of one batch.
    pub(super) fn add(&mut self, shares: Vec<TermShare>) {
        for (TermShare { weight, mean }, term) in shares.into_iter().zip(&mut self.terms) {
            let mean = f64::from(read(mean)[0]);
            term.mean += mean;
            term.weighted += weight * mean;
            self.loss += weight * mean;
        }
    }

    /// Fills in the values that the device computed.
    pub(crate) fn fill(&mut self, numbers: &StepNumbers) {
        (self.loss, self.norm) = (numbers.loss, numbers.norm);
        let (means, weighted) = numbers.terms.split_at(self.terms.len());
        for ((term, mean), weighted) in self.terms.iter_mut().zip(means).zip(weighted) {
            (term.mean, term.weighted) = (*mean, *weighted);
        }
    }
}

impl DeviceLosses {
    /// Adds the contributions of one batch.
    pub fn add(&mut self, shares: Vec<TermShare>) {
        let (weights, means): (Vec<f64>, Vec<Tensor<1>>) =
            shares.into_iter().map(|share| (share.weight, share.mean)).unzip();
        let weighted = means.iter().zip(weights).map(|(mean, weight)| mean.clone().mul_scalar(weight));
        self.weighted = sums(std::mem::take(&mut self.weighted), weighted.collect());
        self.means = sums(std::mem::take(&mut self.means), means);
    }

    /// Makes the control by which the device decides, from the means and the weighted means. The sum of the latter is
    /// the loss.
    pub fn control(self, squares: Tensor<1>, rules: StepRules) -> StepControl {
        let weights: Vec<f64> = self.means.iter().map(|_| 0.0).chain(self.weighted.iter().map(|_| 1.0)).collect();
        StepControl::new(self.means.into_iter().chain(self.weighted).collect(), &weights, squares, rules)
    }
}

fn sums(sums: Vec<Tensor<1>>, more: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    if sums.is_empty() { more } else { sums.into_iter().zip(more).map(|(sum, x)| sum + x).collect() }
}
