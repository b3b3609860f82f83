//! How a Learner is made.

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

/// Makes a [`Learner`]: what it trains is given, everything else has a default.
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
    /// Begins a learner for `model` on `objective`, with records in the directory `dir`.
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
    /// The device that the model's parameters lie on, without autodiff; Burn's default device if nothing is said.
    pub fn with_device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// What fixes everything random in training; 0 if nothing is said.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The whole configuration as YAML, for records that have a place for it.
    pub fn with_configuration(mut self, yaml: String) -> Self {
        self.configuration = Some(yaml);
        self
    }

    /// A lock on the directory that is held already. Without it the learner locks the directory itself, from the moment
    /// that it is told to resume or to train until training ends.
    pub fn with_lock(mut self, lock: Arc<DirectoryLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Whether what was learned before an error is saved, as it is if nothing is said.
    pub fn with_rescue(mut self, rescue: bool) -> Self {
        self.saves_on_error = rescue;
        self
    }

    /// What the run is watched by.
    pub fn with_display(mut self, display: Display) -> Self {
        self.display = display;
        self
    }

    /// A flag that, once set, ends training after the current step with a checkpoint.
    ///
    /// A step or an evaluation whose data fails by then is left to the next session, from its beginning: so whoever loads
    /// data may give up waiting for it, and what is really broken is found again.
    pub fn with_interrupt(mut self, interrupt: Arc<AtomicBool>) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// The ranks that train this run together, if it is not one alone; all of them make the same learner, on the same data.
    ///
    /// Each optimizer step then has `accumulation` batches for each rank, of which each computes its own, and the step is that
    /// of all of them: its loss is the sum over all by the count over all, and so are its gradients. The first rank alone
    /// writes. The directory is one that all see.
    pub fn with_process_group(mut self, process_group: ProcessGroup) -> Self {
        self.process_group = process_group;
        self
    }

    /// The learner. Nothing is read or written yet.
    ///
    /// Where the device has no products in the type that the configuration asks for, they are made in the nearest that it
    /// has, which is said when training begins.
    pub fn build(self) -> Learner<O> {
        let Self { mut config, objective, model, dir, device, seed, .. } = self;
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let checkpoints = Checkpoints::new(dir.join("checkpoints"));
        let asked = config.compute;
        config.compute = asked.on(&device);
        let loss_scale = (config.compute == Compute::F16).then(|| LossScale::new(&config.loss_scale));
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
