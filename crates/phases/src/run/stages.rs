//! Training of a run: its stages, one after the other, each in its own directory.

use super::batch::TaskDataset;
use super::model::TaskModel;
use super::phase::{Baseline, Phase};
use super::prepare::Prepared;
use super::setup::Setup;
use super::spec::{StageKind, StageSpec, stages};
use super::{known, words};
use crate::config::{CONFIG, Parallel, TaskConfig, TokenizerConfig};
use crate::run_directory::{
    RunDirectory, STAGE, check_changes, forget_analysis, has_learned, is_occupied, named, record, recorded,
};
use crate::{Experiment, ModelConfig, RunError, Session, Split};
use std::path::{Path, PathBuf};
use undertone_model::frozen::FrozenDtype;
use undertone_tasks::Cut;
use undertone_train::{Display, ProcessGroup, Summary, TrainError};

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
        return run(experiment, &[StageKind::Model], &[], session);
    }
    train_phases(experiment, &Phase::ALL, session)
}

/// As [`train`], for the given phases alone. All phases of a run with one task are the first one: there is nothing to route.
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
    let phases = if experiment.tasks.len() == 1 && phases == Phase::ALL { &[Phase::Adapters] } else { phases };
    let first = phases.iter().min().copied().unwrap_or(Phase::Adapters);
    if let Some(before) = first.before()
        && let Some(unfinished) = stages(experiment, before).into_iter().find(|stage| !stage.is_complete())
    {
        let (phase, needs, directory) = (first.number(), before.number(), unfinished.directory);
        return Err(RunError::Predecessor { phase, needs, directory });
    }
    if let Some(phase) = phases.iter().find(|p| **p != Phase::Adapters && experiment.tasks.len() < 2) {
        return Err(RunError::OneTask(phase.number()));
    }
    let kinds: Vec<StageKind> = phases.iter().copied().map(StageKind::Phase).collect();
    // Once an earlier phase is trained again, the results of later phases are outdated.
    let outdated = made_from(experiment, first);
    run(experiment, &kinds, &outdated, session)
}

/// Returns the kinds of stages that start or learn from the results of a phase: the later ones, and the baseline that learned from a
/// phase as it was, or from one that was made from it.
fn made_from(experiment: &Experiment, phase: Phase) -> Vec<StageKind> {
    let student = StageKind::Baseline(Baseline::Distilled);
    let trained = stages(experiment, student).first().and_then(|stage| recorded(&stage.directory.join(STAGE)).ok()?);
    let teacher = trained.as_ref().unwrap_or(experiment).phases.baselines.teacher;
    let student = (phase.number() <= usize::from(teacher.phase)).then_some(student);
    phase.later().map(StageKind::Phase).chain(student).collect()
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
    run(experiment, &[StageKind::Baseline(baseline)], &[], session)
}

/// Trains all stages of `kinds`. Those of `outdated` are replaced with them, because they start from their results.
fn run(
    experiment: &Experiment,
    kinds: &[StageKind],
    outdated: &[StageKind],
    session: &Session,
) -> Result<Vec<StageOutcome>, RunError> {
    // One that was made in code has not been loaded.
    experiment.validate()?;
    let directory = RunDirectory::own(experiment.directory(), &session.process_group)?;
    compare_configurations(experiment, &session.process_group)?;
    let begun = begun_with(&directory, session.resume)?;
    // A run with tasks and one without write into the same directory, and neither can go on with the other's results.
    let is_of_other_kind = begun.as_ref().is_some_and(|begun| begun.tasks.is_empty() != experiment.tasks.is_empty());
    if is_of_other_kind && session.resume {
        return Err(RunError::OtherRun(directory.path.clone()));
    }
    let experiment = &in_order_of(experiment, begun.as_ref());
    let of_kinds =
        |kinds: &[StageKind]| -> Vec<StageSpec> { kinds.iter().flat_map(|kind| stages(experiment, *kind)).collect() };
    let specs = of_kinds(kinds);
    let mut replaced = match session.resume {
        true => Vec::new(),
        false => {
            let later = of_kinds(outdated);
            let written = specs.iter().chain(&later).map(|stage| stage.directory.clone());
            taken(&directory, written.chain(is_of_other_kind.then(|| directory.path.clone())), experiment)?
        }
    };
    check_stages(experiment, &specs, session.resume)?;
    let mut setup = checked_setup(experiment, &specs, session)?;
    if session.resume {
        replaced = outdated_by(&directory, &specs, &setup)?;
    }
    let mut beginning = Beginning { directory: &directory, replaced, is_recorded: false };
    let by_task = |stage: &&StageSpec| !session.process_group.is_alone() && stage.parallel == Parallel::Tasks;
    let (apart, together) = specs.split_at(specs.iter().take_while(by_task).count());
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

/// Returns the setup of the session. The targets, head and data of every task are checked before the first one trains
/// for minutes.
fn checked_setup(experiment: &Experiment, specs: &[StageSpec], session: &Session) -> Result<Setup, RunError> {
    let trains_backbone = specs.iter().any(|stage| stage.description.trained_backbone);
    let mut model = experiment.model.clone();
    if trains_backbone {
        model.frozen_dtype = FrozenDtype::F32;
    }
    if session.resume {
        keep_vocabulary(&mut model, &experiment.directory());
    }
    let mut setup = Setup::on(model, experiment)?;
    (setup.interrupt, setup.process_group) = (session.interrupt.clone(), session.process_group.clone());
    setup.resumes = session.resume;
    check_fit(&setup)?;
    for split in [Split::Train, Split::Valid] {
        report_cuts(&setup.dataset(&experiment.tasks, split)?, &experiment.tasks, split);
    }
    specs.iter().try_for_each(|stage| stage.check_optimizer(&setup))?;
    Ok(setup)
}

/// Takes the vocabulary of the run in `directory` where one is trained on the texts: other texts would give other tokens than those that
/// its parameters stand for.
fn keep_vocabulary(model: &mut ModelConfig, directory: &Path) {
    let kept = directory.join("best/tokenizer.json");
    if let Some(tokenizer) =
        model.tokenizer.as_mut().filter(|tokenizer| tokenizer.vocab_size.is_some() && kept.is_file())
    {
        *tokenizer = TokenizerConfig { path: Some(kept), vocab_size: None };
    }
}

/// Returns the configuration that the run in the directory was started with, if there is one.
fn begun_with(directory: &RunDirectory, resume: bool) -> Result<Option<Experiment>, RunError> {
    if resume && directory.is_blank() {
        return Err(RunError::NothingToResume(directory.path.clone()));
    }
    let begun = recorded(&directory.path.join(CONFIG));
    // A run that is replaced need not be readable.
    Ok(if resume { begun? } else { begun.unwrap_or_default() })
}

/// Returns those of the directories that hold results of an earlier run, unless they must not be replaced.
fn taken(
    directory: &RunDirectory,
    written: impl Iterator<Item = PathBuf>,
    experiment: &Experiment,
) -> Result<Vec<PathBuf>, RunError> {
    let mut taken: Vec<PathBuf> = Vec::new();
    for written in written.filter(|written| is_occupied(written)) {
        if !taken.contains(&written) {
            taken.push(written);
        }
    }
    directory.check_replaceable(&taken)?;
    match taken.is_empty() || experiment.run.overwrite {
        true => Ok(taken),
        false => Err(RunError::Exists(named(&taken, taken.len()))),
    }
}

/// Returns the directories of later phases that started from one of `asked` which would now be trained for more steps or again,
/// unless they must not be replaced.
fn outdated_by(directory: &RunDirectory, asked: &[StageSpec], setup: &Setup) -> Result<Vec<PathBuf>, RunError> {
    let outdated = outdated_directories(setup, asked)?;
    directory.check_replaceable(&outdated)?;
    match outdated.first() {
        Some(first) if !setup.experiment.run.overwrite => Err(RunError::Outdated(first.clone())),
        _ => Ok(outdated),
    }
}

fn outdated_directories(setup: &Setup, asked: &[StageSpec]) -> Result<Vec<PathBuf>, RunError> {
    let experiment = &*setup.experiment;
    for phase in Phase::ALL {
        for stage in stages(experiment, phase) {
            let is_asked = asked.iter().any(|asked| asked.directory == stage.directory);
            if !is_asked || stage.is_finished(setup)? {
                continue;
            }
            let later = made_from(experiment, phase).into_iter().flat_map(|kind| stages(experiment, kind));
            let later: Vec<PathBuf> = later.map(|stage| stage.directory).filter(|later| later.exists()).collect();
            // One that was interrupted goes on to the same result, and a task that has been added since is in none of them.
            let is_gone = !has_learned(&stage.directory);
            if stage.is_complete() || is_gone && later.iter().any(|later| has_tasks_of(later, &stage)) {
                return Ok(later);
            }
        }
    }
    Ok(Vec::new())
}

/// Whether the stage that was trained in a directory had the tasks of `stage`.
fn has_tasks_of(directory: &Path, stage: &StageSpec) -> bool {
    let begun = recorded(&directory.join(STAGE)).ok().flatten();
    let has = |begun: &Experiment, name: &str| begun.tasks.iter().any(|task| task.name == name);
    begun.is_some_and(|begun| stage.tasks.iter().all(|task| has(&begun, &task.name)))
}

/// Work of a session before the first of its stages trains.
struct Beginning<'a> {
    directory: &'a RunDirectory,
    /// Directories of earlier sessions that are to be deleted.
    replaced: Vec<PathBuf>,
    is_recorded: bool,
}

impl Beginning<'_> {
    /// Clears the directories and records the configuration, once. Only the first rank writes.
    fn make(
        &mut self,
        stage: &StageSpec,
        experiment: &Experiment,
        process_group: &ProcessGroup,
    ) -> Result<(), RunError> {
        if process_group.is_main_process() && !self.replaced.is_empty() {
            let replaced = named(&self.replaced, self.replaced.len());
            tracing::info!("run.overwrite: deleting what was trained in {replaced}");
        }
        // A stage in the run's own directory records the configuration there itself.
        let records = !self.is_recorded && stage.directory != self.directory.path;
        let mut write = || {
            let is_part = self.replaced.iter().any(|replaced| *replaced != self.directory.path);
            // Later phases first: none may be left that started from one that is gone.
            self.replaced.drain(..).rev().try_for_each(|replaced| self.directory.clear(&replaced))?;
            if is_part {
                forget_analysis(&self.directory.path)?;
            }
            if records {
                record(experiment, &self.directory.path.join(CONFIG))?;
            }
            Ok::<(), RunError>(())
        };
        process_group.all_ok(if process_group.is_main_process() { write() } else { Ok(()) })?;
        self.replaced.clear();
        self.is_recorded |= records;
        Ok(())
    }
}

/// Refuses ranks with different configurations, before anything is deleted for them.
fn compare_configurations(experiment: &Experiment, process_group: &ProcessGroup) -> Result<(), RunError> {
    if process_group.is_alone() {
        return Ok(());
    }
    let all = process_group.all_gather(experiment.to_yaml())?;
    match all.iter().position(|other| *other != all[0]) {
        Some(rank) => {
            let rank = process_group.name(rank);
            Err(TrainError::RanksDiffer { rank, what: "another configuration" }.into())
        }
        None => Ok(()),
    }
}

/// Trains a stage, with all ranks.
fn train_stage(
    stage: &StageSpec,
    setup: &Setup,
    beginning: &mut Beginning,
    session: &Session,
) -> Result<StageOutcome, RunError> {
    let directory = stage.directory.clone();
    // A stage that is the whole run needs no title, and is summarised again.
    if directory != beginning.directory.path {
        if session.resume && stage.is_finished(setup)? {
            // Those of earlier versions have none.
            if session.process_group.is_main_process() {
                record_inputs(stage, setup)?;
            }
            return Ok(StageOutcome { directory, summary: None });
        }
        if session.display != Display::Nothing {
            tracing::info!("{}", stage.title);
        }
    }
    // A barrier: all ranks have read what they need before the first one writes.
    let prepared = session.process_group.all_ok(Prepared::new(stage, setup, beginning.directory, session))?;
    // Before the first stage nothing is changed on disk. Later stages are prepared here too, because they start from
    // results of earlier ones.
    beginning.make(stage, &setup.experiment, &session.process_group)?;
    // A barrier: the next stage starts from files that the first rank writes.
    let summary = session.process_group.all_ok(prepared.train())?;
    if summary.completed {
        let is_main = session.process_group.is_main_process();
        session.process_group.all_ok(if is_main { record_inputs(stage, setup) } else { Ok(()) })?;
    }
    Ok(StageOutcome { directory, summary: Some(summary) })
}

/// Records what the inputs of a finished stage with a router are like.
fn record_inputs(stage: &StageSpec, setup: &Setup) -> Result<(), RunError> {
    words::record(stage, setup)?;
    known::record(stage, setup)
}

/// Trains independent stages, each on one rank that takes the steps of a single process, or on several ranks if there
/// are more ranks than stages. Returns the outcomes and whether any stage was interrupted.
fn train_apart(
    stages: &[StageSpec],
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
            // The other tasks may train for hours until they hear of it.
            let failed = |error: &RunError| {
                if in_group.process_group.is_main_process() && !error.is_interruption() {
                    tracing::error!("{}: {error}", stage.title);
                }
            };
            is_complete = !train_stage(stage, setup, beginning, &in_group).inspect_err(failed)?.is_interrupted();
        }
        Ok(())
    });
    setup.process_group = process_group.clone();
    process_group.disable_timeout();
    process_group.all_ok(trained)?;
    let is_interrupted = process_group.all_gather(is_complete)?.contains(&false);
    let outcomes = stages.iter().map(|stage| {
        let directory = stage.directory.clone();
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
fn check_stages(experiment: &Experiment, specs: &[StageSpec], resume: bool) -> Result<(), RunError> {
    let root = experiment.directory().join(CONFIG);
    let begun_with = |stage: &StageSpec| {
        let own = stage.directory.join(STAGE);
        // Stages of earlier versions have no file of their own.
        if own.exists() { own } else { root.clone() }
    };
    for stage in specs.iter().filter(|stage| resume && has_learned(&stage.directory)) {
        check_changes(experiment, &begun_with(stage), |key| stage.concerns(key))?;
    }
    let before = specs.first().and_then(|first| first.starts_from);
    for stage in before.map_or(Vec::new(), |phase| stages(experiment, phase)) {
        let of_task = |key: &str| matches!(key.split('.').collect::<Vec<_>>()[..], ["tasks", _, "data", "train", ..]);
        check_changes(experiment, &begun_with(&stage), |key| of_task(key) && stage.concerns(key))?;
    }
    Ok(())
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
    check_heads(setup, &experiment.tasks)?;
    for task in &experiment.tasks {
        TaskModel::new(network.clone(), &[task.adapter()], &[], tap, &setup.device)
            .map_err(|source| RunError::Adapt { task: format!("task `{}`", task.name), source })?;
    }
    Ok(())
}

/// Checks that heads on a text backbone read no more tokens than it has positions for, and divide its width.
pub(super) fn check_heads(setup: &Setup, tasks: &[TaskConfig]) -> Result<(), RunError> {
    let Some(text) = setup.pretrained.text() else { return Ok(()) };
    let d_model = setup.pretrained.network().d_model();
    let fits = |task: &TaskConfig| task.head.fits(d_model, text.max_tokens);
    tasks.iter().try_for_each(|task| fits(task).map_err(|reason| RunError::Head { task: task.name.clone(), reason }))
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
