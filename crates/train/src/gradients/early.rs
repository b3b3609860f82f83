//! Sums over ranks that start during the backward pass.

use super::GradientSum;
use super::buckets::{Begun, Bucket, PlannedBucket, SentEarly};
use crate::TrainError;
use crate::process_group::{AllReduce, ProcessGroup};
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone_ops::{AnyFloat, BackwardHook, GradientsSoFar, Reading, add};

/// Sends the gradients of a step as soon as they are complete.
pub(crate) struct EarlySums {
    process_group: ProcessGroup,
    sums: AllReduce,
    shard: Option<Shard>,
    plan: Arc<[PlannedBucket]>,
    /// Whether the device continues while values are read.
    behind: bool,
    /// Gradients of the step's batches before this one.
    before: GradientSum,
    parameters: BTreeMap<String, AnyFloat>,
    forks: usize,
    /// Whether all ranks have begun, so that each waits for the others' part of every bucket.
    agreed: bool,
    /// Time waited for all ranks to begin.
    waited: Duration,
    /// Number of buckets that were begun, which are being read or sent.
    begun: usize,
    /// Number of buckets that were sent.
    off: usize,
    /// The last bucket that was begun, while it is being read.
    reading: Option<Begun>,
    sent: SentEarly,
}

impl EarlySums {
    pub fn new(
        process_group: ProcessGroup,
        sums: AllReduce,
        plan: Arc<[PlannedBucket]>,
        shard: Option<Shard>,
        behind: bool,
    ) -> Self {
        Self {
            process_group,
            sums,
            shard,
            plan,
            behind,
            before: GradientSum::default(),
            parameters: BTreeMap::new(),
            forks: 0,
            agreed: false,
            waited: Duration::ZERO,
            begun: 0,
            off: 0,
            reading: None,
            sent: SentEarly::default(),
        }
    }

    /// Sets the gradients of the step's batches so far, to be sent together with those of this batch.
    pub fn add_to(&mut self, before: GradientSum) {
        self.before = before;
    }

    /// Sets the parameters of the model whose backward pass begins.
    pub fn look_for(&mut self, parameters: BTreeMap<String, AnyFloat>) {
        self.parameters = parameters;
    }

    /// Returns the gradients of earlier batches that were not sent.
    pub fn take_rest(&mut self) -> GradientSum {
        std::mem::take(&mut self.before)
    }

    /// Waits until all ranks are ready to send.
    pub fn begin(&mut self) -> Result<(), TrainError> {
        let began = Instant::now();
        let agreed = self.process_group.all_ok(Ok::<(), TrainError>(()));
        self.waited = began.elapsed();
        self.agreed = agreed.is_ok();
        agreed
    }

    /// Time that this rank waited for the others to begin.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether all planned buckets are sent.
    pub fn is_done(&self) -> bool {
        self.begun == self.plan.len() && self.reading.is_none()
    }

    /// Sends what the backward pass did not send of the plan.
    pub fn finish(&mut self, gradients: &mut GradientSum) {
        self.before = std::mem::take(gradients);
        while !self.is_done() {
            if self.begun < self.plan.len() { self.send_next(None) } else { self.send_read() }
        }
        *gradients = self.take_rest();
    }

    /// Returns the buckets that were sent.
    pub fn into_sent(mut self) -> SentEarly {
        std::mem::take(&mut self.sent)
    }

    fn send_next(&mut self, mut so_far: Option<&mut GradientsSoFar<'_>>) {
        let plan = self.plan.clone();
        let mut bucket = Bucket::new(self.shard);
        for (name, size) in &plan[self.begun].gradients {
            let last = so_far.as_mut().zip(self.parameters.get(name)).and_then(|(so_far, of)| of.take_gradient(so_far));
            let gradient = match (self.before.take(name), last) {
                (Some(before), Some(last)) => add(vec![[before, last]]).pop(),
                (before, last) => before.or(last),
            };
            if gradient.is_none() {
                self.sent.absent.push(name.clone());
            }
            bucket.add(name.clone(), *size, gradient);
        }
        let begun = bucket.begin(&self.sums);
        self.begun += 1;
        // The device continues meanwhile.
        self.send_read();
        self.reading = Some(begun);
        if !self.behind || self.sums.cards.is_some() {
            self.send_read();
        }
    }

    fn send_read(&mut self) {
        if let Some(begun) = self.reading.take() {
            self.send(begun);
        }
    }

    fn send(&mut self, begun: Begun) {
        let Ok(sent) = &mut self.sent.sent else { return };
        self.off += 1;
        match begun.send(&self.sums, Reading::finish) {
            Ok(bucket) => sent.push(bucket),
            Err(error) => self.sent.sent = Err(error),
        }
    }
}

impl BackwardHook for EarlySums {
    fn passed_fork(&mut self, so_far: &mut GradientsSoFar<'_>) {
        self.forks += 1;
        while self.plan.get(self.begun).is_some_and(|bucket| bucket.forks <= self.forks) {
            self.send_next(Some(so_far));
        }
    }
}

impl Drop for EarlySums {
    /// Sends zeros for the remaining buckets: the other ranks wait for every bucket, even if this rank's backward pass
    /// has failed.
    fn drop(&mut self) {
        if !self.agreed {
            return;
        }
        let plan = self.plan.clone();
        // A bucket that was being read has not been sent, and cannot be if the device has failed.
        for planned in &plan[self.off..] {
            let mut bucket = Bucket::new(self.shard);
            planned.gradients.iter().for_each(|(name, size)| bucket.add(name.clone(), *size, None));
            // Cards create the zeros themselves, and a card that has failed panics.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let begun = bucket.begin(&self.sums);
                self.send(begun);
            }));
        }
    }
}
