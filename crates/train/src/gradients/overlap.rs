//! Overlap of the backward pass with the all-reduce of gradients.
//!
//! A backward pass goes through a model from its end to its beginning, and can be observed at each fork of the graph on
//! the way; every block has one. The first steps of a session record at which fork of a step's last batch the gradient
//! of a parameter exists, and whether more of it comes later, as for an embedding that is also the output matrix. From
//! then on, gradients that are complete at a fork are sent there, in buckets, in an order that all ranks share.

use super::buckets::{BUCKET, PlannedBucket};
use super::{EarlySums, GradientSum, trained};
use crate::shard::Shard;
use crate::{ProcessGroup, TrainError};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use undertone_ops::{AnyFloat, BackwardHook, GradientsSoFar, runs_ahead, with_backward_hook};

/// Plan of a session for sending gradients.
#[derive(Debug, Default)]
pub(crate) enum Overlap {
    /// No plan yet.
    #[default]
    Unknown,
    /// Buckets, in the order in which all ranks send them.
    Planned(Arc<[PlannedBucket]>),
    /// Gradients are sent after the backward pass, because some rank computes several batches at the same time.
    Never,
}

/// Message of a rank about the order of its gradients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RecordedOrder {
    /// It has had no batch to record.
    Nothing,
    Plan(Vec<PlannedBucket>),
    /// It computes several batches at the same time.
    SideBySide,
}

impl Overlap {
    /// Makes the plan of all ranks from the next step on, from the orders that they recorded in this one.
    pub fn after(watched: Vec<RecordedOrder>) -> Self {
        if watched.contains(&RecordedOrder::SideBySide) {
            return Self::Never;
        }
        let mut plans = watched.into_iter().map(|watched| match watched {
            RecordedOrder::Plan(plan) => Some(plan),
            RecordedOrder::Nothing | RecordedOrder::SideBySide => None,
        });
        // The first rank's plan is taken, if all ranks could make one.
        let first = plans.next().flatten();
        let all = plans.all(|plan| plan.is_some());
        first.filter(|_| all).map_or(Self::Unknown, |plan| Self::Planned(plan.into()))
    }

    /// Starts the early sums of a step; `None` without a plan.
    pub fn early_sums(&self, process_group: &ProcessGroup, shard: Option<Shard>, device: &Device) -> Option<EarlySums> {
        let Self::Planned(plan) = self else { return None };
        let sums = process_group.all_reduce(device)?;
        Some(EarlySums::new(process_group.clone(), sums, plan.clone(), shard, runs_ahead(device)))
    }

    /// Number of parameters whose gradients are sent during a backward pass.
    pub fn count(&self) -> usize {
        let Self::Planned(plan) = self else { return 0 };
        plan.iter().map(|bucket| bucket.gradients.len()).sum()
    }
}

/// Treatment of gradients during a backward pass.
#[derive(Default)]
pub(crate) enum BackwardMode {
    /// Nothing.
    #[default]
    Nothing,
    /// Their order is recorded.
    Record(OrderRecorder),
    /// They are sent.
    Send(Box<EarlySums>),
}

impl BackwardMode {
    /// Marks that the forward pass has succeeded. If gradients are to be sent, waits until it has succeeded on all
    /// ranks, because after that no rank may leave the others waiting for its part.
    pub fn begin(&mut self) -> Result<(), TrainError> {
        if let Self::Send(early) = self { early.begin() } else { Ok(()) }
    }

    /// Returns the gradients of earlier batches to `gradients`, except those that were sent.
    pub fn give_back(&mut self, gradients: &mut GradientSum) {
        if let Self::Send(early) = self {
            *gradients = early.take_rest();
        }
    }

    /// Time that this rank waited for the others to begin.
    pub fn waited(&self) -> Duration {
        if let Self::Send(early) = self { early.waited() } else { Duration::ZERO }
    }

    /// Runs the backward pass of a loss, and returns its gradients, except those that were sent.
    pub fn backward<M: Module>(&mut self, model: &M, loss: Tensor<1>) -> GradientSum {
        let mut found = GradientSum::default();
        // If the backward pass panics, the recorder or the early sums are dropped.
        match std::mem::take(self) {
            Self::Nothing => found.add(model, loss.backward()),
            Self::Record(mut watch) => {
                watch.has_watched = true;
                watch.parameters = trained(model).into_iter().collect();
                let (left, mut watch) = with_backward_hook(watch, || loss.backward());
                found.add(model, left);
                watch.put_back(&mut found);
                *self = Self::Record(watch);
            }
            Self::Send(mut early) => {
                early.look_for(trained(model).into_iter().collect());
                let (left, mut early) = with_backward_hook(*early, || loss.backward());
                early.look_for(BTreeMap::new());
                found.add(model, left);
                *self = Self::Send(Box::new(early));
            }
        }
        found
    }
}

/// Takes gradients as soon as they exist, to record their order.
#[derive(Default)]
pub(crate) struct OrderRecorder {
    has_watched: bool,
    parameters: BTreeMap<String, AnyFloat>,
    forks: usize,
    /// Gradients that were taken, with the number of forks passed by then.
    taken: BTreeMap<String, (usize, Tensor<1>)>,
    /// Forks passed, name and number of elements of each complete gradient, in the order of completion.
    whole: Vec<(usize, String, usize)>,
}

impl OrderRecorder {
    /// Merges the gradients that were taken with `left`, which remained. A gradient that is in both was not complete
    /// when it was taken.
    fn put_back(&mut self, left: &mut GradientSum) {
        let late: Vec<&str> = left.names().filter(|name| self.taken.contains_key(*name)).collect();
        let whole = self.taken.iter().filter(|(name, _)| !late.contains(&name.as_str()));
        self.whole = whole.map(|(name, (forks, gradient))| (*forks, name.clone(), gradient.dims()[0])).collect();
        self.whole.sort();
        self.parameters.clear();
        left.add_found(std::mem::take(&mut self.taken).into_iter().map(|(name, (_, gradient))| (name, gradient)));
    }

    /// Returns the recorded order, if there was a backward pass.
    pub fn found(self) -> RecordedOrder {
        if self.has_watched { RecordedOrder::Plan(self.plan()) } else { RecordedOrder::Nothing }
    }

    /// Makes buckets of the gradients that were complete during the backward pass.
    fn plan(self) -> Vec<PlannedBucket> {
        let mut buckets: Vec<PlannedBucket> = Vec::new();
        let mut room = 0;
        for (forks, name, size) in self.whole {
            if room == 0 {
                buckets.push(PlannedBucket { forks, gradients: Vec::new() });
                room = BUCKET;
            }
            let bucket = buckets.last_mut().expect("one with room");
            bucket.forks = forks;
            bucket.gradients.push((name, size));
            room = room.saturating_sub(size);
        }
        buckets
    }
}

impl BackwardHook for OrderRecorder {
    fn passed_fork(&mut self, so_far: &mut GradientsSoFar<'_>) {
        self.forks += 1;
        let Self { parameters, taken, forks, .. } = self;
        parameters.retain(|name, parameter| match parameter.take_gradient(so_far) {
            Some(gradient) => {
                taken.insert(name.clone(), (*forks, gradient));
                false
            }
            None => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::nn::{Linear, LinearConfig};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use undertone_ops::{checkpoint, fork, read};
    use undertone_ranks::{Ranks, threads};

    /// Two blocks between a matrix and its transpose.
    #[derive(Module, Debug)]
    struct Blocks {
        tied: Param<Tensor<2>>,
        first: Linear,
        second: Linear,
        idle: Linear,
    }

    /// The blocks, equal on all ranks.
    fn blocks(device: &Device) -> Blocks {
        let values = |seed: f32, n: usize| (0..n).map(|k| (seed + k as f32).sin()).collect::<Vec<_>>();
        let linear = |seed: f32| {
            let mut linear: Linear = LinearConfig::new(4, 4).with_bias(false).init(device);
            let weight = Tensor::<1>::from_floats(values(seed, 16).as_slice(), device).reshape([4, 4]);
            linear.weight = linear.weight.map(|_| weight.require_grad());
            linear
        };
        let tied = Tensor::<1>::from_floats(values(0.1, 12).as_slice(), device).reshape([3, 4]);
        let tied = Param::initialized(burn::module::ParamId::new(), tied.require_grad());
        Blocks { tied, first: linear(0.2), second: linear(0.3), idle: linear(0.4) }
    }

    impl Blocks {
        fn loss(&self, batch: f32, device: &Device) -> Tensor<1> {
            let x = Tensor::<2>::from_floats([[batch, 0.3, -0.7], [0.1, batch, 2.0]], device);
            let x = self.first.forward(fork(x.matmul(self.tied.val())));
            let x = self.second.forward(fork(x.tanh()));
            x.matmul(self.tied.val().transpose()).square().sum()
        }
    }

    type Found = BTreeMap<String, Vec<u32>>;

    /// The bits of the gradients of a step on these batches, and the recorded order.
    fn step(
        process_group: &ProcessGroup,
        overlap: &Overlap,
        batches: &[f32],
        shard: Option<Shard>,
    ) -> Result<(Found, RecordedOrder), TrainError> {
        let device = Device::default().autodiff();
        let behind = runs_ahead(&device);
        let model = blocks(&device);
        let mut sum = GradientSum::default();
        let mut during = BackwardMode::Nothing;
        for (k, batch) in batches.iter().enumerate() {
            if k + 1 == batches.len() {
                during = match overlap.early_sums(process_group, shard, &device) {
                    Some(mut early) => {
                        early.add_to(std::mem::take(&mut sum));
                        BackwardMode::Send(Box::new(early))
                    }
                    None => BackwardMode::Record(OrderRecorder::default()),
                };
            }
            during.begin()?;
            let gradients = during.backward(&model, model.loss(*batch, &device));
            during.give_back(&mut sum);
            sum.merge(gradients);
        }
        let (early, watched) = match during {
            BackwardMode::Send(mut early) => {
                assert!(behind || early.is_done(), "all was sent while the backward pass went on");
                early.finish(&mut sum);
                (Some(*early), RecordedOrder::Nothing)
            }
            BackwardMode::Record(watch) => (None, watch.found()),
            // Without a batch.
            BackwardMode::Nothing => {
                let mut early = overlap.early_sums(process_group, shard, &device);
                if let Some(early) = &mut early {
                    early.begin()?;
                    early.finish(&mut sum);
                }
                (early, RecordedOrder::Nothing)
            }
        };
        let early = early.map(EarlySums::into_sent).unwrap_or_default();
        let early = early.receive(process_group, &device.clone().inner())?;
        sum.all_reduce(process_group, early, shard, &device.clone().inner())?;
        let names: Vec<String> = sum.names().map(str::to_owned).collect();
        let bits = |name: String| {
            let values = read(sum.take(&name).expect("a gradient"));
            (name, values.into_iter().map(f32::to_bits).collect())
        };
        Ok((names.into_iter().map(bits).collect(), watched))
    }

    /// Runs `work` on each of two ranks, and returns the results.
    fn on_two<T: Send + 'static>(work: impl Fn(ProcessGroup) -> T + Send + Clone + 'static) -> Vec<T> {
        let ranks = threads(2).into_iter().map(|transport| {
            let work = work.clone();
            thread::spawn(move || work(ProcessGroup::of(Arc::new(Ranks::over(|| Ok(transport)).expect("a rank")))))
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    }

    /// Batches of a rank.
    fn batches(rank: usize) -> [f32; 2] {
        [0.5 + rank as f32, 1.7 - rank as f32]
    }

    fn planned(process_group: &ProcessGroup) -> (Found, Overlap) {
        let (found, watched) =
            step(process_group, &Overlap::Unknown, &batches(process_group.rank()), None).expect("a step");
        (found, Overlap::after(process_group.all_gather(watched).expect("received")))
    }

    #[test]
    fn what_is_whole_at_a_fork_is_planned() {
        for overlap in on_two(|process_group| planned(&process_group).1) {
            let Overlap::Planned(plan) = overlap else { panic!("{overlap:?}") };
            let gradients = ["second.weight", "first.weight"].map(|name| (name.to_owned(), 16)).to_vec();
            assert_eq!(*plan, [PlannedBucket { forks: 2, gradients }], "what is tied is whole at the end");
        }
    }

    #[test]
    fn sums_that_were_sent_early_have_the_same_bits() {
        for same in on_two(|process_group| {
            let (late, overlap) = planned(&process_group);
            let (early, _) = step(&process_group, &overlap, &batches(process_group.rank()), None).expect("a step");
            assert!(late.len() == 3 && late.keys().all(|name| !name.starts_with("idle")), "{late:?}");
            late == early
        }) {
            assert!(same);
        }
    }

    #[test]
    fn a_rank_without_a_batch_takes_part() {
        for found in on_two(|process_group| {
            let (_, overlap) = planned(&process_group);
            let own: &[f32] = if process_group.rank() == 0 { &[0.25] } else { &[] };
            let of_one = step(&process_group, &overlap, own, None).expect("a step").0;
            let alone = step(&ProcessGroup::default(), &Overlap::Unknown, &[0.25], None).expect("a step").0;
            // Where no rank has a gradient there is none, even if its place in a bucket was sent.
            let of_none = step(&process_group, &overlap, &[], None).expect("a step").0;
            (of_one == alone, of_none)
        }) {
            assert_eq!(found, (true, Found::new()));
        }
    }

    #[test]
    fn more_of_a_gradient_than_was_planned_for_is_added() {
        // As if the gradient of the tied matrix had been complete at the first fork.
        let tied = PlannedBucket { forks: 1, gradients: vec![("tied".into(), 12)] };
        for (planned, late) in on_two(move |process_group| {
            let late = planned(&process_group).0;
            let overlap = Overlap::Planned([tied.clone()].into());
            (step(&process_group, &overlap, &batches(process_group.rank()), None).expect("a step").0, late)
        }) {
            for (name, values) in late {
                for (a, b) in values.iter().zip(&planned[&name]) {
                    let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
                    assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{name}: {a} is not {b}");
                }
            }
        }
    }

    #[test]
    fn a_rank_that_fails_in_its_backward_pass_leaves_nobody_waiting() {
        let found = on_two(|process_group| {
            let (_, overlap) = planned(&process_group);
            if process_group.rank() == 0 {
                let taken = step(&process_group, &overlap, &[0.5], None).map(|_| ());
                return process_group.all_ok(taken);
            }
            let device = Device::default().autodiff();
            let model = blocks(&device);
            // Runs in the forward pass, and fails when it runs again between the two blocks.
            let runs = Arc::new(AtomicUsize::new(0));
            let between = move |inputs: Vec<AnyFloat>| {
                assert!(runs.fetch_add(1, Ordering::Relaxed) == 0, "memory ran out");
                inputs.into_iter().next().expect("an input").tensor::<2>()
            };
            let x = model.first.forward(fork(Tensor::<2>::ones([2, 3], &device).matmul(model.tied.val())));
            let loss = model.second.forward(fork(checkpoint(vec![x.into()], between))).sum();
            let mut during =
                BackwardMode::Send(Box::new(overlap.early_sums(&process_group, None, &device).expect("a plan")));
            during.begin().expect("both have begun");
            let failed = catch_unwind(AssertUnwindSafe(|| during.backward(&model, loss))).is_err();
            assert!(failed);
            process_group.all_ok(Err(TrainError::Data("memory ran out".into())))
        });
        let texts: Vec<String> = found.into_iter().map(|found| found.expect_err("an error").to_string()).collect();
        assert!(texts[0].contains("rank 1") && texts.iter().all(|text| text.contains("memory ran out")), "{texts:?}");
    }

    #[test]
    fn buckets_are_filled_in_the_order_in_which_gradients_are_there() {
        let gradient = |forks: usize, name: &str, size: usize| (forks, name.to_owned(), size);
        let whole = vec![gradient(1, "d", BUCKET - 1), gradient(1, "e", 10), gradient(2, "c", 4), gradient(3, "a", 1)];
        let watch = OrderRecorder { whole, ..OrderRecorder::default() };
        let found: Vec<_> = watch.plan().iter().map(|bucket| (bucket.forks, bucket.gradients.len())).collect();
        assert_eq!(found, [(1, 2), (3, 2)]);
    }

    #[test]
    fn all_ranks_have_a_plan_before_one_is_kept() {
        let plan = RecordedOrder::Plan(Vec::new());
        assert!(matches!(Overlap::after(vec![plan.clone(), RecordedOrder::Nothing]), Overlap::Unknown));
        assert!(matches!(Overlap::after(vec![plan.clone(), RecordedOrder::SideBySide]), Overlap::Never));
        assert!(matches!(Overlap::after(vec![plan.clone(), plan]), Overlap::Planned(_)));
    }
}
