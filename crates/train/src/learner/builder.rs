//! Builder of the Learner.

use super::Learner;
use super::options::RunOptions;
use super::recovery::RecoveryPoint;
use crate::checkpoint::{Checkpoints, TrainState};
use crate::loss_scale::LossScale;
use crate::objective::Objective;
use crate::process_group::ProcessGroup;
use crate::saver::Saver;
use crate::stepper::Stepper;
use crate::{Display, TrainConfig};
use burn::tensor::Device;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use undertone_ops::Compute;
use undertone_store::DirectoryLock;

/// Builder of a [`Learner`]. The arguments of [`Learner::builder`] are required; everything else has a default.
pub struct LearnerBuilder<O: Objective> {
    config: TrainConfig,
    objective: O,
    model: O::Model,
    options: RunOptions,
    device: Device,
    seed: u64,
    lock: Option<Arc<DirectoryLock>>,
    process_group: ProcessGroup,
}

impl<O: Objective> Learner<O> {
    /// Returns a builder for training `model` on `objective`, with logs and checkpoints in the directory `dir`.
    pub fn builder(config: TrainConfig, objective: O, model: O::Model, dir: impl AsRef<Path>) -> LearnerBuilder<O> {
        let options = RunOptions {
            dir: dir.as_ref().to_owned(),
            saves_on_error: true,
            configuration: None,
            display: Display::default(),
            interrupt: Arc::default(),
        };
        let (device, process_group) = (Device::default(), ProcessGroup::default());
        LearnerBuilder { config, objective, model, options, device, seed: 0, lock: None, process_group }
    }
}

impl<O: Objective> LearnerBuilder<O> {
    /// Device of the model's parameters, without autodiff. The default is Burn's default device.
    pub fn with_device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Seed of everything random in training. The default is 0.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The whole configuration as YAML, for logs that have a place for it.
    pub fn with_configuration(mut self, yaml: String) -> Self {
        self.options.configuration = Some(yaml);
        self
    }

    /// A lock on the directory that is already held. By default the learner locks the directory itself, from the call
    /// of resume or train until training ends.
    pub fn with_lock(mut self, lock: Arc<DirectoryLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Whether the state before an error is saved. The default is true.
    pub fn with_rescue(mut self, rescue: bool) -> Self {
        self.options.saves_on_error = rescue;
        self
    }

    /// Display of progress.
    pub fn with_display(mut self, display: Display) -> Self {
        self.options.display = display;
        self
    }

    /// Interrupt flag. Once set, training ends after the current step with a checkpoint.
    ///
    /// If the data of a step or an evaluation fails after the interrupt, the next session repeats it from its
    /// beginning. A data loader may therefore give up waiting, and a real error occurs again.
    pub fn with_interrupt(mut self, interrupt: Arc<AtomicBool>) -> Self {
        self.options.interrupt = interrupt;
        self
    }

    /// Process group of the ranks that train this run together. All of them build the same learner on the same data.
    /// The default is a single process.
    ///
    /// Each optimizer step then has `accumulation` batches for each rank, and each rank computes its own. The loss of
    /// the step is the sum over all ranks divided by the count over all ranks, and so are the gradients. Only the first
    /// rank writes. All ranks have to see the same directory.
    pub fn with_process_group(mut self, process_group: ProcessGroup) -> Self {
        self.process_group = process_group;
        self
    }

    /// Builds the learner. Nothing is read or written yet.
    ///
    /// If the device has no products in the number type of the configuration, the nearest type that it has is used, and
    /// training logs that when it begins.
    pub fn build(self) -> Learner<O> {
        let Self { config, objective, model, options, device, seed, lock, process_group } = self;
        let checkpoints = Checkpoints::new(options.dir.join("checkpoints"));
        let stepper = Stepper::new(&config, objective, model, &device, process_group);
        let loss_scale = (stepper.compute == Compute::F16).then(|| LossScale::new(&config.compute.loss_scale()));
        Learner {
            saver: Saver::new(checkpoints, config.checkpoint.keep_last, config.checkpoint.keep_best),
            config,
            options,
            stepper,
            state: TrainState { seed, loss_scale, ..Default::default() },
            recovery: RecoveryPoint::BetweenSteps,
            pending: None,
            resumed: None,
            lock,
        }
    }
}
