//! Optimizer steps: forward and backward passes, sums over batches and ranks, and the update of the parameters.

mod batch;
mod loss_terms;
mod plan;
mod ranks;
mod report;
mod workers;

pub(crate) use plan::{Loaded, Plan, StepSettings};
pub(crate) use report::ComputedStep;
pub use report::{StepOutcome, StepReport};

use crate::checkpoint::Checkpoint;
use crate::ema::Ema;
use crate::gradient_coverage::GradientCoverage;
use crate::gradients::{BackwardMode, Overlap};
use crate::objective::Objective;
use crate::process_group::ProcessGroup;
use crate::stopwatch::Stopwatch;
use crate::{GradientSum, Optimizer, TrainConfig, TrainError};
use batch::{BatchPasses, BatchResult};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use report::DeviceLosses;
use std::time::{Duration, Instant};
use undertone_ops::{Compute, StepControl, StepRules, autocast, runs_ahead, settle_trained};
use undertone_store::{frozen_checksum, load_trainable, parameter_infos};
use workers::Concurrency;

/// Computes optimizer steps. It holds the model and everything that an update of its parameters depends on, but for the
/// loss scale and the guard, which are part of the run's state.
pub(crate) struct Stepper<O: Objective> {
    pub objective: O,
    /// Absent only during the optimizer's update.
    pub model: Option<O::Model>,
    pub device: Device,
    /// Number type of products.
    pub compute: Compute,
    pub optimizer: Optimizer,
    pub ema: Option<Ema>,
    pub process_group: ProcessGroup,
    /// Parameters that gradients have reached in this session; created in its first step.
    pub coverage: Option<GradientCoverage>,
    /// Order in which the batches of a step are computed in this session.
    concurrency: Concurrency,
    /// Plan for sending the gradients of this session's steps to other ranks.
    overlap: Overlap,
}

const MODEL: &str = "the model is there between optimizer steps";

impl<O: Objective> Stepper<O> {
    /// `device` is that of the model, without autodiff. Products are made in the nearest type to the configuration's
    /// that it has.
    pub fn new(
        config: &TrainConfig,
        objective: O,
        model: O::Model,
        device: &Device,
        process_group: ProcessGroup,
    ) -> Self {
        let mut optimizer = Optimizer::new(&config.optimizer);
        if config.shard_optimizer && !process_group.is_alone() {
            optimizer.share_out(process_group.shard());
        }
        Self {
            objective,
            model: Some(settle_trained(model.train())),
            device: device.clone().autodiff(),
            compute: config.compute.number_type().on(device),
            optimizer,
            ema: config.ema_decay.map(Ema::new),
            process_group,
            coverage: None,
            concurrency: Concurrency::default(),
            overlap: Overlap::default(),
        }
    }

    /// Returns the model, with gradients.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect(MODEL)
    }

    /// Returns the plan of a step in which this rank has these batches.
    ///
    /// # Errors
    /// When batches have different loss terms, or another rank fails.
    pub fn plan_of(&self, batches: &[O::Batch]) -> Result<Plan, TrainError> {
        let (rank, count) = (self.process_group.rank(), self.process_group.count());
        let numbers: Vec<usize> = (0..batches.len()).map(|index| index * count + rank).collect();
        let received = self.process_group.all_gather(Loaded::new(&self.objective, batches, &numbers))?;
        Plan::of(&numbers, 0, received)
    }

    /// Computes the gradients of the mean loss of a step: each term's sum over the batches of all ranks divided by its
    /// count over them. If the device [decides](Self::decides_ahead), the loss is not read yet.
    ///
    /// # Errors
    /// When a batch does not fit the model, its losses are not those of its terms, or another rank fails.
    pub fn compute(
        &mut self,
        batches: &mut [O::Batch],
        plan: Plan,
        settings: StepSettings,
        watch: &mut Stopwatch,
    ) -> Result<ComputedStep, TrainError> {
        let own = self.forward_backward_accumulate(batches, plan, settings, watch);
        if self.process_group.is_alone() { own } else { self.add_other_ranks(own, watch) }
    }

    /// Does what [`compute`](Self::compute) does, for the batches of this rank alone.
    fn forward_backward_accumulate(
        &mut self,
        batches: &mut [O::Batch],
        plan: Plan,
        settings: StepSettings,
        watch: &mut Stopwatch,
    ) -> Result<ComputedStep, TrainError> {
        let Plan { batches: plans, terms, names } = plan;
        let began = Instant::now();
        let StepSettings { step, loss_scale, learning_rate: rate, .. } = settings;
        let mut computed = ComputedStep {
            gradients: GradientSum::of_scaled_loss(loss_scale),
            losses: DeviceLosses::default(),
            report: StepReport { step, rate, names, terms: terms.clone(), ..StepReport::default() },
            during: BackwardMode::Nothing,
            computing: Duration::ZERO,
        };
        let (objective, device, compute) = (&self.objective, &self.device, self.compute);
        let passes = BatchPasses { objective, device, compute, terms: &terms, settings };
        // One call around all batches, because on the CPU it sets the whole process.
        autocast(compute, || {
            let at_a_time = self.concurrency.at_a_time();
            let rounds = batches.len().div_ceil(at_a_time);
            // In rounds, so that at most as many gradients wait to be added as batches are computed at a time.
            for (round, (batches, plans)) in batches.chunks_mut(at_a_time).zip(plans.chunks(at_a_time)).enumerate() {
                let mut during = self.during_backward(round + 1 == rounds, &mut computed.gradients);
                let results = passes.round(&self.concurrency, self.model(), batches, plans, &mut during, watch);
                during.give_back(&mut computed.gradients);
                computed.during = during;
                for result in results {
                    self.add(result?, &mut computed);
                }
            }
            Ok::<(), TrainError>(())
        })?;
        if batches.len() > 1 && !runs_ahead(&self.device) {
            self.concurrency.settle(batches.len(), self.process_group.count());
        }
        computed.computing = began.elapsed().saturating_sub(computed.during.waited());
        computed.report.gauges = batches.last().map(|batch| self.objective.gauges(batch)).unwrap_or_default();
        Ok(computed)
    }

    /// Adds the result of one batch to the step.
    fn add(&self, batch: BatchResult, computed: &mut ComputedStep) {
        let ComputedStep { gradients, losses, report, .. } = computed;
        gradients.merge(batch.gradients);
        if self.decides_ahead() {
            losses.add(batch.shares)
        } else {
            report.add(batch.shares)
        }
        report.samples += batch.samples;
        report.work += batch.work;
    }

    /// Refuses a run of `steps` steps in which a trainable parameter never receives a gradient.
    pub fn check_coverage(&mut self, computed: &ComputedStep, steps: u64) -> Result<(), TrainError> {
        let Self { coverage, model, optimizer, .. } = self;
        let coverage = coverage.get_or_insert_with(|| {
            // Parameters with optimizer state had a gradient in an earlier session.
            let infos = parameter_infos(model.as_ref().expect(MODEL));
            let fresh = infos.into_iter().filter(|info| info.trainable && !optimizer.has_state(&info.name));
            GradientCoverage::new(fresh.map(|info| info.name))
        });
        let ComputedStep { gradients, report, .. } = computed;
        coverage.observe(gradients.names(), &report.terms);
        coverage.check(report.step, steps)
    }

    /// Whether the device itself decides about the update, so that it need not wait until the host has read the loss.
    pub fn decides_ahead(&self) -> bool {
        // Sums over ranks go through the host.
        runs_ahead(&self.device) && self.process_group.is_alone()
    }

    /// Clips the gradients to `clip_norm`, and reports their norm.
    pub fn clip(&self, computed: &mut ComputedStep, clip_norm: f64) -> Result<(), TrainError> {
        let ComputedStep { gradients, report, .. } = computed;
        let squared_norm_of_parts = match self.optimizer.shard() {
            Some(_) => self.process_group.all_reduce_sum(&[gradients.squared_norm_of_parts()])?[0],
            None => 0.0,
        };
        report.norm = gradients.clip_beside(squared_norm_of_parts, clip_norm);
        Ok(())
    }

    /// Makes the control by which the device clips the gradients and decides about the update.
    pub fn control(&self, computed: &mut ComputedStep, clip_norm: f64, highest_loss: f64) -> StepControl {
        let ComputedStep { gradients, losses, .. } = computed;
        let rules = StepRules { gradient_scale: gradients.scale(), clip_norm, highest_loss };
        let squares = gradients.squared_norm().unwrap_or_else(|| Tensor::zeros([1], &self.device.clone().inner()));
        std::mem::take(losses).control(squares, rules)
    }

    /// Takes the optimizer's step, and updates the moving average; with `control`, only if it allows it.
    ///
    /// # Errors
    /// When another rank fails; the model is lost then.
    pub fn update(&mut self, computed: &mut ComputedStep, control: Option<&StepControl>) -> Result<(), TrainError> {
        let ComputedStep { gradients, report, .. } = computed;
        // Moved, not cloned: a parameter that nothing else holds is updated in place.
        let model = self.model.take().expect(MODEL);
        let (process_group, shard) = (&self.process_group, self.optimizer.shard());
        let whole = |moved| match shard {
            Some(shard) => Self::all_parts(process_group, shard, moved),
            None => Ok(moved),
        };
        let model = self.model.insert(self.optimizer.sharded_step(model, gradients, report.rate, control, whole)?);
        if let Some(ema) = &mut self.ema {
            ema.update(model, report.step, control);
        }
        Ok(())
    }

    /// Takes the last step off the step counts, because its control prevented the update.
    pub fn take_back(&mut self, step: u64) {
        self.optimizer.take_back();
        if let Some(ema) = &mut self.ema {
            ema.take_back(step);
        }
    }

    /// Restores model, optimizer and moving average from a checkpoint. Returns the checksum of the frozen parameters.
    ///
    /// # Errors
    /// When the checkpoint does not fit the model, or was made with another optimizer or other frozen parameters.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<u32, TrainError> {
        let (stored, path) = (checkpoint.optimizer.names(), || checkpoint.path.clone());
        if let Some(found) = Optimizer::maker(&stored).filter(|found| found != self.optimizer.title()) {
            return Err(TrainError::Optimizer { path: path(), found, expected: self.optimizer.title().to_owned() });
        }
        let model = load_trainable(self.model().clone(), |name| checkpoint.model.read(name))?;
        let frozen = frozen_checksum(&model);
        if checkpoint.state.frozen.is_some_and(|found| found != frozen) {
            return Err(TrainError::Frozen(path()));
        }
        let device = self.device.clone().inner();
        let names = stored.iter().filter_map(|name| name.strip_suffix(".step").map(str::to_owned));
        self.optimizer.load(names, &device, |name| checkpoint.optimizer.read(name))?;
        if let Some(ema) = &mut self.ema {
            // If the checkpoint has no average, it begins here.
            let mut restored = ema.without_values();
            if let Some(stored) = &checkpoint.ema {
                restored.load(stored.names(), &device, |name| stored.read(name))?;
            }
            *ema = restored;
        }
        self.model = Some(settle_trained(model));
        self.coverage = None;
        Ok(frozen)
    }
}
