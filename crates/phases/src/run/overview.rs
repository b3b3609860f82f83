//! Overview of a run's configuration for its page.

use super::phase::Phase;
use super::stage::Stage;
use super::stages::{stages, trained_stages};
use crate::Experiment;
use std::path::{Path, PathBuf};
use undertone_report::{LoggedStage, PhaseOverview, RunOverview};

/// Returns the part of a run's page that comes from its configuration.
pub(crate) fn overview(experiment: &Experiment) -> RunOverview {
    let root = experiment.directory();
    let below = |directory: &Path| directory.strip_prefix(&root).ok().map(PathBuf::from);
    let phase = |phase: &Phase| PhaseOverview {
        name: format!("phase {}", phase.number()),
        stages: stages(experiment, *phase)
            .into_iter()
            .filter_map(|stage| {
                let task = match &stage {
                    Stage::Adapter(index) => Some(experiment.tasks[*index].name.clone()),
                    _ => None,
                };
                Some(LoggedStage { directory: below(&stage.directory(experiment))?, task })
            })
            .collect(),
    };
    let trained = trained_stages(experiment).into_iter();
    RunOverview {
        title: experiment.run.name.clone(),
        settings: settings(experiment),
        phases: Phase::ALL.iter().map(phase).collect(),
        stages: trained.filter_map(|(title, directory)| Some((title, below(&directory)?))).collect(),
    }
}

/// Returns the settings that the page shows; `config.yaml` has all of them.
fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let tasks: Vec<String> = experiment
        .tasks
        .iter()
        .map(|task| format!("{} (rank {}, alpha {})", task.name, task.lora.r, task.lora.lora_alpha))
        .collect();
    vec![
        ("backbone".into(), experiment.model.to_string()),
        ("tasks".into(), tasks.join(", ")),
        ("router's tap".into(), format!("block {}", experiment.router.tap)),
        ("router's hidden layers".into(), format!("{:?}", experiment.router.hidden)),
        ("gates".into(), serde_json::to_string(&experiment.router.gates).unwrap_or_default().replace('"', "")),
        ("seed".into(), experiment.seed.to_string()),
    ]
}
