//! Forward and backward pass of one batch.

use super::loss_terms::{TermShare, scaled_loss, shares};
use super::plan::{BatchPlan, StepSettings};
use super::workers::Concurrency;
use crate::gradients::BackwardMode;
use crate::objective::Objective;
use crate::stopwatch::{Parts, Section, Stopwatch};
use crate::tally::StepTerm;
use crate::{BatchStats, GradientSum, TrainError};
use burn::module::Module;
use burn::tensor::Device;
use undertone_ops::{Compute, autocast, on_pool, on_upload_stream, seeds};

/// Arguments that the passes of all batches of an optimizer step share.
pub(super) struct BatchPasses<'a, O: Objective> {
    pub objective: &'a O,
    pub device: &'a Device,
    pub compute: Compute,
    /// Loss terms, with their counts over the step.
    pub terms: &'a [StepTerm],
    pub settings: StepSettings,
}

/// Contribution of one batch to an optimizer step.
pub(super) struct BatchResult {
    pub gradients: GradientSum,
    pub shares: Vec<TermShare>,
    pub samples: usize,
    pub work: BatchStats,
}

impl<O: Objective> BatchPasses<'_, O> {
    /// Runs both passes of a batch, with `during` in the backward pass. Dropout depends on the step and the batch's
    /// index alone, so it is the same at any time, on any rank and in any thread.
    fn run(
        &self,
        model: &O::Model,
        plan: &BatchPlan,
        batch: &mut O::Batch,
        during: &mut BackwardMode,
        watch: &mut Stopwatch,
    ) -> Result<BatchResult, TrainError> {
        let (place, seed) = (plan.place as u64, self.settings.seed);
        undertone_ops::seed(if place == 0 { seed } else { seeds::of_number(seed, place) });
        autocast(self.compute, || {
            let shares = self.forward(model, plan, batch, watch)?;
            during.begin()?;
            watch.lap(Section::Ranks, self.device);
            let (gradients, shares) = self.backward(model, shares, during);
            watch.lap(Section::Backward, self.device);
            let (samples, work) = (self.objective.samples(batch), self.objective.work(model, batch));
            Ok(BatchResult { gradients, shares, samples, work })
        })
    }

    /// Runs both passes of batches that are computed at the same time. `during` applies to the backward pass of a batch
    /// that is computed alone. The stopwatch divides the lap between sections in the same proportions as the batches
    /// did.
    pub fn round(
        &self,
        concurrency: &Concurrency,
        model: &O::Model,
        batches: &mut [O::Batch],
        plans: &[BatchPlan],
        during: &mut BackwardMode,
        watch: &mut Stopwatch,
    ) -> Vec<Result<BatchResult, TrainError>> {
        let Concurrency::SideBySide(workers) = concurrency else {
            // MPI may be called by one thread alone.
            let alone = matches!(during, BackwardMode::Nothing);
            let model = model.clone();
            let mut run = move || {
                let batches = batches.iter_mut().zip(plans);
                batches.map(|(batch, plan)| self.run(&model, plan, batch, during, watch)).collect()
            };
            return if alone { on_pool(self.device, run) } else { run() };
        };
        // Each group has its own copy of the model, because Burn keeps graphs that share a parameter behind one lock.
        let models = (0..workers.groups().min(batches.len())).map(|_| model.clone().fork(self.device)).collect();
        let results = workers.run(models, batches.iter_mut(), |model, index, batch| {
            let mut watch = Stopwatch::new(false);
            let result = self.run(model, &plans[index], batch, &mut BackwardMode::Nothing, &mut watch);
            (result, watch.parts())
        });
        let (results, times): (Vec<_>, Vec<Parts>) = results.into_iter().unzip();
        watch.lap_like(&times);
        results
    }

    fn forward(
        &self,
        model: &O::Model,
        plan: &BatchPlan,
        batch: &mut O::Batch,
        watch: &mut Stopwatch,
    ) -> Result<Vec<TermShare>, TrainError> {
        let _span = tracing::debug_span!("forward", step = self.settings.step).entered();
        let input = on_upload_stream(self.device, || self.objective.upload(batch, self.device));
        let input = input.map_err(TrainError::Data)?;
        watch.lap(Section::Transfer, self.device);
        let sums = self.objective.losses(model, batch, input, self.device).map_err(TrainError::Data)?;
        let shares = shares(self.terms, &plan.weights, sums)?;
        watch.lap(Section::Forward, self.device);
        Ok(shares)
    }

    fn backward(
        &self,
        model: &O::Model,
        shares: Vec<TermShare>,
        during: &mut BackwardMode,
    ) -> (GradientSum, Vec<TermShare>) {
        let _span = tracing::debug_span!("backward", step = self.settings.step).entered();
        let loss = scaled_loss(&shares, self.settings.loss_scale);
        // Nothing may keep the graph alive during the backward pass, or its tensors stay until the end.
        let inner = |TermShare { weight, mean }| TermShare { weight, mean: mean.inner() };
        let shares = shares.into_iter().map(inner).collect();
        let gradients = loss.map(|loss| during.backward(model, loss)).unwrap_or_default();
        (gradients, shares)
    }
}
