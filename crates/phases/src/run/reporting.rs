//! Reports of a run, and the parts of its configuration for reports and the monitor.

use super::phase::Phase;
use super::spec::{StageKind, StageSpec, all_stages, stages};
use crate::{Experiment, Pad};
use std::path::{Path, PathBuf};
use undertone_ops::DeviceSpec;
use undertone_report::monitor::{Settings, StagePlan};
use undertone_report::{LoggedStage, PhaseOverview, ReportError, RunOverview};

/// Writes the report of the run in a directory, or those of all its stages and, if it was analysed, that of the whole
/// run. See [`undertone_report::write_reports`].
///
/// # Errors
/// As there. If this version cannot read the configuration, the report of the whole run fails, but not those of its
/// stages.
pub fn write_reports(run: &Path) -> Result<Vec<PathBuf>, ReportError> {
    undertone_report::write_reports(run, || Ok(overview(&Experiment::of_run(run, &[])?)))
}

/// Returns the configured settings of the stage in the directory `stage` of the run in `root`, for the monitor; `None`
/// if there is no configuration that this version can read.
pub fn stage_plan(root: &Path, stage: &Path) -> Option<StagePlan> {
    let experiment: Experiment =
        serde_norway::from_str(&std::fs::read_to_string(root.join("config.yaml")).ok()?).ok()?;
    let spec = stage_in(&experiment, stage.strip_prefix(root).ok()?)?;
    let train = spec.train_config(&experiment.train, None).ok()?;
    let data = &experiment.data;
    let settings = Settings {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        on_gpu: match experiment.device {
            DeviceSpec::Auto => None,
            DeviceSpec::Cpu | DeviceSpec::TchCpu => Some(false),
            DeviceSpec::Cuda(_) | DeviceSpec::Wgpu(_) | DeviceSpec::TchCuda(_) => Some(true),
        },
        workers: data.workers.count(),
        prefetch_batches: data.prefetch_batches,
        batch_size: data.batch_size,
        max_batch_seconds: data.max_batch_seconds,
        pads_to_window: data.pad == Pad::Window,
        accumulation: train.accumulation,
        compute: train.compute.number_type(),
        log_every: train.log_every,
        checkpointing: train.gradient_checkpointing.every().is_some(),
    };
    // The number of steps of phase 1 is known only to a run that has its data.
    Some(StagePlan { settings, train, counted: !spec.steps_of_adapters })
}

/// Returns the stage in the directory `below` that of the run.
fn stage_in(experiment: &Experiment, below: &Path) -> Option<StageSpec> {
    let root = experiment.directory();
    // The run's own directory is that of its training configuration, also in a run with tasks.
    let mut stages = all_stages(experiment).into_iter().chain(stages(experiment, StageKind::Model));
    stages.find(|stage| stage.directory.strip_prefix(&root).is_ok_and(|own| own == below))
}

/// Returns the part of a run's page that comes from its configuration.
fn overview(experiment: &Experiment) -> RunOverview {
    let root = experiment.directory();
    let below = |directory: &Path| directory.strip_prefix(&root).ok().map(PathBuf::from);
    let logged = |stage: StageSpec| {
        let task = stage.task.map(|index| experiment.tasks[index].name.clone());
        Some(LoggedStage { directory: below(&stage.directory)?, task })
    };
    let phase = |phase: Phase| PhaseOverview {
        name: format!("phase {}", phase.number()),
        stages: stages(experiment, phase).into_iter().filter_map(logged).collect(),
    };
    let started = all_stages(experiment).into_iter().filter(|stage| stage.directory.join("metrics.jsonl").exists());
    RunOverview {
        title: experiment.run.name.clone(),
        settings: settings(experiment),
        phases: Phase::ALL.map(phase).into(),
        stages: started.filter_map(|stage| Some((stage.title, below(&stage.directory)?))).collect(),
    }
}

/// Returns the settings that the page shows; `config.yaml` has all of them.
fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let tasks: Vec<String> =
        experiment.tasks.iter().map(|task| format!("{} ({})", task.name, task.adapter().summary())).collect();
    vec![
        ("backbone".into(), experiment.model.to_string()),
        ("tasks".into(), tasks.join(", ")),
        ("router's tap".into(), format!("block {}", experiment.router.tap)),
        ("router's hidden layers".into(), format!("{:?}", experiment.router.hidden)),
        ("gates".into(), serde_json::to_string(&experiment.router.gates).unwrap_or_default().replace('"', "")),
        ("seed".into(), experiment.seed.to_string()),
    ]
}

#[cfg(test)]
mod monitor_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_its_own_settings() {
        let dir = tempfile::tempdir().expect("a directory");
        let yaml = "device: cpu\n\
            data: {workers: 3, batch_size: 8, prefetch_batches: 5}\n\
            train: {epochs: 2, accumulation: 2, gradient_checkpointing: {every: 2}, optimizer: {warmup_steps: 1}}\n\
            tasks: [{name: a, data: {train: {synth: cw}, valid: {synth: cw}}, train: {accumulation: 4}}]\n\
            phases: {1: {train: {log_every: 1, gradient_checkpointing: false}}, 2: {train: {accumulation: 8}}, baselines: {full: {accumulation: 16}}}";
        let experiment: Experiment = serde_norway::from_str(yaml).expect("an experiment");
        std::fs::write(dir.path().join("config.yaml"), experiment.to_yaml()).expect("written");
        let asked = |stage: &str| stage_plan(dir.path(), &dir.path().join(stage)).expect(stage);
        let accumulation = |stage: &str| asked(stage).settings.accumulation;
        assert_eq!(
            ["", "phase1/a", "phase2", "phase3", "baselines/head/a", "baselines/full"].map(accumulation),
            [2, 4, 8, 2, 4, 16]
        );
        let first = asked("phase1/a");
        assert_eq!((first.settings.log_every, first.settings.workers, first.settings.batch_size), (1, 3, 8));
        assert_eq!(
            (first.settings.on_gpu, first.settings.compute, first.counted),
            (Some(false), undertone_ops::Compute::Auto, true)
        );
        let checkpointing = |stage: &str| asked(stage).settings.checkpointing;
        assert_eq!(["", "phase1/a", "phase2"].map(checkpointing), [true, false, true]);
        assert!(!asked("baselines/full").counted);
        assert!(stage_plan(dir.path(), &dir.path().join("phase9")).is_none());
    }

    #[test]
    fn a_configuration_of_another_version_says_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(stage_plan(dir.path(), dir.path()).is_none());
        std::fs::write(dir.path().join("config.yaml"), "train: {warp: 9}").expect("written");
        assert!(stage_plan(dir.path(), dir.path()).is_none());
    }
}
