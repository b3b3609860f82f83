//! Training of a run: its stages, one after the other, each in its own directory.

use super::batch::TaskDataset;
use super::model::TaskModel;
use super::phase::{Baseline, Phase};
use super::prepare::Prepared;
use super::setup::Setup;
use super::stage::{Stage, is_complete};
use crate::config::{Parallel, TaskConfig};
use crate::run_directory::{CONFIG, RunDirectory, STAGE, check_changes, has_learned, is_occupied, record, recorded};
use crate::{Experiment, RunError, Session, Split};
use std::path::PathBuf;
use undertone_tasks::Cut;
use undertone_train::{Display, ProcessGroup, Summary};

/// Result of a stage.
#[derive(Clone, Debug)]
pub struct StageOutcome {
    /// Directory of its records.
    pub directory: PathBuf,
    /// Content of its `summary.json`. `None` for a stage that an earlier session finished, except with
    /// `phases.1.parallel: tasks`.
    pub summary: Option<Summary>,
}

/// Trains an experiment: all phases with `tasks`, otherwise the model as a whole. Training starts from the beginning
/// or, if the session resumes, from where each stage stopped. It ends when all stages are done or the session is
/// interrupted.
///
/// The run's directory is locked for this process from the start. A stage that fails keeps its checkpoints; one that
/// failed before its first step leaves nothing.
///
/// # Errors
/// When device, model or data are unusable, or a resumed run has an incompatible configuration. All of this is found
/// before anything is written.
pub fn train(experiment: &Experiment, session: &Session) -> Result<Vec<StageOutcome>, RunError> {
    if experiment.tasks.is_empty() {
        return run(experiment, &[Stage::Whole], &[], session);
    }
    train_phases(experiment, &Phase::ALL, session)
}

/// As [`train`], for the given phases alone.
///
/// # Errors
/// As for [`train`], and when there are no tasks, or an earlier phase has not finished.
pub fn train_phases(
    experiment: &Experiment,
    phases: &[Phase],
    session: &Session,
) -> Result<Vec<StageOutcome>, RunError> {
    if experiment.tasks.is_empty() {
        return Err(RunError::NoTasks);
    }
    let first = phases.iter().min().copied().unwrap_or(Phase::Adapters);
    if first > Phase::Adapters {
        let before = if first == Phase::Router { Phase::Adapters } else { Phase::Router };
        for stage in stages(experiment, before) {
            let directory = stage.directory(experiment);
            if !is_complete(&directory) {
                let (phase, needs) = (first.number(), before.number());
                return Err(RunError::Predecessor { phase, needs, directory });
            }
        }
    }
    if let Some(phase) = phases.iter().find(|p| **p != Phase::Adapters && experiment.tasks.len() < 2) {
        return Err(RunError::OneTask(phase.number()));
    }
    let stages: Vec<Stage> = phases.iter().flat_map(|phase| stages(experiment, *phase)).collect();
    // Once an earlier phase is trained again, the results of later phases are outdated.
    let outdated = Phase::ALL.iter().filter(|phase| **phase > first).flat_map(|p| self::stages(experiment, *p));
    run(experiment, &stages, &outdated.collect::<Vec<_>>(), session)
}

/// As [`train`], for a baseline of a run with tasks.
///
/// # Errors
/// As for [`train`], and when there are no tasks.
pub fn train_baseline(
    experiment: &Experiment,
    baseline: Baseline,
    session: &Session,
) -> Result<Vec<StageOutcome>, RunError> {
    if experiment.tasks.is_empty() {
        return Err(RunError::NoTasks);
    }
    let stages = match baseline {
        Baseline::Head => (0..experiment.tasks.len()).map(Stage::Head).collect(),
        Baseline::Shared => vec![Stage::Shared],
        Baseline::Full => vec![Stage::Full],
    };
    run(experiment, &stages, &[], session)
}

/// Returns the stages of a phase.
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
) -> Result<Vec<StageOutcome>, RunError> {
    let resume = session.resume;
    let directory = RunDirectory::own(experiment.directory(), &session.process_group)?;
    let root = directory.path();
    // Later phases depend on the result of an earlier one, so they are replaced with it.
    let replaced = stages.iter().chain(outdated);
    let taken: Vec<PathBuf> = replaced.map(|stage| stage.directory(experiment)).filter(|d| is_occupied(d)).collect();
    if !resume && !taken.is_empty() {
        directory.check_replaceable(&taken)?;
        if !experiment.run.overwrite {
            return Err(RunError::Exists(listed(&taken)));
        }
    }
    if resume && directory.is_blank() {
        return Err(RunError::NothingToResume(root.to_owned()));
    }
    let begun = if resume { recorded(&root.join(CONFIG))? } else { recorded(&root.join(CONFIG)).unwrap_or_default() };
    let experiment = &in_order_of(experiment, begun.as_ref());
    check_stages(experiment, stages, resume)?;
    let mut setup = Setup::new(experiment)?;
    (setup.interrupt, setup.process_group) = (session.interrupt.clone(), session.process_group.clone());
    // Check the targets, head and data of every task before the first one trains for minutes.
    check_fit(&setup)?;
    for split in [Split::Train, Split::Valid] {
        report_cuts(&setup.dataset(&experiment.tasks, split)?, &experiment.tasks, split);
    }
    stages.iter().try_for_each(|stage| stage.check_optimizer(&setup))?;
    let replaced = if resume { outdated_directories(&setup, stages)? } else { taken };
    if let Some(first) = replaced.first().filter(|_| resume) {
        directory.check_replaceable(&replaced)?;
        if !experiment.run.overwrite {
            return Err(RunError::Outrun(first.clone()));
        }
    }
    let mut beginning = Beginning { directory: &directory, replaced, config: root.join(CONFIG), is_recorded: false };
    let by_task = !session.process_group.is_alone() && experiment.phases.adapters.parallel == Parallel::Tasks;
    let apart = stages.iter().take_while(|stage| by_task && matches!(stage, Stage::Adapter(_))).count();
    let (apart, together) = stages.split_at(apart);
    let (mut outcomes, mut is_interrupted) = train_apart(apart, &mut setup, &mut beginning, session)?;
    for stage in together {
        if is_interrupted {
            break;
        }
        let outcome = train_stage(stage, &setup, &mut beginning, session)?;
        is_interrupted = outcome.is_interrupted();
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

impl StageOutcome {
    fn is_interrupted(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| !summary.completed)
    }
}

/// Work of a session before the first of its stages trains.
struct Beginning<'a> {
    directory: &'a RunDirectory,
    /// Directories of earlier sessions that are to be deleted.
    replaced: Vec<PathBuf>,
    config: PathBuf,
    is_recorded: bool,
}

impl Beginning<'_> {
    /// Clears the directories and records the configuration, once. Only the first rank writes.
    fn make(&mut self, stage: &Stage, experiment: &Experiment, process_group: &ProcessGroup) -> Result<(), RunError> {
        if process_group.is_main_process() && !self.replaced.is_empty() {
            tracing::info!("run.overwrite: deleting what was trained in {}", listed(&self.replaced));
        }
        let mut write = || {
            self.replaced.drain(..).try_for_each(|replaced| self.directory.clear(&replaced))?;
            if *stage != Stage::Whole && !std::mem::replace(&mut self.is_recorded, true) {
                record(experiment, &self.config)?;
            }
            Ok::<(), RunError>(())
        };
        process_group.all_ok(if process_group.is_main_process() { write() } else { Ok(()) })?;
        self.replaced.clear();
        self.is_recorded |= *stage != Stage::Whole;
        Ok(())
    }
}

/// Returns a list of directories for a message.
fn listed(directories: &[PathBuf]) -> String {
    directories.iter().map(|directory| format!("`{}`", directory.display())).collect::<Vec<_>>().join(", ")
}

/// Trains a stage, with all ranks.
fn train_stage(
    stage: &Stage,
    setup: &Setup,
    beginning: &mut Beginning,
    session: &Session,
) -> Result<StageOutcome, RunError> {
    let experiment = &*setup.experiment;
    let directory = stage.directory(experiment);
    if session.resume && *stage != Stage::Whole && stage.is_finished(setup, &directory)? {
        return Ok(StageOutcome { directory, summary: None });
    }
    if *stage != Stage::Whole && session.display != Display::Nothing {
        tracing::info!("{}", stage.title(experiment));
    }
    // A barrier: all ranks have read what they need before the first one writes.
    let prepared = session.process_group.all_ok(Prepared::new(stage, setup, beginning.directory, session))?;
    // Before the first stage nothing is changed on disk. Later stages are prepared here too, because they start from
    // results of earlier ones.
    beginning.make(stage, experiment, &session.process_group)?;
    // A barrier: the next stage starts from files that the first rank writes.
    let summary = session.process_group.all_ok(prepared.train())?;
    Ok(StageOutcome { directory, summary: Some(summary) })
}

/// Trains independent stages, each on one rank that takes the steps of a single process, or on several ranks if there
/// are more ranks than stages. Returns the outcomes and whether any stage was interrupted.
fn train_apart(
    stages: &[Stage],
    setup: &mut Setup,
    beginning: &mut Beginning,
    session: &Session,
) -> Result<(Vec<StageOutcome>, bool), RunError> {
    let process_group = &session.process_group;
    let Some(first) = stages.first() else { return Ok((Vec::new(), false)) };
    beginning.make(first, &setup.experiment, process_group)?;
    // If there are more ranks than tasks, several ranks train one task.
    let groups = process_group.count().min(stages.len());
    let (group, members) = process_group.split(groups);
    let display = if process_group.is_main_process() { session.display } else { Display::Nothing };
    let in_group = Session { process_group: members.clone(), display, ..session.clone() };
    setup.process_group = members;
    let mut is_complete = true;
    let trained: Result<(), RunError> = stages.iter().skip(group).step_by(groups).try_for_each(|stage| {
        if is_complete {
            is_complete = !train_stage(stage, setup, beginning, &in_group)?.is_interrupted();
        }
        Ok(())
    });
    setup.process_group = process_group.clone();
    process_group.disable_timeout();
    process_group.all_ok(trained)?;
    let is_interrupted = process_group.all_gather(is_complete)?.contains(&false);
    let outcomes = stages.iter().map(|stage| {
        let directory = stage.directory(&setup.experiment);
        StageOutcome { summary: Summary::read(&directory), directory }
    });
    // Stages that were not started have no summary.
    Ok((outcomes.filter(|outcome| !is_interrupted || outcome.summary.is_some()).collect(), is_interrupted))
}

/// Returns the experiment with its tasks in the order that the run was started with, new tasks last. This order numbers
/// parameters, gates and the router's outputs.
fn in_order_of(experiment: &Experiment, begun: Option<&Experiment>) -> Experiment {
    let mut experiment = experiment.clone();
    let place = |task: &TaskConfig| begun?.tasks.iter().position(|begun| begun.name == task.name);
    experiment.tasks.sort_by_key(|task| place(task).unwrap_or(usize::MAX));
    experiment
}

/// Refuses a configuration that is incompatible with stored results: those of stages that are resumed, and those that
/// the first stage starts from, which must have had the same tasks.
fn check_stages(experiment: &Experiment, stages: &[Stage], resume: bool) -> Result<(), RunError> {
    let root = experiment.directory().join(CONFIG);
    let begun_with = |stage: &Stage| {
        let own = stage.directory(experiment).join(STAGE);
        // Stages of earlier versions have no file of their own.
        if own.exists() { own } else { root.clone() }
    };
    let going_on = stages.iter().filter(|stage| resume && has_learned(&stage.directory(experiment)));
    for stage in going_on {
        check_changes(experiment, &begun_with(stage), |key| stage.concerns(experiment, key))?;
    }
    let made_from = match stages.first() {
        Some(Stage::Router) => self::stages(experiment, Phase::Adapters),
        Some(Stage::Joint) => self::stages(experiment, Phase::Router),
        _ => Vec::new(),
    };
    for stage in made_from {
        let of_task = |key: &str| matches!(key.split('.').collect::<Vec<_>>()[..], ["tasks", _, "data", "train", ..]);
        check_changes(experiment, &begun_with(&stage), |key| of_task(key) && stage.concerns(experiment, key))?;
    }
    Ok(())
}

/// Returns every stage that a run can have, baselines included.
pub(super) fn all_stages(experiment: &Experiment) -> Vec<Stage> {
    let phases = Phase::ALL.iter().flat_map(|phase| stages(experiment, *phase));
    let heads = (0..experiment.tasks.len()).map(Stage::Head);
    phases.chain(heads).chain([Stage::Shared, Stage::Full]).collect()
}

/// Returns the title and directory of every stage of a run that was started, baselines included.
pub(super) fn trained_stages(experiment: &Experiment) -> Vec<(String, PathBuf)> {
    let named = all_stages(experiment).into_iter().map(|stage| (stage.title(experiment), stage.directory(experiment)));
    named.filter(|(_, directory)| directory.join("metrics.jsonl").exists()).collect()
}

/// Returns the directories of later phases that start from a finished stage which is now configured for more steps.
fn outdated_directories(setup: &Setup, asked: &[Stage]) -> Result<Vec<PathBuf>, RunError> {
    let experiment = &*setup.experiment;
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

/// Checks that the router's tap, every task's adapter and head, and the alignment heads fit the backbone.
pub(super) fn check_fit(setup: &Setup) -> Result<(), RunError> {
    let (experiment, network) = (&*setup.experiment, setup.pretrained.network());
    let (tap, blocks) = (experiment.router.tap, network.block_count());
    let alignment = &experiment.loss.alignment;
    if alignment.elements > 0.0 && alignment.elements_layer > blocks {
        return Err(RunError::Layer { layer: alignment.elements_layer, layers: blocks });
    }
    if !experiment.tasks.is_empty() && tap >= blocks {
        return Err(RunError::Tap { tap, blocks });
    }
    for task in &experiment.tasks {
        if let Err(reason) = setup.pretrained.check_head(&task.head) {
            return Err(RunError::Head { task: task.name.clone(), reason });
        }
        let one = std::slice::from_ref(&task.lora);
        TaskModel::new(network.clone(), one, &[], tap, &setup.device)
            .map_err(|source| RunError::Adapt { task: format!("task `{}`", task.name), source })?;
    }
    Ok(())
}

/// Logs the number of inputs and targets that are truncated: nothing is truncated silently.
pub(super) fn report_cuts(dataset: &TaskDataset, tasks: &[TaskConfig], split: Split) {
    for (task, samples) in tasks.iter().zip(dataset.tasks()) {
        let (cut, all) = (samples.cut(), samples.count());
        if cut != Default::default() {
            let split = format!("{split:?}").to_lowercase();
            let Cut { inputs, targets } = cut;
            tracing::warn!(
                "task `{}`, {split}: of {all} samples {inputs} inputs are cut, and {targets} targets do not fit whole",
                task.name
            );
        }
    }
}
