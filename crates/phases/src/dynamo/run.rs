//! The phases, one after the other, each in its own directory.

use super::batch::{TaskDataset, TaskSamples};
use super::config::TaskConfig;
use super::error::DynamoError;
use super::model::Dynamo;
use super::phase::{Baseline, Phase};
use super::pretrained::Pretrained;
use super::setup::Setup;
use super::stage::{Stage, is_complete};
use crate::finetune::check_changes;
use crate::run_directory::{CONFIG, RunDirectory, STAGE, has_learned, record, recorded};
use crate::{Experiment, RunError, Session, Split};
use std::path::{Path, PathBuf};
use undertone_store::StoreError;
use undertone_tasks::{Cut, HeadConfig};
use undertone_train::Summary;

/// What a stage left.
#[derive(Clone, Debug)]
pub struct StageOutcome {
    /// Where its records are.
    pub directory: PathBuf,
    /// What its `summary.json` says; nothing for a stage that an earlier session finished.
    pub summary: Option<Summary>,
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
    let directory = RunDirectory::own(experiment.directory())?;
    let root = directory.path();
    // Later phases were made from what an earlier one found: they go with it.
    let replaced = stages.iter().chain(outdated);
    let taken: Vec<PathBuf> = replaced.map(|stage| stage.directory(experiment)).filter(|d| d.exists()).collect();
    if let Some(directory) = taken.first().filter(|_| !resume && !experiment.run.overwrite) {
        return Err(RunError::Exists(directory.clone()).into());
    }
    if resume && directory.is_blank() {
        return Err(RunError::NothingToResume(root.to_owned()).into());
    }
    let begun = if resume { recorded(&root.join(CONFIG))? } else { recorded(&root.join(CONFIG)).unwrap_or_default() };
    let experiment = &in_order_of(experiment, begun.as_ref());
    check_stages(experiment, stages, resume)?;
    let mut setup = Setup::new(experiment)?;
    setup.interrupt = session.interrupt.clone();
    // Every task's targets, head and data, before the first of them trains for minutes.
    check_fit(&setup)?;
    for split in [Split::Train, Split::Valid] {
        report_cuts(&setup.dataset(&experiment.tasks, split)?, &experiment.tasks, split);
    }
    stages.iter().try_for_each(|stage| stage.check_optimizer(&setup))?;
    let mut replaced = if resume { outrun(&setup, stages)? } else { taken };
    if let Some(directory) = replaced.first().filter(|_| resume && !experiment.run.overwrite) {
        return Err(DynamoError::Outrun(directory.clone()));
    }
    let mut outcomes = Vec::new();
    let mut is_recorded = false;
    for stage in stages {
        let directory = stage.directory(experiment);
        if resume && stage.is_finished(&setup, &directory)? {
            outcomes.push(StageOutcome { directory, summary: None });
            continue;
        }
        eprintln!("{}", stage.title(experiment));
        let prepared = stage.prepare(&setup, &directory, session)?;
        // Until here nothing has been touched; what later stages begin with is not there yet.
        for directory in replaced.drain(..) {
            std::fs::remove_dir_all(&directory).map_err(store("delete", &directory))?;
        }
        if !std::mem::replace(&mut is_recorded, true) {
            record(experiment, &root.join(CONFIG)).map_err(RunError::from)?;
        }
        let summary = prepared.train(experiment)?;
        let completed = summary.completed;
        outcomes.push(StageOutcome { directory, summary: Some(summary) });
        if !completed {
            break;
        }
    }
    Ok(outcomes)
}

/// The experiment with its tasks in the order that the run was begun with, new ones last: parameters, gates and the
/// router's outputs are numbered by it.
fn in_order_of(experiment: &Experiment, begun: Option<&Experiment>) -> Experiment {
    let mut experiment = experiment.clone();
    let place = |task: &TaskConfig| begun?.tasks.iter().position(|begun| begun.name == task.name);
    experiment.tasks.sort_by_key(|task| place(task).unwrap_or(usize::MAX));
    experiment
}

/// Refuses a configuration by which what is stored would mean something else: that of stages that go on, and of those
/// that the first one is made from, whose tasks must have been the same.
fn check_stages(experiment: &Experiment, stages: &[Stage], resume: bool) -> Result<(), RunError> {
    let root = experiment.directory().join(CONFIG);
    let begun_with = |stage: &Stage| {
        let own = stage.directory(experiment).join(STAGE);
        // Stages of earlier versions have none of their own.
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
    head.fits(backbone.text.config.hidden_size, backbone.text.model.max_tokens())
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

pub(super) fn store(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DynamoError {
    let path = path.to_owned();
    move |source| RunError::Store(StoreError::Io { action, path, source }).into()
}
