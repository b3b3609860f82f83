//! Steps of several ranks: sums over their batches, and parameters and optimizer state that they share.

use super::{ComputedStep, Stepper};
use crate::gradients::{BUCKET, BackwardMode, EarlySums, OrderRecorder, Overlap, ReceivedEarly, RecordedOrder};
use crate::objective::Objective;
use crate::optimizer::Moved;
use crate::shard::Shard;
use crate::stopwatch::{RankStep, Stopwatch};
use crate::{BatchStats, GradientSum, ProcessGroup, TrainError};
use burn::tensor::{Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_ops::read;
use undertone_store::{HostTensor, trainable_parameters};

impl<O: Objective> Stepper<O> {
    /// Adds the other ranks' parts of a step to this rank's. An error of one rank becomes an error of all.
    pub(super) fn add_other_ranks(
        &mut self,
        own: Result<ComputedStep, TrainError>,
        watch: &mut Stopwatch,
    ) -> Result<ComputedStep, TrainError> {
        let own = self.with_early_sums(own);
        let (mut computed, early) = self.process_group.all_ok(own)?;
        self.plan_overlap(std::mem::take(&mut computed.during))?;
        let report = &mut computed.report;
        let parts = self.process_group.all_gather((report.work, computed.computing.as_secs_f64()))?;
        report.work = BatchStats::default();
        parts.iter().for_each(|(work, _)| report.work += *work);
        let own = [report.loss, report.samples as f64].into_iter();
        let own: Vec<f64> = own.chain(report.terms.iter().flat_map(|term| [term.mean, term.weighted])).collect();
        let totals = self.process_group.all_reduce_sum(&own)?;
        (report.loss, report.samples) = (totals[0], totals[1] as usize);
        for (term, sums) in report.terms.iter_mut().zip(totals[2..].chunks_exact(2)) {
            (term.mean, term.weighted) = (sums[0], sums[1]);
        }
        let (shard, device) = (self.optimizer.shard(), self.device.clone().inner());
        computed.gradients.all_reduce(&self.process_group, early, shard, &device)?;
        let (waited, on_the_way) = self.process_group.time_on_the_way();
        let computing = parts.into_iter().map(|(_, seconds)| seconds).collect();
        watch.lap_ranks(RankStep { computing, waited, on_the_way }, &self.device);
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
        self.overlap.early_sums(&self.process_group, self.optimizer.shard(), &self.device)
    }

    /// Adds the sums of the gradients that are sent early, even if this rank had no backward pass to send them in.
    fn with_early_sums(
        &self,
        own: Result<ComputedStep, TrainError>,
    ) -> Result<(ComputedStep, ReceivedEarly), TrainError> {
        let mut computed = own?;
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

    /// Returns the optimizer state in the form of a single process. Sharded state is complete on the first rank alone.
    pub fn optimizer_state(&self) -> Result<BTreeMap<String, HostTensor>, TrainError> {
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

    /// Fails if a rank's parameters differ from those of the others after `step` steps. The cause is broken memory, or
    /// machines that do not compute alike.
    pub fn compare_parameters(&self, step: u64) -> Result<(), TrainError> {
        if self.process_group.is_alone() {
            return Ok(());
        }
        let sums = self.process_group.all_gather(checksum(&trainable_parameters(self.model())))?;
        let count = |sum: &u32| sums.iter().filter(|other| *other == sum).count();
        // If two differ, it is unknown which is right. The first rank's are taken, because it wrote the checkpoints.
        let usual = sums.iter().rev().max_by_key(|sum| count(sum)).copied();
        match sums.iter().position(|sum| Some(*sum) != usual) {
            Some(rank) => Err(TrainError::Diverged { rank: self.process_group.name(rank), step }),
            None => Ok(()),
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
        // By the sizes of whole parameters, which all ranks have alike; parts may differ by a value.
        let mut filled = 0;
        for name in &names {
            if filled >= BUCKET {
                buckets.push(Vec::new());
                filled = 0;
            }
            filled += moved[name].size;
            bucket_of.push(buckets.len() - 1);
            let values = read(moved[name].values.clone());
            buckets.last_mut().expect("a bucket").extend(values);
        }
        // The message of a rank that has failed would be taken for numbers.
        process_group.all_gather(())?;
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
}

fn checksum(parameters: &BTreeMap<String, HostTensor>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for parameter in parameters.values() {
        parameter.data.iter().for_each(|value| sum.update(&value.to_le_bytes()));
    }
    sum.finalize()
}
