//! Forward and backward pass of one batch.

use super::loss_terms::{TermShare, WindowTerms, scaled_loss};
use super::workers::Concurrency;
use crate::gradients::BackwardMode;
use crate::objective::Objective;
use crate::stopwatch::{Parts, Section, Stopwatch};
use crate::{BatchStats, GradientSum, TrainError};
use burn::module::Module;
use burn::tensor::Device;
use std::sync::{Mutex, PoisonError};
use undertone_ops::{Compute, autocast, on_upload_stream, seeds};

/// Arguments that the passes of all batches of an optimizer step share.
pub(super) struct BatchPasses<'a, O: Objective> {
    pub objective: &'a O,
    pub device: &'a Device,
    pub compute: Compute,
    pub terms: &'a Mutex<WindowTerms>,
    /// Factor on the loss.
    pub scale: f64,
    /// Step number, from 1, and the seed of its random numbers.
    pub step: u64,
    pub seed: u64,
}

/// Contribution of one batch to an optimizer step.
pub(super) struct BatchResult {
    pub gradients: GradientSum,
    pub shares: Vec<TermShare>,
    pub samples: usize,
    pub work: BatchStats,
}

impl<O: Objective> BatchPasses<'_, O> {
    /// Runs both passes of the batch at index `place` of the step, with `during` in the backward pass. Dropout depends
    /// on the step and the index alone, so it is the same at any time, on any rank and in any thread.
    ///
    /// # Errors
    /// When the batch does not fit the model, or its loss terms are not those of the batches before.
    fn run(
        &self,
        model: &O::Model,
        place: usize,
        batch: &mut O::Batch,
        during: &mut BackwardMode,
        watch: &mut Stopwatch,
    ) -> Result<BatchResult, TrainError> {
        undertone_ops::seed(if place == 0 { self.seed } else { seeds::of_number(self.seed, place as u64) });
        autocast(self.compute, || {
            let shares = self.forward(model, batch, watch)?;
            during.begin()?;
            watch.lap(Section::Ranks, self.device);
            let (gradients, shares) = self.backward(model, shares, during);
            watch.lap(Section::Backward, self.device);
            let (samples, work) = (self.objective.samples(batch), self.objective.work(model, batch));
            Ok(BatchResult { gradients, shares, samples, work })
        })
    }

    /// Runs both passes of batches that are computed at the same time. `places` are their indices in the step. `during`
    /// applies to the backward pass of a batch that is computed alone. The stopwatch divides the lap between sections
    /// in the same proportions as the batches did.
    pub fn round(
        &self,
        concurrency: &Concurrency,
        model: &O::Model,
        batches: &mut [O::Batch],
        places: &[usize],
        during: &mut BackwardMode,
        watch: &mut Stopwatch,
    ) -> Vec<Result<BatchResult, TrainError>> {
        let Concurrency::SideBySide(workers) = concurrency else {
            let batches = batches.iter_mut().zip(places);
            return batches.map(|(batch, place)| self.run(model, *place, batch, during, watch)).collect();
        };
        // Each group has its own copy of the model, because Burn keeps graphs that share a parameter behind one lock.
        let models = (0..workers.groups().min(batches.len())).map(|_| model.clone().fork(self.device)).collect();
        let results = workers.run(models, batches.iter_mut(), |model, index, batch| {
            let mut watch = Stopwatch::new(false);
            let result = self.run(model, places[index], batch, &mut BackwardMode::Nothing, &mut watch);
            (result, watch.parts())
        });
        let (results, times): (Vec<_>, Vec<Parts>) = results.into_iter().unzip();
        watch.lap_like(&times);
        results
    }

    fn forward(
        &self,
        model: &O::Model,
        batch: &mut O::Batch,
        watch: &mut Stopwatch,
    ) -> Result<Vec<TermShare>, TrainError> {
        let _span = tracing::debug_span!("forward", step = self.step).entered();
        let input = on_upload_stream(self.device, || self.objective.upload(batch, self.device));
        let input = input.map_err(TrainError::Data)?;
        watch.lap(Section::Transfer, self.device);
        let losses = self.objective.losses(model, batch, input, self.device).map_err(TrainError::Data)?;
        let shares = self.terms.lock().unwrap_or_else(PoisonError::into_inner).shares(losses)?;
        watch.lap(Section::Forward, self.device);
        Ok(shares)
    }

    fn backward(
        &self,
        model: &O::Model,
        shares: Vec<TermShare>,
        during: &mut BackwardMode,
    ) -> (GradientSum, Vec<TermShare>) {
        let _span = tracing::debug_span!("backward", step = self.step).entered();
        let loss = scaled_loss(&shares, self.scale);
        // Nothing may keep the graph alive during the backward pass, or its tensors stay until the end.
        let inner = |TermShare { weight, mean }| TermShare { weight, mean: mean.inner() };
        let shares = shares.into_iter().map(inner).collect();
        let gradients = loss.map(|loss| during.backward(model, loss)).unwrap_or_default();
        (gradients, shares)
    }
}
