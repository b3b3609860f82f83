//! Coordination of the ranks that train together: checks that they train the same run, and sums over their parts of
//! each optimizer step.

use super::Learner;
use super::step_report::{ComputedStep, StepReport};
use crate::gradients::{BUCKET, BackwardMode, EarlySums, OrderRecorder, Overlap, ReceivedEarly, RecordedOrder};
use crate::objective::{Batches, Objective};
use crate::optimizer::Moved;
use crate::shard::Shard;
use crate::stopwatch::RankStep;
use crate::{BatchStats, GradientSum, ProcessGroup, TrainError};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use undertone_ops::read;
use undertone_store::{HostTensor, frozen_checksum, trainable_parameters};

/// Message of a rank about its part of a step, without the numbers that are summed.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    audio_seconds: Option<f64>,
    tokens: Option<f64>,
    flops: Option<f64>,
    /// Seconds of its forward and backward passes.
    computing: f64,
}

/// Properties of a run that have to be the same on all ranks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    version: String,
    configuration: Option<String>,
    /// Batches of the first epoch, and batches of a step.
    batching: (usize, usize),
    /// Fingerprint of the training samples.
    fingerprint: u64,
    step: u64,
    /// Checksum of all parameters.
    checksum: u32,
}

impl<O: Objective> Learner<O> {
    /// Refuses ranks that would not train the same run.
    pub(super) fn compare_ranks<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<(), TrainError> {
        if self.process_group.is_alone() {
            return Ok(());
        }
        let own = Run {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: self.configuration.clone(),
            batching: self.batching(batches),
            fingerprint: batches.fingerprint(),
            step: self.state.step,
            checksum: frozen_checksum(&self.model().clone().no_grad()),
        };
        let runs = self.process_group.all_gather(own)?;
        for (rank, run) in runs.iter().enumerate() {
            if let Some(what) = runs[0].differs_from(run) {
                return Err(TrainError::RanksDiffer { rank: self.process_group.name(rank), what });
            }
        }
        Ok(())
    }

    /// Combines the parts of all ranks into the whole step. An error of one rank becomes an error of all.
    pub(super) fn share_out(&mut self, part: Result<ComputedStep, TrainError>) -> Result<ComputedStep, TrainError> {
        if self.process_group.is_alone() {
            return part;
        }
        let part = self.with_early_sums(part);
        let (mut computed, early) = self.process_group.all_ok(part)?;
        self.plan_overlap(std::mem::take(&mut computed.during))?;
        let report = &mut computed.report;
        let parts = self.process_group.all_gather(Part::of(report, computed.computing))?;
        report.work = parts.iter().map(Part::work).fold(BatchStats::default(), |mut sum, work| {
            sum += work;
            sum
        });
        let own = [report.loss, report.samples as f64].into_iter();
        let own: Vec<f64> = own.chain(report.terms.iter().flat_map(|term| [term.mean, term.weighted])).collect();
        let totals = self.process_group.all_reduce_sum(&own)?;
        (report.loss, report.samples) = (totals[0], totals[1] as usize);
        for (term, sums) in report.terms.iter_mut().zip(totals[2..].chunks_exact(2)) {
            (term.mean, term.weighted) = (sums[0], sums[1]);
        }
        computed.gradients.all_reduce(&self.process_group, early, self.shard(), &self.device.clone().inner())?;
        let (waited, on_the_way) = self.process_group.time_on_the_way();
        let computing = parts.iter().map(|part| part.computing).collect();
        computed.ranks = Some(RankStep { computing, waited, on_the_way });
        Ok(computed)
    }

    /// Returns the treatment of gradients during the backward pass of a step's next batches. `gradients` are those of
    /// the batches before.
    pub(super) fn during_backward(&self, last: bool, gradients: &mut GradientSum) -> BackwardMode {
        if self.process_group.is_alone() || !last || self.concurrency.at_a_time() > 1 {
            return BackwardMode::Nothing;
        }
        match (&self.overlap, self.early_sums()) {
            (Overlap::Unknown, _) => BackwardMode::Record(OrderRecorder::default()),
            (_, Some(mut early)) => {
                early.add_to(std::mem::take(gradients));
                BackwardMode::Send(Box::new(early))
            }
            (_, None) => BackwardMode::Nothing,
        }
    }

    fn early_sums(&self) -> Option<EarlySums> {
        self.overlap.early_sums(&self.process_group, self.shard(), &self.device)
    }

    /// Adds the sums of the gradients that are sent early, even if this rank had no backward pass to send them in.
    fn with_early_sums(
        &self,
        part: Result<ComputedStep, TrainError>,
    ) -> Result<(ComputedStep, ReceivedEarly), TrainError> {
        let mut computed = part?;
        let early = match std::mem::take(&mut computed.during) {
            BackwardMode::Send(early) => Some(*early),
            other => {
                computed.during = other;
                let mut early = self.early_sums();
                early.iter_mut().try_for_each(EarlySums::begin)?;
                early
            }
        };
        let Some(mut early) = early else { return Ok((computed, ReceivedEarly::default())) };
        early.finish(&mut computed.gradients);
        // Before any other collective, because messages of ranks come after what is already sent.
        let received = early.into_sent().receive(&self.process_group, &self.device.clone().inner())?;
        Ok((computed, received))
    }

    /// While there is no plan of what to send early, makes one from the orders that the ranks recorded.
    fn plan_overlap(&mut self, during: BackwardMode) -> Result<(), TrainError> {
        if !matches!(self.overlap, Overlap::Unknown) {
            return Ok(());
        }
        let watched = match during {
            _ if self.concurrency.at_a_time() > 1 => RecordedOrder::SideBySide,
            BackwardMode::Record(watch) => watch.found(),
            BackwardMode::Nothing | BackwardMode::Send(_) => RecordedOrder::Nothing,
        };
        self.overlap = Overlap::after(self.process_group.all_gather(watched)?);
        tracing::debug!("{} gradients are sent off while the backward pass goes on", self.overlap.count());
        Ok(())
    }

    /// This rank's shard of the optimizer state, if it is sharded.
    pub(super) fn shard(&self) -> Option<Shard> {
        (self.config.shard_optimizer && !self.process_group.is_alone()).then(|| self.process_group.shard())
    }

    /// Squared gradient norm of the sharded gradients, over all ranks.
    pub(super) fn squared_norm_of_parts(&self, gradients: &GradientSum) -> Result<f64, TrainError> {
        if self.shard().is_none() {
            Ok(0.0)
        } else {
            Ok(self.process_group.all_reduce_sum(&[gradients.squared_norm_of_parts()])?[0])
        }
    }

    /// Returns the optimizer state in the form of a single process. Sharded state is complete on the first rank alone.
    pub(super) fn optimizer_state(&self) -> Result<BTreeMap<String, HostTensor>, TrainError> {
        let mut tensors = self.optimizer.to_tensors();
        for name in self.optimizer.divided() {
            let Some(tensor) = tensors.get_mut(&name) else { continue };
            // One tensor after the other, because a rank has no room for all of them.
            let parts = self.process_group.all_gather_floats(vec![std::mem::take(&mut tensor.data)])?.remove(0);
            if self.process_group.is_main_process() {
                tensor.data = parts.concat();
                tensor.shape = vec![tensor.data.len()];
            }
        }
        Ok(tensors)
    }

    /// Fails if a rank's parameters differ from those of the others. The cause is broken memory, or machines that do
    /// not compute alike.
    pub(super) fn compare_parameters(&self) -> Result<(), TrainError> {
        if self.process_group.is_alone() {
            return Ok(());
        }
        let sums = self.process_group.all_gather(checksum(&trainable_parameters(self.model())))?;
        let count = |sum: &u32| sums.iter().filter(|other| *other == sum).count();
        // If two differ, it is unknown which is right. The first rank's are taken, because it wrote the checkpoints.
        let usual = sums.iter().rev().max_by_key(|sum| count(sum)).copied();
        match sums.iter().position(|sum| Some(*sum) != usual) {
            Some(rank) => Err(TrainError::Diverged { rank: self.process_group.name(rank), step: self.state.step }),
            None => Ok(()),
        }
    }
}

/// Assembles whole parameters from the parts that each rank has updated.
pub(super) fn all_parts(
    process_group: &ProcessGroup,
    shard: Shard,
    mut moved: BTreeMap<String, Moved>,
) -> Result<BTreeMap<String, Moved>, TrainError> {
    let names: Vec<String> =
        moved.iter().filter(|(_, moved)| shard.divides(moved.size)).map(|(name, _)| name.clone()).collect();
    // One bucket for each of the larger parameters, and one for several smaller ones together.
    let mut buckets: Vec<Vec<f32>> = vec![Vec::new()];
    let mut bucket_of = Vec::with_capacity(names.len());
    for name in &names {
        if buckets.last().is_some_and(|bucket| bucket.len() * shard.count >= BUCKET) {
            buckets.push(Vec::new());
        }
        bucket_of.push(buckets.len() - 1);
        let values = read(moved[name].values.clone());
        buckets.last_mut().expect("a bucket").extend(values);
    }
    let mut found = process_group.all_gather_floats(buckets)?.into_iter();
    let (mut ranks, mut current) = (Vec::new(), None);
    for (name, bucket) in names.iter().zip(bucket_of) {
        if current.replace(bucket) != Some(bucket) {
            ranks = found.next().unwrap_or_default().into_iter().map(Vec::into_iter).collect();
        }
        let moved = moved.get_mut(name).expect("its name");
        let lengths = shard.lengths(moved.size);
        let whole: Vec<f32> =
            ranks.iter_mut().zip(lengths).flat_map(|(rank, length)| rank.by_ref().take(length)).collect();
        let length = whole.len();
        moved.values = Tensor::from_data(TensorData::new(whole, [length]), &moved.values.device());
    }
    Ok(moved)
}

fn checksum(parameters: &BTreeMap<String, HostTensor>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for parameter in parameters.values() {
        parameter.data.iter().for_each(|value| sum.update(&value.to_le_bytes()));
    }
    sum.finalize()
}

impl Run {
    fn differs_from(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            (self.version == other.version, "another version of Undertone"),
            (self.configuration == other.configuration, "another configuration"),
            ((self.batching, self.fingerprint) == (other.batching, other.fingerprint), "other training data"),
            (self.step == other.step, "another checkpoint: do all ranks see the run's directory?"),
            (self.checksum == other.checksum, "other weights"),
        ];
        parts.iter().find(|(same, _)| !same).map(|(_, what)| *what)
    }
}

impl Part {
    fn of(report: &StepReport, computing: Duration) -> Self {
        let BatchStats { audio_seconds, tokens, flops } = report.work;
        Self { audio_seconds, tokens, flops, computing: computing.as_secs_f64() }
    }

    fn work(&self) -> BatchStats {
        BatchStats { audio_seconds: self.audio_seconds, tokens: self.tokens, flops: self.flops }
    }
}
