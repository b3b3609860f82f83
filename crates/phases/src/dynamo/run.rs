//! The phases, one after the other, each in its own directory.

use super::batch::{TaskCollate, TaskDataset, TaskSamples};
use super::config::{TaskConfig, phase_train, task_train};
use super::folder::{
    AdapterDescription, Description, FolderError, HeadDescription, load_backbone, load_parts, load_router,
};
use super::head_config::HeadConfig;
use super::model::Dynamo;
use super::objective::{DynamoObjective, Scheme, TaskEpochs};
use super::order::TaskOrder;
use super::pretrained::{BackboneError, Pretrained};
use super::setup::{Setup, seed_of};
use super::text_data::{Cut, TextDataError};
use crate::advice::Situation;
use crate::analysis::AnalysisError;
use crate::finetune::train;
use crate::report::write_report;
use crate::text::TextError;
use crate::{ConfigError, Experiment, RunError, Session, Split, TranscribeError};
use burn::module::Module;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use undertone_data::loader::Loader;
use undertone_model::lora::{AdaptError, LoraConfig};
use undertone_store::{StoreError, is_blank, parameter_infos, set_trainable, write_atomically};
use undertone_train::{BoxError, Learner, OptimizerConfig, Summary, TrainConfig};

/// A phase of a DYNAMO run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// 1: adapters and heads.
    Adapters,
    /// 2: the router.
    Router,
    /// 3: both.
    Joint,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Adapters, Self::Router, Self::Joint];

    fn number(self) -> usize {
        self as usize + 1
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" => Ok(Self::Adapters),
            "2" => Ok(Self::Router),
            "3" => Ok(Self::Joint),
            _ => Err(format!("there is no phase `{text}`: there are 1, 2, 3 and all")),
        }
    }
}

/// What a run is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// No adapters: a head for each task on the frozen backbone.
    Head,
    /// One adapter for all tasks with the ranks of theirs together. On a speech backbone it has one head, so that what an
    /// input asks for has to be found in the input; on a text backbone each task has its own, and so is told apart.
    Shared,
    /// The whole backbone trained on all tasks, with heads as for `Shared`.
    Full,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Head, Self::Shared, Self::Full];

    /// What folders and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Shared => "shared",
            Self::Full => "full",
        }
    }
}

impl FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|baseline| baseline.name() == text);
        found.ok_or_else(|| format!("there is no baseline `{text}`: there are head, shared and full"))
    }
}

/// A training run of its own within an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Phase 1 for one task.
    Adapter(usize),
    /// Phase 1 for all tasks at once.
    Adapters,
    /// Phase 2.
    Router,
    /// Phase 3.
    Joint,
    /// A task's head alone.
    Head(usize),
    /// One adapter for all.
    Shared,
    /// Everything trained.
    Full,
}

/// What a stage left.
#[derive(Clone, Debug)]
pub struct StageOutcome {
    /// Where its records are.
    pub directory: PathBuf,
    /// What its `summary.json` says; nothing for a stage that an earlier session finished.
    pub summary: Option<Summary>,
}

/// Why a DYNAMO run did not come about, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DynamoError {
    /// The device, backbone or data cannot be had, or training stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A key of the configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is nothing to be done in phases.
    #[error("the configuration has no `tasks`: phases and baselines are for those; train without --phase")]
    NoTasks,
    /// The backbone cannot be had.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// A task's records cannot be used.
    #[error("task `{task}`: {source}")]
    Data {
        /// The task.
        task: String,
        /// Why not.
        source: Box<TextDataError>,
    },
    /// A head does not fit the backbone.
    #[error("task `{task}`: `head`: {reason}")]
    Head {
        /// The task.
        task: String,
        /// Why not.
        reason: String,
    },
    /// Adapters do not fit the backbone.
    #[error("{task}: {source}")]
    Adapt {
        /// The task, or the stage.
        task: String,
        /// Why not.
        source: AdaptError,
    },
    /// The router listens above the last block.
    #[error("`router.tap` is {tap}: the encoder has {blocks} blocks, and adapters need at least one above the tap")]
    Tap {
        /// The tap.
        tap: usize,
        /// Encoder blocks.
        blocks: usize,
    },
    /// A router over one task decides nothing.
    #[error("phase {0} needs at least two `tasks`: a router over one has nothing to decide")]
    OneTask(usize),
    /// What a phase begins with is not there.
    #[error("phase {phase} begins with what phase {needs} found, and `{}` has not finished: run `cargo xtask train --phase {needs}` first (with --resume if it was interrupted)", directory.display())]
    Predecessor {
        /// The phase.
        phase: usize,
        /// The one before.
        needs: usize,
        /// The unfinished stage.
        directory: PathBuf,
    },
    /// An earlier phase is asked to go on that a later one was made from.
    #[error("`{}` was made from an earlier phase that is asked for more steps now: delete it, or let it be trained anew with --set run.overwrite=true", .0.display())]
    Outrun(PathBuf),
    /// What it begins with does not fit.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is nothing that could be judged.
    #[error("`{}` has no finished phase: run `cargo xtask train --phase 1` first", .0.display())]
    NothingTrained(PathBuf),
    /// There is no router yet.
    #[error("`{}` has no router yet, and nobody says which task an input belongs to: run `cargo xtask train --phase 2`", .0.display())]
    NoRouter(PathBuf),
    /// The backbone takes something else.
    #[error("the run's backbone takes {0}")]
    Modality(&'static str),
    /// A question has nowhere to find its answer.
    #[error("the router took it for `{0}`, which finds answers in a context: give one with --context")]
    NoContext(String),
    /// A text cannot become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Audio cannot be read, or a prompt not be made.
    #[error(transparent)]
    Input(#[from] TranscribeError),
    /// A model could not be judged.
    #[error("the model cannot be judged: {0}")]
    Judge(BoxError),
    /// The numbers make no picture.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
}

impl DynamoError {
    /// Whether the cause is something the user gave.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Folder(FolderError::Store(error)) => {
                matches!(error, StoreError::Missing { .. } | StoreError::Shape { .. })
            }
            _ => true,
        }
    }
}

/// Runs the given phases, from their start or, where the session resumes, each from where it stopped, until they are done
/// or interrupted.
///
/// # Errors
/// Whatever is wrong with device, backbone, data or an earlier phase is found before anything is written.
pub fn dynamo(experiment: &Experiment, phases: &[Phase], session: &Session) -> Result<Vec<StageOutcome>, DynamoError> {
    let first = phases.iter().min().copied().unwrap_or(Phase::Adapters);
    if first > Phase::Adapters {
        let before = if first == Phase::Router { Phase::Adapters } else { Phase::Router };
        for stage in stages(experiment, before) {
            let directory = stage.directory(experiment);
            if !is_complete(&directory) {
                let (phase, needs) = (first.number(), before.number());
                return Err(DynamoError::Predecessor { phase, needs, directory });
            }
        }
    }
    if let Some(phase) = phases.iter().find(|p| **p != Phase::Adapters && experiment.tasks.len() < 2) {
        return Err(DynamoError::OneTask(phase.number()));
    }
    let stages: Vec<Stage> = phases.iter().flat_map(|phase| stages(experiment, *phase)).collect();
    // What an earlier phase finds anew, later ones were not made from.
    let outdated = Phase::ALL.iter().filter(|phase| **phase > first).flat_map(|p| self::stages(experiment, *p));
    run(experiment, &stages, &outdated.collect::<Vec<_>>(), session)
}

/// Trains what a run is compared with.
///
/// # Errors
/// As for [`dynamo`].
pub fn baseline(
    experiment: &Experiment,
    baseline: Baseline,
    session: &Session,
) -> Result<Vec<StageOutcome>, DynamoError> {
    let stages = match baseline {
        Baseline::Head => (0..experiment.tasks.len()).map(Stage::Head).collect(),
        Baseline::Shared => vec![Stage::Shared],
        Baseline::Full => vec![Stage::Full],
    };
    run(experiment, &stages, &[], session)
}

/// The stages of a phase.
pub(super) fn stages(experiment: &Experiment, phase: Phase) -> Vec<Stage> {
    match phase {
        Phase::Adapters if experiment.phases.adapters.mixed => vec![Stage::Adapters],
        Phase::Adapters => (0..experiment.tasks.len()).map(Stage::Adapter).collect(),
        Phase::Router => vec![Stage::Router],
        Phase::Joint => vec![Stage::Joint],
    }
}

fn run(
    experiment: &Experiment,
    stages: &[Stage],
    outdated: &[Stage],
    session: &Session,
) -> Result<Vec<StageOutcome>, DynamoError> {
    let resume = session.resume;
    if experiment.tasks.is_empty() {
        return Err(DynamoError::NoTasks);
    }
    let root = experiment.directory();
    // Later phases were made from what an earlier one found: they go with it.
    let replaced = stages.iter().chain(outdated);
    let taken: Vec<PathBuf> = replaced.map(|stage| stage.directory(experiment)).filter(|d| d.exists()).collect();
    if let Some(directory) = taken.first().filter(|_| !resume && !experiment.run.overwrite) {
        return Err(RunError::Exists(directory.clone()).into());
    }
    if root.exists() && !root.join("config.yaml").exists() && !is_blank(&root) {
        return Err(RunError::NotARun(root).into());
    }
    if resume && taken.is_empty() {
        return Err(RunError::NothingToResume(root).into());
    }
    let setup = Setup::new(experiment)?;
    // Every task's targets, head and data, before the first of them trains for minutes.
    check_fit(&setup)?;
    for split in [Split::Train, Split::Valid] {
        report_cuts(&setup.dataset(&experiment.tasks, split)?, &experiment.tasks, split);
    }
    stages.iter().try_for_each(|stage| stage.check_optimizer(&setup))?;
    // What the first stage begins with, while nothing has been touched; later stages begin with what is not there yet.
    if let Some(first @ (Stage::Router | Stage::Joint)) = stages.first() {
        first.model(&setup)?;
    }
    let replaced = if resume { outrun(&setup, stages)? } else { taken };
    if let Some(directory) = replaced.first().filter(|_| resume && !experiment.run.overwrite) {
        return Err(DynamoError::Outrun(directory.clone()));
    }
    for directory in replaced {
        std::fs::remove_dir_all(&directory).map_err(store("delete", &directory))?;
    }
    std::fs::create_dir_all(&root).map_err(store("create", &root))?;
    write_atomically(&root.join("config.yaml"), experiment.to_yaml().as_bytes()).map_err(RunError::from)?;
    let mut outcomes = Vec::new();
    for stage in stages {
        let directory = stage.directory(experiment);
        if resume && stage.is_finished(&setup, &directory)? {
            outcomes.push(StageOutcome { directory, summary: None });
            continue;
        }
        eprintln!("{}", stage.title(experiment));
        let summary = stage.train(&setup, &directory, session)?;
        let completed = summary.completed;
        outcomes.push(StageOutcome { directory, summary: Some(summary) });
        if !completed {
            break;
        }
    }
    Ok(outcomes)
}

/// Every stage of a run, baselines included, that was begun: what it is called and where it is.
pub(super) fn trained_stages(experiment: &Experiment) -> Vec<(String, PathBuf)> {
    let phases = Phase::ALL.iter().flat_map(|phase| stages(experiment, *phase));
    let heads = (0..experiment.tasks.len()).map(Stage::Head);
    let all = phases.chain(heads).chain([Stage::Shared, Stage::Full]);
    let named = all.map(|stage| (stage.title(experiment), stage.directory(experiment)));
    named.filter(|(_, directory)| directory.join("metrics.jsonl").exists()).collect()
}

/// What later phases left that were made from a stage which is finished and now asked for more steps.
fn outrun(setup: &Setup, asked: &[Stage]) -> Result<Vec<PathBuf>, DynamoError> {
    let experiment = setup.experiment;
    for phase in Phase::ALL {
        for stage in stages(experiment, phase).into_iter().filter(|stage| asked.contains(stage)) {
            let directory = stage.directory(experiment);
            if is_complete(&directory) && !stage.is_finished(setup, &directory)? {
                let later = Phase::ALL.into_iter().filter(|later| *later > phase);
                let later = later.flat_map(|later| stages(experiment, later)).map(|s| s.directory(experiment));
                return Ok(later.filter(|directory| directory.exists()).collect());
            }
        }
    }
    Ok(Vec::new())
}

/// Whether the router's tap and every task's adapter and head fit the backbone.
pub(super) fn check_fit(setup: &Setup) -> Result<(), DynamoError> {
    let (experiment, network) = (setup.experiment, setup.pretrained.network());
    let (tap, blocks) = (experiment.router.tap, network.blocks());
    if tap >= blocks {
        return Err(DynamoError::Tap { tap, blocks });
    }
    for task in &experiment.tasks {
        if let Err(reason) = fits(&task.head, &setup.pretrained) {
            return Err(DynamoError::Head { task: task.name.clone(), reason });
        }
        let one = std::slice::from_ref(&task.lora);
        Dynamo::new(network.clone(), one, &[], tap, &setup.device)
            .map_err(|source| DynamoError::Adapt { task: format!("task `{}`", task.name), source })?;
    }
    Ok(())
}

/// Whether a head reads no more tokens than a text backbone has positions for, and divides its width.
fn fits(head: &HeadConfig, pretrained: &Pretrained) -> Result<(), String> {
    let Pretrained::Text(backbone) = pretrained else { return Ok(()) };
    let (key, length) = match head {
        HeadConfig::Seq2seq(config) => {
            config.decoder().validate(backbone.text.config.hidden_size).map_err(|e| e.to_string())?;
            ("max_source", config.max_source)
        }
        HeadConfig::Classify(config) => ("max_length", config.max_length),
        HeadConfig::Span(config) => ("max_length", config.max_length),
        HeadConfig::Tag(config) => ("max_length", config.max_length),
    };
    let longest = backbone.text.model.max_tokens();
    if length > longest {
        return Err(format!(
            "`{key}` is {length}, and the backbone has positions for {longest} tokens: give at most that"
        ));
    }
    Ok(())
}

/// Says what does not fit: nothing is cut in silence.
pub(super) fn report_cuts(dataset: &TaskDataset, tasks: &[TaskConfig], split: Split) {
    for (task, samples) in tasks.iter().zip(dataset.tasks()) {
        let TaskSamples::Text(samples) = samples else { continue };
        let (cut, all) = (samples.cut(), samples.len());
        if cut != Default::default() {
            let split = format!("{split:?}").to_lowercase();
            let Cut { inputs, targets } = cut;
            eprintln!(
                "task `{}`, {split}: of {all} samples {inputs} inputs are cut, and {targets} targets do not fit whole",
                task.name
            );
        }
    }
}

impl Stage {
    /// Where its records are.
    pub fn directory(&self, experiment: &Experiment) -> PathBuf {
        let task = |index: &usize| experiment.tasks[*index].name.as_str();
        let root = experiment.directory();
        match self {
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
            Self::Adapter(index) => format!("phase 1: adapter and head of `{}`", name(index)),
            Self::Adapters => "phase 1: all adapters and heads in mixed batches".into(),
            Self::Router => "phase 2: the router".into(),
            Self::Joint => "phase 3: router, adapters and heads".into(),
            Self::Head(index) => format!("baseline: head of `{}` on the frozen backbone", name(index)),
            Self::Shared => "baseline: one adapter for all tasks".into(),
            Self::Full => "baseline: the whole backbone".into(),
        }
    }

    /// The tasks it trains on.
    pub(super) fn tasks(&self, experiment: &Experiment) -> Vec<TaskConfig> {
        match self {
            Self::Adapter(index) | Self::Head(index) => vec![experiment.tasks[*index].clone()],
            _ => experiment.tasks.clone(),
        }
    }

    /// How it trains. Baselines over all tasks see as many samples as phase 1 does over all its stages.
    pub(super) fn config(&self, setup: &Setup) -> Result<TrainConfig, DynamoError> {
        let experiment = setup.experiment;
        let phases = &experiment.phases;
        let mut config = match self {
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

    /// How its parameters move: by the phase's own rates, and as its batches ask for; and the sentence that says so.
    fn optimizer(&self, experiment: &Experiment, config: &TrainConfig) -> (OptimizerConfig, Option<String>) {
        let mut optimizer = config.optimizer.clone();
        if *self == Self::Joint {
            optimizer.groups.extend(experiment.phases.joint.lr.groups());
        }
        // What `train` says for all phases is not meant for those that train no adapter.
        if matches!(self, Self::Router | Self::Head(_) | Self::Full) {
            optimizer.lora_plus_ratio = None;
        }
        optimizer.for_batch(experiment.data.batch_size * config.accumulation)
    }

    /// Whether its parameter groups are those of its model.
    fn check_optimizer(&self, setup: &Setup) -> Result<(), DynamoError> {
        let (optimizer, _) = self.optimizer(setup.experiment, &self.config(setup)?);
        if optimizer.groups.is_empty() && optimizer.lora_plus_ratio.is_none() {
            return Ok(());
        }
        let model = self.marked(self.fresh(setup)?, setup.experiment).train();
        optimizer.check(&parameter_infos(&model)).map_err(|error| {
            ConfigError::Value(format!(
                "{}: {error}; a phase has its own in `phases.N.train.optimizer`",
                self.title(setup.experiment)
            ))
            .into()
        })
    }

    /// Whether it has taken the steps that the configuration asks for by now, or stopped early.
    fn is_finished(&self, setup: &Setup, directory: &Path) -> Result<bool, DynamoError> {
        let Some(summary) = Summary::read(directory) else { return Ok(false) };
        let samples = setup.dataset(&self.tasks(setup.experiment), Split::Train)?.lengths();
        let (config, batches) = (self.config(setup)?, TaskOrder::new(samples, &setup.training_loader()).batches());
        Ok(summary.is_finished(&config, config.steps(batches)))
    }

    pub(super) fn scheme(&self, experiment: &Experiment) -> Scheme {
        let phases = &experiment.phases;
        match self {
            Self::Router => {
                let (gates, weights) = (phases.router.gates, phases.router.losses);
                Scheme::Router { gates, gumbel: phases.joint.gumbel, weights }
            }
            Self::Joint => {
                let (gates, weights) = (phases.joint.gates, phases.joint.losses);
                Scheme::Router { gates, gumbel: phases.joint.gumbel, weights }
            }
            _ => Scheme::Oracle,
        }
    }

    /// Its adapters by name: one for each task, one for all, or none.
    fn adapters(&self, experiment: &Experiment) -> Vec<AdapterDescription> {
        let tasks = self.tasks(experiment);
        match self {
            Self::Head(_) | Self::Full => Vec::new(),
            Self::Shared => vec![AdapterDescription { name: "shared".into(), lora: shared(&tasks) }],
            _ => tasks.into_iter().map(|task| AdapterDescription { name: task.name, lora: task.lora }).collect(),
        }
    }

    /// Its heads by name: one for each task; what is trained for all tasks together on a backbone that writes by itself
    /// is told no task, and has one.
    fn heads(&self, experiment: &Experiment) -> Vec<HeadDescription> {
        let together = |name: &str| vec![HeadDescription { name: name.into(), head: HeadConfig::default() }];
        match self {
            Self::Shared if !experiment.model.backbone.is_text() => together("shared"),
            Self::Full if !experiment.model.backbone.is_text() => together("full"),
            _ => {
                let tasks = self.tasks(experiment).into_iter();
                tasks.map(|task| HeadDescription { name: task.name, head: task.head }).collect()
            }
        }
    }

    /// What its folder says.
    pub(super) fn description(&self, experiment: &Experiment) -> Description {
        Description {
            adapters: self.adapters(experiment),
            heads: self.heads(experiment),
            router: experiment.router.clone(),
            backbone: experiment.model.to_string(),
            trained_backbone: *self == Self::Full,
        }
    }

    /// The model that it found best.
    pub(super) fn trained(&self, setup: &Setup) -> Result<Dynamo, DynamoError> {
        let experiment = setup.experiment;
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

    /// Its model before anything is loaded into it.
    fn fresh(&self, setup: &Setup) -> Result<Dynamo, DynamoError> {
        let experiment = setup.experiment;
        let (adapters, heads) = (self.adapters(experiment), self.heads(experiment));
        let loras: Vec<LoraConfig> = adapters.into_iter().map(|adapter| adapter.lora).collect();
        let heads: Vec<&HeadConfig> = heads.iter().map(|head| &head.head).collect();
        let (tap, device) = (experiment.router.tap, &setup.device);
        let model = Dynamo::new(setup.pretrained.network(), &loras, &heads, tap, device)
            .map_err(|source| DynamoError::Adapt { task: self.title(experiment), source })?;
        let routed = matches!(self, Self::Router | Self::Joint);
        Ok(if routed { model.with_router(&experiment.router, device) } else { model })
    }

    /// The model it begins with, its trained parameters marked.
    pub(super) fn model(&self, setup: &Setup) -> Result<Dynamo, DynamoError> {
        let experiment = setup.experiment;
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

    /// A model like the one it begins with, in which nothing has been trained yet.
    pub(super) fn untrained(&self, setup: &Setup) -> Result<Dynamo, DynamoError> {
        Ok(self.marked(self.fresh(setup)?, setup.experiment))
    }

    /// With its trained parameters marked.
    fn marked(&self, model: Dynamo, experiment: &Experiment) -> Dynamo {
        let (learned, judged) = (experiment.router.learn_temperature, self.confidence_weight(experiment) > 0.0);
        set_trainable(model, |name| match self {
            // The embeddings that a head decodes with are the backbone's own, and stay.
            _ if name.starts_with("heads.") && name.ends_with(".embed_tokens.weight") => false,
            Self::Full => name != "backbone.Whisper.encoder.embed_positions.weight",
            _ if name == "router.log_temperature" => learned,
            _ if name.starts_with("router.confidence") => judged,
            Self::Router => name.starts_with("router."),
            _ => ["heads.", "router."].iter().any(|part| name.starts_with(part)) || name.contains(".lora."),
        })
    }

    /// How much the router's judgement of itself counts.
    fn confidence_weight(&self, experiment: &Experiment) -> f64 {
        match self.scheme(experiment) {
            Scheme::Router { weights, .. } => weights.confidence,
            Scheme::Oracle => 0.0,
        }
    }

    /// The stage that a task's adapter comes from.
    fn origin(&self, experiment: &Experiment, task: usize) -> PathBuf {
        match self {
            Self::Joint => Self::Router.directory(experiment),
            _ if experiment.phases.adapters.mixed => Self::Adapters.directory(experiment),
            _ => Self::Adapter(task).directory(experiment),
        }
    }

    fn train(&self, setup: &Setup, directory: &Path, session: &Session) -> Result<Summary, DynamoError> {
        let experiment = setup.experiment;
        let (tasks, mut config) = (self.tasks(experiment), self.config(setup)?);
        let (optimizer, scaled) = self.optimizer(experiment, &config);
        config.optimizer = optimizer;
        let seed = seed_of(experiment.seed, &directory.file_name().unwrap_or_default().to_string_lossy());
        setup.device.seed(seed);
        let model = self.model(setup)?.with_gradient_checkpointing(config.gradient_checkpointing.every());
        let situation = Situation::new(experiment, setup.footprint(), &model, &setup.device);
        situation.warning(&setup.device).inspect(|warning| eprintln!("{warning}"));
        let batches = self.batches(setup, &tasks, &config)?;
        let objective = DynamoObjective {
            scheme: self.scheme(experiment),
            judge: setup.judge(tasks.clone()),
            valid: valid(setup, &tasks)?,
            description: self.description(experiment),
        };
        let mut learner = Learner::new(config, objective, model, setup.device.clone(), directory, seed)
            .with_configuration(experiment.to_yaml())
            .with_display(session.display)
            .with_interrupt(session.interrupt.clone());
        // A stage that was not begun has no checkpoint; one that finished must not be begun anew.
        if session.resume && !learner.resume().map_err(RunError::from)? && is_complete(directory) {
            return Err(RunError::NothingToResume(directory.to_owned()).into());
        }
        scaled.iter().for_each(|sentence| eprintln!("{sentence}"));
        let summary = train(&mut learner, &batches, &situation)?;
        write_report(directory).map_err(RunError::from)?;
        Ok(summary)
    }

    fn batches(&self, setup: &Setup, tasks: &[TaskConfig], config: &TrainConfig) -> Result<TaskEpochs, DynamoError> {
        let experiment = setup.experiment;
        let dataset = setup.dataset(tasks, Split::Train)?;
        let mut order =
            TaskOrder::new(dataset.lengths(), &setup.training_loader()).with_accumulation(config.accumulation);
        let phases = &experiment.phases;
        order = match self {
            Self::Router => order.with_temperature(phases.router.task_temperature),
            Self::Joint => order.with_temperature(phases.joint.task_temperature),
            _ => order,
        };
        if *self == Self::Joint {
            let steps = config.steps(order.batches());
            order = order.with_curriculum(phases.joint.curriculum, steps);
        }
        Ok(TaskEpochs { loader: setup.loader(dataset, Some(order.clone()))?, order })
    }
}

pub(super) fn valid(setup: &Setup, tasks: &[TaskConfig]) -> Result<Loader<TaskDataset, TaskCollate>, DynamoError> {
    setup.loader(setup.dataset(tasks, Split::Valid)?, None)
}

/// One adapter with the ranks and targets of all: as many parameters as theirs together where all have the same targets,
/// more otherwise.
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

/// Whether a stage ran to its end.
pub(super) fn is_complete(directory: &Path) -> bool {
    let summary = std::fs::read_to_string(directory.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    summary.and_then(|summary| summary.get("completed")?.as_bool()).unwrap_or(false)
}

pub(super) fn store(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DynamoError {
    let path = path.to_owned();
    move |source| RunError::Store(StoreError::Io { action, path, source }).into()
}
