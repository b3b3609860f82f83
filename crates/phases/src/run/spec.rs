//! Stages of an experiment as values: what each one trains, on which tasks, how, and what it starts from.

use super::folder::{AdapterDescription, Description, HeadDescription};
use super::model::TrainedParts;
use super::objective::RoutingPolicy;
use super::phase::{Baseline, Phase};
use crate::changes::is_below;
use crate::config::{AdapterTeacher, CurriculumConfig, Parallel, TaskConfig, phase_train};
use crate::{AlignmentConfig, ConfigError, Experiment, LossConfig, Trainable};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use undertone_model::adapters::AdapterConfig;
use undertone_model::router::RouterConfig;
use undertone_ops::seeds;
use undertone_tasks::HeadConfig;
use undertone_train::{GroupConfig, OptimizerConfig, TrainConfig};

/// Stage of an experiment: a separate training run with a directory of its own.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Title in logs and on pages.
    pub title: String,
    /// Directory of its records: that of the run, or one inside it.
    pub directory: PathBuf,
    /// Tasks that it trains on.
    pub tasks: Vec<TaskConfig>,
    /// Index of the task that has this stage for itself.
    pub task: Option<usize>,
    /// Layout of the folder of its model.
    pub layout: Layout,
    /// Seed of everything random in it.
    pub(super) seed: u64,
    /// Work that processes share.
    pub(super) parallel: Parallel,
    /// Changes to `train`, one after the other.
    changes: Vec<Map<String, Value>>,
    /// Whether it takes as many steps as all stages of phase 1 together, unless its own changes say otherwise.
    pub(super) steps_of_adapters: bool,
    /// Parameter groups that are appended to those of `train`.
    groups: Vec<GroupConfig>,
    /// Those keys of `phases` and `router` that affect its result.
    keys: &'static [&'static str],
    /// Adapters, heads, tap and backbone of its model.
    pub(super) description: Description,
    /// Gates and loss terms.
    pub(super) policy: RoutingPolicy,
    /// Settings of the loss.
    pub(super) loss: LossConfig,
    /// Parts of the model that are trained. A whole model is trained as it was marked when it was loaded.
    pub(super) trained: TrainedParts,
    /// Order of the training samples.
    pub(super) order: SampleOrder,
    /// Phase whose adapters, heads and router it starts from.
    pub(super) starts_from: Option<Phase>,
    /// Adapters that teach its own one.
    pub(super) teacher: Option<AdapterTeacher>,
    /// Folder that stands for that of its best model, for a model made of it.
    pub(super) replaced_by: Option<Arc<TempDir>>,
    /// Whether its best model is that of the average of its weights, `best_ema`.
    pub(super) is_average: bool,
}

/// Kind of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// The backbone, the part of it that `model.trainable` names, or an adapter on it: the only stage of a run without
    /// `tasks`.
    Model,
    /// Phase of a run with tasks.
    Phase(Phase),
    /// Baseline that a run with tasks is compared with.
    Baseline(Baseline),
}

/// Layout of the folder of a trained model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A whole model, like the folder that it was loaded from.
    Model,
    /// Adapters in PEFT's layout, heads, router and `dynamo.json`.
    Adapters,
}

/// Order of training samples.
#[derive(Clone, Copy, Debug)]
pub(super) enum SampleOrder {
    /// Sources of the only task by their weights, and recordings in shards block by block.
    Sources,
    /// Samples of all tasks in turn.
    Tasks {
        /// Temperature for mixing tasks.
        temperature: Option<f64>,
        /// Curriculum from batches of one task to mixed batches.
        curriculum: Option<CurriculumConfig>,
    },
}

impl From<Phase> for StageKind {
    fn from(phase: Phase) -> Self {
        Self::Phase(phase)
    }
}

impl From<Baseline> for StageKind {
    fn from(baseline: Baseline) -> Self {
        Self::Baseline(baseline)
    }
}

/// Returns every stage that a run can have, baselines included.
pub(super) fn all_stages(experiment: &Experiment) -> Vec<StageSpec> {
    if experiment.tasks.is_empty() {
        return stages(experiment, StageKind::Model);
    }
    let phases = Phase::ALL.map(StageKind::Phase).into_iter();
    phases.chain(Baseline::ALL.map(StageKind::Baseline)).flat_map(|kind| stages(experiment, kind)).collect()
}

/// Returns the stages of a kind: one for each task, or one for all tasks.
pub fn stages(experiment: &Experiment, kind: impl Into<StageKind>) -> Vec<StageSpec> {
    match kind.into() {
        StageKind::Model => vec![whole_model(experiment)],
        StageKind::Phase(phase) => of_phase(experiment, phase),
        StageKind::Baseline(baseline) => of_baseline(experiment, baseline),
    }
}

fn whole_model(experiment: &Experiment) -> StageSpec {
    let is_adapted = experiment.model.trainable == Trainable::Lora;
    let (title, layout) = match is_adapted {
        true => (format!("an adapter on {}", experiment.model), Layout::Adapters),
        false => (format!("fine-tuning {}", experiment.model), Layout::Model),
    };
    let adapters =
        is_adapted.then(|| AdapterDescription::new(ADAPTER, experiment.model.adapter())).into_iter().collect();
    let usual = for_all(experiment, "");
    // Without a router no block has to stay below the adapters.
    let router = RouterConfig { tap: 0, ..usual.description.router };
    StageSpec {
        title,
        directory: experiment.directory(),
        seed: experiment.seed,
        layout,
        changes: Vec::new(),
        description: Description { adapters, heads: Vec::new(), router, ..usual.description },
        order: SampleOrder::Sources,
        ..usual
    }
}

fn of_phase(experiment: &Experiment, phase: Phase) -> Vec<StageSpec> {
    let phases = &experiment.phases;
    match phase {
        Phase::Adapters if phases.adapters.mixed => {
            vec![StageSpec {
                title: "phase 1: all adapters and heads in mixed batches".into(),
                ..for_all(experiment, "phase1/all")
            }]
        }
        Phase::Adapters => for_each_task(experiment, "phase1", |task, usual| StageSpec {
            title: format!("phase 1: adapter and head of `{}`", task.name),
            parallel: phases.adapters.parallel,
            changes: vec![phases.adapters.train.clone(), task.train.clone()],
            ..usual
        }),
        Phase::Router => {
            let (usual, weights) = (for_all(experiment, "phase2"), phases.router.losses);
            vec![StageSpec {
                title: "phase 2: the router".into(),
                changes: vec![phases.router.train.clone()],
                keys: &["router", "phases.2"],
                policy: RoutingPolicy::Router { gates: phases.router.gates, weights },
                // Terms on the encoder train the adapters, which stay as they are.
                loss: LossConfig { alignment: AlignmentConfig::default(), ctc: 0.0, ..usual.loss },
                trained: TrainedParts {
                    adapters: false,
                    heads: false,
                    alignment: false,
                    router_confidence: weights.confidence > 0.0,
                    ..usual.trained
                },
                order: SampleOrder::Tasks { temperature: Some(phases.router.task_temperature), curriculum: None },
                starts_from: Phase::Router.before(),
                ..usual
            }]
        }
        Phase::Joint => {
            let (usual, weights) = (for_all(experiment, "phase3"), phases.joint.losses);
            vec![StageSpec {
                title: "phase 3: router, adapters and heads".into(),
                changes: vec![phases.joint.train.clone()],
                groups: phases.joint.lr.groups(),
                keys: &["router", "phases.3"],
                policy: RoutingPolicy::Router { gates: phases.joint.gates, weights },
                trained: TrainedParts { router_confidence: weights.confidence > 0.0, ..usual.trained },
                order: SampleOrder::Tasks {
                    temperature: Some(phases.joint.task_temperature),
                    curriculum: Some(phases.joint.curriculum),
                },
                starts_from: Phase::Joint.before(),
                ..usual
            }]
        }
    }
}

fn of_baseline(experiment: &Experiment, baseline: Baseline) -> Vec<StageSpec> {
    let phases = &experiment.phases;
    match baseline {
        Baseline::Head => for_each_task(experiment, "baselines/head", |task, usual| StageSpec {
            title: format!("baseline: head of `{}` on the frozen backbone", task.name),
            changes: vec![phases.adapters.train.clone(), task.train.clone(), phases.baselines.head.clone()],
            keys: &["phases.1", "router.tap", "phases.baselines.head"],
            description: Description { adapters: Vec::new(), ..usual.description },
            // Nothing of the encoder is trained.
            loss: LossConfig { ctc: 0.0, ..usual.loss },
            ..usual
        }),
        Baseline::Shared => vec![StageSpec {
            title: "baseline: one adapter for all tasks".into(),
            changes: vec![phases.adapters.train.clone(), phases.baselines.shared.clone()],
            keys: &["phases.1", "router.tap", "phases.baselines.shared"],
            ..for_all(experiment, "baselines/shared").with_one_adapter(experiment)
        }],
        Baseline::Distilled => vec![StageSpec {
            title: "baseline: one adapter for all tasks, taught by those of the tasks".into(),
            changes: vec![phases.adapters.train.clone(), phases.baselines.distilled.clone()],
            keys: match phases.baselines.teacher.phase {
                1 => &["phases.1", "router.tap", "phases.baselines.distilled", "phases.baselines.teacher"],
                _ => &["phases.1", "phases.3", "router.tap", "phases.baselines.distilled", "phases.baselines.teacher"],
            },
            teacher: Some(phases.baselines.teacher),
            ..for_all(experiment, "baselines/distilled").with_one_adapter(experiment)
        }],
        Baseline::Full => {
            let usual = for_all(experiment, "baselines/full");
            let description = Description { adapters: Vec::new(), trained_backbone: true, ..usual.description };
            vec![StageSpec {
                title: "baseline: the whole backbone".into(),
                changes: vec![phases.adapters.train.clone(), phases.baselines.full.clone()],
                steps_of_adapters: !phases.adapters.mixed,
                keys: &["phases.1", "router.tap", "phases.baselines.full"],
                description: description.without_task(experiment, "full"),
                trained: TrainedParts { backbone: true, ..usual.trained },
                ..usual
            }]
        }
    }
}

/// One stage for all tasks, before what is special to its kind.
fn for_all(experiment: &Experiment, directory: &str) -> StageSpec {
    StageSpec::usual(experiment, experiment.all_tasks(), directory)
}

/// A stage for each task, which `stage` makes of the task and of what all stages have.
fn for_each_task(
    experiment: &Experiment,
    parent: &str,
    stage: impl Fn(&TaskConfig, StageSpec) -> StageSpec,
) -> Vec<StageSpec> {
    let usual = |(index, task): (usize, &TaskConfig)| {
        let usual = StageSpec::usual(experiment, vec![task.clone()], &format!("{parent}/{}", task.name));
        stage(task, StageSpec { task: Some(index), ..usual })
    };
    experiment.tasks.iter().enumerate().map(usual).collect()
}

impl StageSpec {
    /// Returns the first stage of a run.
    pub fn first(experiment: &Experiment) -> Self {
        all_stages(experiment).swap_remove(0)
    }

    /// Returns a stage that trains an adapter and a head for each of `tasks`, without a router. Other stages are
    /// described by what differs.
    fn usual(experiment: &Experiment, tasks: Vec<TaskConfig>, directory: &str) -> Self {
        let name = Path::new(directory).file_name().unwrap_or_default().to_string_lossy();
        let head = |task: &TaskConfig| HeadDescription { name: task.name.clone(), head: task.head.clone() };
        Self {
            title: String::new(),
            seed: seeds::of_name(experiment.seed, &name),
            directory: experiment.directory().join(directory),
            task: None,
            layout: Layout::Adapters,
            parallel: Parallel::Steps,
            changes: vec![experiment.phases.adapters.train.clone()],
            steps_of_adapters: false,
            groups: Vec::new(),
            keys: &["phases.1", "router.tap"],
            description: Description {
                adapters: tasks.iter().map(|task| AdapterDescription::new(&task.name, task.adapter())).collect(),
                heads: tasks.iter().map(head).collect(),
                router: experiment.router.clone(),
                backbone: experiment.backbone_name(),
                backbone_checksum: None,
                trained_backbone: false,
            },
            policy: RoutingPolicy::Oracle,
            loss: experiment.loss.clone(),
            trained: TrainedParts {
                backbone: false,
                adapters: true,
                heads: true,
                alignment: true,
                router: true,
                router_temperature: experiment.router.learn_temperature,
                router_confidence: false,
            },
            order: SampleOrder::Tasks { temperature: None, curriculum: None },
            starts_from: None,
            teacher: None,
            replaced_by: None,
            is_average: false,
            tasks,
        }
    }

    /// Returns the stage with one adapter for all of its tasks, as many steps as all stages of phase 1, and a model that is not given
    /// the task.
    fn with_one_adapter(self, experiment: &Experiment) -> Self {
        let adapters = vec![AdapterDescription::new(SHARED, shared(&self.tasks))];
        Self {
            steps_of_adapters: !experiment.phases.adapters.mixed,
            description: Description { adapters, ..self.description }.without_task(experiment, SHARED),
            ..self
        }
    }

    /// Returns the stage with the adapter and the head of one task alone, or with those that it has for all tasks, and
    /// without the router.
    pub(super) fn only(&self, task: usize) -> Self {
        Self { description: self.description.only(task), policy: RoutingPolicy::Oracle, ..self.clone() }
    }

    /// Whether its model has a router.
    pub(super) fn is_routed(&self) -> bool {
        matches!(self.policy, RoutingPolicy::Router { .. })
    }

    /// Returns its training configuration: `train` with its changes. `steps` is the number of steps of all stages of
    /// phase 1 together, where it takes as many.
    pub(super) fn train_config(&self, train: &TrainConfig, steps: Option<u64>) -> Result<TrainConfig, ConfigError> {
        let Some((last, earlier)) = self.changes.split_last() else { return Ok(train.clone()) };
        let mut config = earlier.iter().try_fold(train.clone(), |config, changes| phase_train(&config, changes))?;
        if steps.is_some() {
            (config.max_steps, config.epochs) = (steps, None);
        }
        phase_train(&config, last)
    }

    /// Returns the optimizer of its training configuration `train`, with its own parameter groups.
    pub(super) fn optimizer(&self, train: &TrainConfig) -> OptimizerConfig {
        let mut optimizer = train.optimizer.clone();
        optimizer.groups.extend(self.groups.iter().cloned());
        let trains_adapters = self.trained.adapters && !self.description.adapters.is_empty();
        // A ratio for all phases in `train` does not apply to stages that train no adapter.
        if self.layout == Layout::Adapters && !trains_adapters {
            optimizer.lora_plus_ratio = None;
        }
        optimizer
    }

    /// Whether a key of the configuration affects its result.
    pub(super) fn concerns(&self, key: &str) -> bool {
        let is_own = |key: &str| self.keys.iter().any(|own| is_below(key, own));
        match key.split('.').collect::<Vec<_>>()[..] {
            // An added or removed task affects the stages that train all tasks.
            ["tasks", name, ..] if !self.tasks.iter().any(|task| task.name == name) => self.task.is_none(),
            ["tasks", _, "train", ..] => is_own("phases.1"),
            ["phases" | "router", ..] => is_own(key),
            _ => true,
        }
    }
}

impl Description {
    /// Returns the description of a model that is not given the task: a backbone with a decoder has a single head,
    /// called `name`. On a text backbone each task keeps its own, which identifies the task.
    fn without_task(self, experiment: &Experiment, name: &str) -> Self {
        if experiment.model.backbone.is_text() {
            return self;
        }
        Self { heads: vec![HeadDescription { name: name.into(), head: HeadConfig::default() }], ..self }
    }
}

/// Default name of an adapter in PEFT.
const ADAPTER: &str = "default";
/// Name of the adapter for all tasks.
const SHARED: &str = "shared";

/// Returns the configuration of one adapter for all tasks.
fn shared(tasks: &[TaskConfig]) -> AdapterConfig {
    let adapters: Vec<AdapterConfig> = tasks.iter().map(TaskConfig::adapter).collect();
    adapters.first().map(|first| first.shared_config(&adapters)).unwrap_or_default()
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
