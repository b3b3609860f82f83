//! Builder of the Learner.

use super::Learner;
use super::recovery::RecoveryPoint;
use crate::checkpoint::{Checkpoints, TrainState};
use crate::ema::Ema;
use crate::loss_scale::LossScale;
use crate::objective::Objective;
use crate::process_group::ProcessGroup;
use crate::saver::Saver;
use crate::{Display, Optimizer, TrainConfig};
use burn::module::Module;
use burn::tensor::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use undertone_ops::Compute;
use undertone_store::DirectoryLock;

/// Builder of a [`Learner`]. The arguments of [`Learner::builder`] are required; everything else has a default.
pub struct LearnerBuilder<O: Objective> {
    config: TrainConfig,
    objective: O,
    model: O::Model,
    dir: PathBuf,
    device: Device,
    seed: u64,
    lock: Option<Arc<DirectoryLock>>,
    saves_on_error: bool,
    configuration: Option<String>,
    display: Display,
    interrupt: Arc<AtomicBool>,
    process_group: ProcessGroup,
}

impl<O: Objective> Learner<O> {
    /// Returns a builder for training `model` on `objective`, with logs and checkpoints in the directory `dir`.
    pub fn builder(config: TrainConfig, objective: O, model: O::Model, dir: impl AsRef<Path>) -> LearnerBuilder<O> {
        LearnerBuilder {
            config,
            objective,
            model,
            dir: dir.as_ref().to_owned(),
            device: Device::default(),
            seed: 0,
            lock: None,
            saves_on_error: true,
            configuration: None,
            display: Display::default(),
            interrupt: Arc::default(),
            process_group: ProcessGroup::default(),
        }
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
        self.configuration = Some(yaml);
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
        self.saves_on_error = rescue;
        self
    }

    /// Display of progress.
    pub fn with_display(mut self, display: Display) -> Self {
        self.display = display;
        self
    }

    /// Interrupt flag. Once set, training ends after the current step with a checkpoint.
    ///
    /// If the data of a step or an evaluation fails after the interrupt, the next session repeats it from its
    /// beginning. A data loader may therefore give up waiting, and a real error occurs again.
    pub fn with_interrupt(mut self, interrupt: Arc<AtomicBool>) -> Self {
        self.interrupt = interrupt;
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
        let Self { mut config, objective, model, dir, device, seed, .. } = self;
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let checkpoints = Checkpoints::new(dir.join("checkpoints"));
        let asked = config.compute;
        config.compute = asked.on(&device);
        let loss_scale = (config.compute == Compute::F16).then(|| LossScale::new(&config.compute.loss_scale()));
        let mut optimizer = Optimizer::new(&config.optimizer);
        if config.shard_optimizer && !self.process_group.is_alone() {
            optimizer.share_out(self.process_group.shard());
        }
        Learner {
            optimizer,
            ema: config.ema_decay.map(Ema::new),
            saver: Saver::new(checkpoints, config.checkpoint.keep_last, config.checkpoint.keep_best),
            asked,
            config,
            objective,
            model: Some(model.train()),
            device: device.autodiff(),
            state: TrainState { seed, loss_scale, ..Default::default() },
            recovery: RecoveryPoint::BetweenSteps,
            pending: None,
            coverage: None,
            concurrency: Default::default(),
            overlap: Default::default(),
            resumed: None,
            dir,
            lock: self.lock,
            saves_on_error: self.saves_on_error,
            name,
            configuration: self.configuration,
            display: self.display,
            interrupt: self.interrupt,
            process_group: self.process_group,
        }
    }
}
