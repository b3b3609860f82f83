//! One stage of an experiment: its model, its data, and the stages that it starts from.

use super::batch::TaskDataset;
use super::folder::{AdapterDescription, Description, HeadDescription, load_backbone, load_parts, load_router};
use super::model::{TaskModel, TrainedParts};
use super::objective::{RoutingPolicy, StageBatches, TaskObjective};
use super::order::TaskOrder;
use super::setup::Setup;
use crate::config::{TaskConfig, phase_train, task_train};
use crate::run_directory::{CONFIG, STAGE};
use crate::skipped::SkipRecord;
use crate::{AlignmentConfig, ConfigError, Experiment, LossConfig, RunError, Split, Trainable};
use burn::module::Module;
use serde_json::Value;
use std::path::{Path, PathBuf};
use undertone_data::loader::Order;
use undertone_model::lora::LoraConfig;
use undertone_model::router::RouterConfig;
use undertone_ops::seeds;
use undertone_store::parameter_infos;
use undertone_tasks::HeadConfig;
use undertone_train::{LrScaling, OptimizerConfig, Summary, TrainConfig};

/// Separate training run within an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The backbone, the part of it that `model.trainable` names, or an adapter on it: the only stage of a run without
    /// `tasks`.
    Whole,
    /// Phase 1 for one task.
    Adapter(usize),
    /// Phase 1 for all tasks at once.
    Adapters,
    /// Phase 2.
    Router,
    /// Phase 3.
    Joint,
    /// Baseline: the head of one task on the frozen backbone.
    Head(usize),
    /// Baseline: one adapter for all tasks.
    Shared,
    /// Baseline: the whole backbone.
    Full,
}

impl Stage {
    /// Returns the first stage of a run.
    pub fn first(experiment: &Experiment) -> Self {
        match experiment.tasks.len() {
            0 => Self::Whole,
            _ if experiment.phases.adapters.mixed => Self::Adapters,
            _ => Self::Adapter(0),
        }
    }

    /// Returns the directory of its records.
    pub fn directory(&self, experiment: &Experiment) -> PathBuf {
        let task = |index: &usize| experiment.tasks[*index].name.as_str();
        let root = experiment.directory();
        match self {
            Self::Whole => root,
            Self::Adapter(index) => root.join("phase1").join(task(index)),
            Self::Adapters => root.join("phase1").join("all"),
            Self::Router => root.join("phase2"),
            Self::Joint => root.join("phase3"),
            Self::Head(index) => root.join("baselines").join("head").join(task(index)),
            Self::Shared => root.join("baselines").join("shared"),
            Self::Full => root.join("baselines").join("full"),
        }
    }

    pub(crate) fn title(&self, experiment: &Experiment) -> String {
        let name = |index: &usize| &experiment.tasks[*index].name;
        match self {
            Self::Whole if self.is_adapted(experiment) => format!("an adapter on {}", experiment.model),
            Self::Whole => format!("fine-tuning {}", experiment.model),
            Self::Adapter(index) => format!("phase 1: adapter and head of `{}`", name(index)),
            Self::Adapters => "phase 1: all adapters and heads in mixed batches".into(),
            Self::Router => "phase 2: the router".into(),
            Self::Joint => "phase 3: router, adapters and heads".into(),
            Self::Head(index) => format!("baseline: head of `{}` on the frozen backbone", name(index)),
            Self::Shared => "baseline: one adapter for all tasks".into(),
            Self::Full => "baseline: the whole backbone".into(),
        }
    }

    /// Returns the tasks that it trains on.
    pub(super) fn tasks(&self, experiment: &Experiment) -> Vec<TaskConfig> {
        match self {
            Self::Adapter(index) | Self::Head(index) => vec![experiment.tasks[*index].clone()],
            _ => experiment.all_tasks(),
        }
    }

    /// Returns its training configuration. Baselines over all tasks take as many steps as all stages of phase 1
    /// together.
    pub(super) fn config(&self, setup: &Setup) -> Result<TrainConfig, RunError> {
        let experiment = &*setup.experiment;
        let phases = &experiment.phases;
        let mut config = match self {
            Self::Whole => return Ok(experiment.train.clone()),
            Self::Router => phase_train(&experiment.train, &phases.router.train)?,
            Self::Joint => phase_train(&experiment.train, &phases.joint.train)?,
            Self::Adapter(index) | Self::Head(index) => {
                task_train(&experiment.train, &phases.adapters, &experiment.tasks[*index])?
            }
            _ => phase_train(&experiment.train, &phases.adapters.train)?,
        };
        if matches!(self, Self::Shared | Self::Full) && !phases.adapters.mixed {
            let mut steps = 0;
            for task in &experiment.tasks {
                let samples = setup.dataset(std::slice::from_ref(task), Split::Train)?.lengths();
                let batches = TaskOrder::new(samples, &setup.training_loader()).batches();
                steps += task_train(&experiment.train, &phases.adapters, task)?.steps(batches);
            }
            (config.max_steps, config.epochs) = (Some(steps), None);
        }
        let changes = match self {
            Self::Head(_) => &phases.baselines.head,
            Self::Shared => &phases.baselines.shared,
            Self::Full => &phases.baselines.full,
            _ => return Ok(config),
        };
        Ok(phase_train(&config, changes)?)
    }

    /// Returns its optimizer configuration, with the phase's own learning rates.
    pub(super) fn optimizer(&self, experiment: &Experiment, config: &TrainConfig) -> OptimizerConfig {
        let mut optimizer = config.optimizer.clone();
        if *self == Self::Joint {
            optimizer.groups.extend(experiment.phases.joint.lr.groups());
        }
        // A ratio for all phases in `train` does not apply to stages that train no adapter.
        if matches!(self, Self::Router | Self::Head(_) | Self::Full) {
            optimizer.lora_plus_ratio = None;
        }
        optimizer
    }

    /// Checks that its parameter groups match parameters of its model.
    pub(super) fn check_optimizer(&self, setup: &Setup) -> Result<(), RunError> {
        // The factor of the learning rate is known only once there are batches.
        let optimizer = OptimizerConfig {
            lr_scaling: LrScaling::None,
            base_batch: None,
            ..self.optimizer(&setup.experiment, &self.config(setup)?)
        };
        if optimizer.groups.is_empty() && optimizer.lora_plus_ratio.is_none() {
            return Ok(());
        }
        let model = self.marked(self.fresh(setup)?, &setup.experiment).train();
        optimizer.check(&parameter_infos(&model)).map_err(|error| {
            ConfigError::Value(format!(
                "{}: {error}; a phase has its own in `phases.N.train.optimizer`",
                self.title(&setup.experiment)
            ))
            .into()
        })
    }

    /// Whether it has taken all steps of the current configuration, or stopped early.
    pub(super) fn is_finished(&self, setup: &Setup, directory: &Path) -> Result<bool, RunError> {
        let Some(summary) = Summary::read(directory) else { return Ok(false) };
        let samples = setup.dataset(&self.tasks(&setup.experiment), Split::Train)?.lengths();
        let (config, batches) = (self.config(setup)?, TaskOrder::new(samples, &setup.training_loader()).batches());
        Ok(summary.is_finished(&config, config.steps(batches)))
    }

    /// Whether a key of the configuration affects the result of the stage.
    pub(super) fn concerns(&self, experiment: &Experiment, key: &str) -> bool {
        let parts: Vec<&str> = key.split('.').collect();
        let routed = matches!(self, Self::Router | Self::Joint);
        match parts[..] {
            ["tasks", name, ..] if !self.tasks(experiment).iter().any(|task| task.name == name) => {
                // An added or removed task affects the stages that train all tasks.
                !matches!(self, Self::Adapter(_) | Self::Head(_))
            }
            ["tasks", _, "train", ..] | ["phases", "1", ..] => !routed,
            ["router", "tap", ..] => true,
            ["router", ..] => routed,
            ["phases", "2", ..] => *self == Self::Router,
            ["phases", "3", "gumbel", ..] => routed,
            ["phases", "3", ..] => *self == Self::Joint,
            ["phases", "baselines", "head", ..] => matches!(self, Self::Head(_)),
            ["phases", "baselines", "shared", ..] => *self == Self::Shared,
            ["phases", "baselines", "full", ..] => *self == Self::Full,
            _ => true,
        }
    }

    pub(super) fn policy(&self, experiment: &Experiment) -> RoutingPolicy {
        let phases = &experiment.phases;
        match self {
            Self::Router => {
                let (gates, weights) = (phases.router.gates, phases.router.losses);
                RoutingPolicy::Router { gates, gumbel: phases.joint.gumbel, weights }
            }
            Self::Joint => {
                let (gates, weights) = (phases.joint.gates, phases.joint.losses);
                RoutingPolicy::Router { gates, gumbel: phases.joint.gumbel, weights }
            }
            _ => RoutingPolicy::Oracle,
        }
    }

    /// Whether it trains an adapter in a run without tasks.
    pub(super) fn is_adapted(&self, experiment: &Experiment) -> bool {
        *self == Self::Whole && experiment.model.trainable == Trainable::Lora
    }

    /// Whether it trains the weights of the model in a run without tasks.
    pub(super) fn is_plain(&self, experiment: &Experiment) -> bool {
        *self == Self::Whole && !self.is_adapted(experiment)
    }

    /// Returns the first block that has adapters.
    fn tap(&self, experiment: &Experiment) -> usize {
        // Without a router no block has to stay below the adapters.
        if *self == Self::Whole { 0 } else { experiment.router.tap }
    }

    /// Returns its adapters by name: one for each task, one for all tasks, or none.
    fn adapters(&self, experiment: &Experiment) -> Vec<AdapterDescription> {
        let tasks = self.tasks(experiment);
        match self {
            Self::Whole if self.is_adapted(experiment) => {
                vec![AdapterDescription { name: ADAPTER.into(), lora: experiment.model.lora.clone() }]
            }
            Self::Whole | Self::Head(_) | Self::Full => Vec::new(),
            Self::Shared => vec![AdapterDescription { name: SHARED.into(), lora: shared(&tasks) }],
            _ => tasks.into_iter().map(|task| AdapterDescription { name: task.name, lora: task.lora }).collect(),
        }
    }

    /// Returns its heads by name: one for each task. Baselines over all tasks on a backbone with a decoder have a
    /// single head, because they are not given the task.
    fn heads(&self, experiment: &Experiment) -> Vec<HeadDescription> {
        let together = |name: &str| vec![HeadDescription { name: name.into(), head: HeadConfig::default() }];
        match self {
            Self::Whole => Vec::new(),
            Self::Shared if !experiment.model.backbone.is_text() => together(SHARED),
            Self::Full if !experiment.model.backbone.is_text() => together("full"),
            _ => {
                let tasks = self.tasks(experiment).into_iter();
                tasks.map(|task| HeadDescription { name: task.name, head: task.head }).collect()
            }
        }
    }

    /// Returns the description for the folder of its model.
    pub(super) fn description(&self, experiment: &Experiment) -> Description {
        Description {
            adapters: self.adapters(experiment),
            heads: self.heads(experiment),
            router: RouterConfig { tap: self.tap(experiment), ..experiment.router.clone() },
            backbone: experiment.model.to_string(),
            trained_backbone: *self == Self::Full,
        }
    }

    /// Loads its best model.
    pub(super) fn trained(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        let experiment = &*setup.experiment;
        let best = self.directory(experiment).join("best");
        let mut model = self.fresh(setup)?;
        let description = self.description(experiment);
        load_parts(&mut model, &description, 0, &best)?;
        if *self == Self::Full {
            load_backbone(&mut model, &best)?;
        }
        load_router(&mut model, &description, &best)?;
        Ok(model)
    }

    /// Loads its best model for one of its tasks: the adapter and the head of that task alone, or those that the stage
    /// has for all tasks.
    pub(super) fn trained_for(&self, task: usize, setup: &Setup) -> Result<TaskModel, RunError> {
        let own = match self {
            Self::Whole => return self.trained(setup),
            Self::Shared | Self::Full => {
                let mut model = self.trained(setup)?;
                // On a text backbone each task has its own head.
                if model.heads.len() > 1 {
                    model.heads = vec![model.heads.swap_remove(task)];
                }
                return Ok(model);
            }
            Self::Head(index) => Self::Head(*index),
            Self::Adapter(_) | Self::Adapters | Self::Router | Self::Joint => Self::Adapter(task),
        };
        let mut model = own.fresh(setup)?;
        let best = self.directory(&setup.experiment).join("best");
        load_parts(&mut model, &own.description(&setup.experiment), 0, &best)?;
        Ok(model)
    }

    /// Returns its model before any trained parts are loaded into it.
    fn fresh(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        let experiment = &*setup.experiment;
        let alignment = &self.loss(experiment).alignment;
        if self.is_plain(experiment) {
            return Ok(TaskModel::plain(setup.pretrained.network()).with_alignment(alignment, &setup.device));
        }
        let (adapters, heads) = (self.adapters(experiment), self.heads(experiment));
        let loras: Vec<LoraConfig> = adapters.into_iter().map(|adapter| adapter.lora).collect();
        let heads: Vec<&HeadConfig> = heads.iter().map(|head| &head.head).collect();
        let (tap, device) = (self.tap(experiment), &setup.device);
        let model = TaskModel::new(setup.pretrained.network(), &loras, &heads, tap, device)
            .map_err(|source| RunError::Adapt { task: self.title(experiment), source })?;
        let routed = matches!(self, Self::Router | Self::Joint);
        let model = if routed { model.with_router(&experiment.router, device) } else { model };
        Ok(if alignment.is_on() { model.with_alignment(alignment, device) } else { model })
    }

    /// Returns its initial model, with trained parameters marked.
    pub(super) fn model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        let experiment = &*setup.experiment;
        let mut model = self.fresh(setup)?;
        if matches!(self, Self::Router | Self::Joint) {
            for slot in 0..experiment.tasks.len() {
                let origin = self.origin(experiment, slot).join("best");
                load_parts(&mut model, &Self::Adapter(slot).description(experiment), slot, &origin)?;
            }
        }
        if *self == Self::Joint {
            let origin = Self::Router.directory(experiment).join("best");
            load_router(&mut model, &self.description(experiment), &origin)?;
        }
        Ok(self.marked(model, experiment))
    }

    /// Returns a model with the structure of its initial one, without any trained parts.
    pub(super) fn untrained(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        Ok(self.marked(self.fresh(setup)?, &setup.experiment))
    }

    /// Returns `model` with its trained parameters marked.
    fn marked(&self, model: TaskModel, experiment: &Experiment) -> TaskModel {
        // A fine-tuned backbone was marked when it was loaded.
        if self.is_plain(experiment) {
            return model;
        }
        let parts = *self != Self::Router;
        model.with_trained(TrainedParts {
            backbone: *self == Self::Full,
            adapters: parts,
            heads: parts,
            alignment: parts,
            router: true,
            router_temperature: experiment.router.learn_temperature,
            router_confidence: self.confidence_weight(experiment) > 0.0,
        })
    }

    /// Returns the weight of the router's confidence loss.
    fn confidence_weight(&self, experiment: &Experiment) -> f64 {
        match self.policy(experiment) {
            RoutingPolicy::Router { weights, .. } => weights.confidence,
            RoutingPolicy::Oracle => 0.0,
        }
    }

    /// Returns the directory of the stage that a task's adapter comes from.
    fn origin(&self, experiment: &Experiment, task: usize) -> PathBuf {
        match self {
            Self::Joint => Self::Router.directory(experiment),
            _ if experiment.phases.adapters.mixed => Self::Adapters.directory(experiment),
            _ => Self::Adapter(task).directory(experiment),
        }
    }

    /// Returns its loss settings. The router alone is trained without alignment terms.
    fn loss(&self, experiment: &Experiment) -> LossConfig {
        let loss = experiment.loss.clone();
        if *self == Self::Router { LossConfig { alignment: AlignmentConfig::default(), ..loss } } else { loss }
    }

    /// Returns the seed of everything random in it.
    pub(super) fn seed(&self, experiment: &Experiment) -> u64 {
        let directory = self.directory(experiment);
        match self {
            Self::Whole => experiment.seed,
            _ => seeds::of_name(experiment.seed, &directory.file_name().unwrap_or_default().to_string_lossy()),
        }
    }

    /// Returns the name of the file in its directory with the configuration that it was started with.
    pub(super) fn recorded_in(&self) -> &'static str {
        if *self == Self::Whole { CONFIG } else { STAGE }
    }

    /// Returns its objective, with evaluation on the validation data of its tasks.
    pub(super) fn objective(&self, setup: &Setup) -> Result<TaskObjective, RunError> {
        let experiment = &setup.experiment;
        let tasks = self.tasks(experiment);
        Ok(TaskObjective {
            policy: self.policy(experiment),
            loss: self.loss(experiment),
            valid: setup.evaluation_batches(&tasks, Split::Valid)?,
            evaluator: setup.evaluator(tasks)?,
            description: (!self.is_plain(experiment)).then(|| self.description(experiment)),
        })
    }

    /// Returns its training batches.
    pub(crate) fn batches(
        &self,
        setup: &Setup,
        config: &TrainConfig,
        directory: &Path,
    ) -> Result<StageBatches, RunError> {
        let dataset = setup.dataset(&self.tasks(&setup.experiment), Split::Train)?;
        let order = match self {
            Self::Whole => whole_order(setup, &dataset)?,
            _ => Some(Box::new(self.task_order(setup, &dataset, config)?) as Box<dyn Order>),
        };
        let loader = setup.training_batches(dataset, order)?;
        Ok(StageBatches::new(loader, config.accumulation, SkipRecord::new(directory)))
    }

    fn task_order(&self, setup: &Setup, dataset: &TaskDataset, config: &TrainConfig) -> Result<TaskOrder, RunError> {
        let phases = &setup.experiment.phases;
        let mut order =
            TaskOrder::new(dataset.lengths(), &setup.training_loader()).with_accumulation(config.accumulation);
        order = match self {
            Self::Router => order.with_temperature(phases.router.task_temperature)?,
            Self::Joint => order.with_temperature(phases.joint.task_temperature)?,
            _ => order,
        };
        if *self == Self::Joint {
            let steps = config.steps(order.batches());
            order = order.with_curriculum(phases.joint.curriculum, steps);
        }
        Ok(order)
    }
}

/// Default name of an adapter in PEFT.
pub(super) const ADAPTER: &str = "default";
/// Name of the adapter for all tasks.
pub(super) const SHARED: &str = "shared";

/// Returns the order of mixed sources, or of recordings in shards; `None` for others, which use the loader's order.
fn whole_order(setup: &Setup, dataset: &TaskDataset) -> Result<Option<Box<dyn Order>>, RunError> {
    let (data, seed) = (&setup.experiment.data, setup.experiment.seed);
    let Some(samples) = dataset.tasks().first() else { return Ok(None) };
    Ok(samples.order(data, seed)?)
}

/// Returns the configuration of one adapter with the summed ranks and all targets of the tasks' adapters. It has as
/// many parameters as these together if all have the same targets, more otherwise.
fn shared(tasks: &[TaskConfig]) -> LoraConfig {
    let mut config = tasks.first().map(|task| task.lora.clone()).unwrap_or_default();
    let scale = config.scale();
    config.r = tasks.iter().map(|task| task.lora.r).sum();
    config.lora_alpha *= scale / config.scale();
    for target in tasks.iter().flat_map(|task| &task.lora.target_modules) {
        if !config.target_modules.contains(target) {
            config.target_modules.push(target.clone());
        }
    }
    config
}

/// Whether the stage in `directory` is complete.
pub(super) fn is_complete(directory: &Path) -> bool {
    let summary = std::fs::read_to_string(directory.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    summary.and_then(|summary| summary.get("completed")?.as_bool()).unwrap_or(false)
}
