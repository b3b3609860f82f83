//! What a run achieved: every finished stage judged on data that nothing was decided by, in numbers, pictures and a page.

use super::config::TaskConfig;
use super::error::DynamoError;
use super::evaluate::{Judged, RouterKind};
use super::model::Dynamo;
use super::objective::GUMBEL_TEMPERATURE;
use super::phase::Phase;
use super::run::{report_cuts, stages, trained_stages};
use super::setup::Setup;
use super::stage::{Stage, is_complete};
use super::trivial::judge_trivial;
use crate::analysis::{Analysis, LossCurves, Metric, MetricsTable, Series, TaskColumn, pictures, report_html};
use crate::report::{REPORT, ReportError, is_rate, series, write_reports};
use crate::{Experiment, RunError, Split};
use std::path::{Path, PathBuf};
use undertone_store::{StoreError, write_atomically};
use undertone_tasks::Trivial;
use undertone_train::LAST_LOSS;

/// What [`analyze`] found and where it wrote it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Every router and baseline by task.
    pub table: MetricsTable,
    /// Where the router sent what, once there is one.
    pub routing: Option<Analysis>,
    /// The page, once there is a router to show.
    pub page: Option<PathBuf>,
}

/// Judges the newest finished phase of a run with one router.
///
/// # Errors
/// When no phase has finished, or data or device cannot be had.
pub fn judge_run(experiment: &Experiment, split: Split, kind: RouterKind) -> Result<Judged, DynamoError> {
    let setup = Setup::new(experiment)?;
    let (_, model) = newest(&setup)?;
    if kind == RouterKind::Learned && model.router.is_none() {
        return Err(DynamoError::NoRouter(experiment.directory()));
    }
    judge(&setup, &model, &experiment.tasks, split, kind)
}

/// Judges everything that a run has finished on a split of its data, and writes `analysis.json`, `metrics.json`, pictures
/// and `report.html` to the run's directory.
///
/// # Errors
/// When no phase has finished, or data, device or files fail.
pub fn analyze(experiment: &Experiment, split: Split) -> Result<Report, DynamoError> {
    let setup = Setup::new(experiment)?;
    let (newest, model) = newest(&setup)?;
    let tasks = &experiment.tasks;
    report_cuts(&setup.dataset(tasks, split)?, tasks, split);
    let mut table = table(tasks)?;
    let mut routing = None;
    for (name, kind) in [
        ("learned", RouterKind::Learned),
        ("oracle", RouterKind::Oracle),
        ("uniform", RouterKind::Uniform),
        ("random", RouterKind::Random),
    ] {
        if kind == RouterKind::Learned && model.router.is_none() {
            continue;
        }
        let judged = judge(&setup, &model, tasks, split, kind)?;
        record(&mut table, name, &judged)?;
        if !judged.routed.is_empty() {
            routing = Some(Analysis::new(tasks.iter().map(|t| t.name.clone()).collect(), &judged.routed)?);
        }
    }
    if newest == Stage::Joint {
        let judged = judge(&setup, &adapters(&setup)?, tasks, split, RouterKind::Oracle)?;
        record(&mut table, "oracle, phase 1", &judged)?;
    }
    for (name, stages) in [
        ("head only", (0..tasks.len()).map(Stage::Head).collect::<Vec<_>>()),
        ("shared adapter", vec![Stage::Shared]),
        ("full fine-tuning", vec![Stage::Full]),
    ] {
        for stage in stages.iter().filter(|stage| is_complete(&stage.directory(experiment))) {
            let judged = judge(&setup, &stage.trained(&setup)?, &stage.tasks(experiment), split, RouterKind::Oracle)?;
            record(&mut table, name, &judged)?;
        }
    }
    if experiment.model.backbone.is_text() {
        let [train, judged] = [Split::Train, split].map(|split| setup.dataset(tasks, split));
        let (train, judged) = (train?, judged?);
        for (name, trivial) in [("copy, majority", Trivial::Copy), ("lead sentence", Trivial::Lead)] {
            let found = judge_trivial(trivial, tasks, &train, &judged).map_err(DynamoError::Judge)?;
            record(&mut table, name, &found)?;
        }
    }
    write(experiment, table, routing)
}

/// The newest finished phase and its model.
pub(super) fn newest(setup: &Setup) -> Result<(Stage, Dynamo), DynamoError> {
    let experiment = setup.experiment;
    for stage in [Stage::Joint, Stage::Router] {
        if is_complete(&stage.directory(experiment)) {
            let model = stage.trained(setup)?;
            return Ok((stage, model));
        }
    }
    if stages(experiment, Phase::Adapters).iter().all(|stage| is_complete(&stage.directory(experiment))) {
        return Ok((Stage::Adapters, adapters(setup)?));
    }
    Err(DynamoError::NothingTrained(experiment.directory()))
}

/// Phase 1's adapters and heads side by side.
fn adapters(setup: &Setup) -> Result<Dynamo, DynamoError> {
    let mut model = Stage::Router.model(setup)?;
    model.router = None;
    Ok(model)
}

fn judge(
    setup: &Setup,
    model: &Dynamo,
    tasks: &[TaskConfig],
    split: Split,
    kind: RouterKind,
) -> Result<Judged, DynamoError> {
    let data = setup.loader(setup.dataset(tasks, split)?, None)?;
    setup.judge(tasks.to_vec()).judge(model, &data, kind).map_err(DynamoError::Judge)
}

fn table(tasks: &[TaskConfig]) -> Result<MetricsTable, DynamoError> {
    let mut metrics: Vec<Metric> = Vec::new();
    for (task, name) in tasks.iter().flat_map(|task| task.metrics().into_iter().map(move |name| (task, name))) {
        let known = metrics.iter().any(|metric| metric.name == name);
        if let (Some(direction), false) = (task.head.direction(&name), known) {
            metrics.push(Metric { direction, name });
        }
    }
    let columns = tasks.iter().map(|t| TaskColumn { task: t.name.clone(), primary: t.metrics().remove(0) }).collect();
    Ok(MetricsTable::new(metrics, columns)?)
}

fn record(table: &mut MetricsTable, router: &str, judged: &Judged) -> Result<(), DynamoError> {
    for (task, metrics) in &judged.tasks {
        for (metric, value) in metrics {
            table.record(router, task, metric, *value)?;
        }
    }
    Ok(())
}

fn write(experiment: &Experiment, table: MetricsTable, routing: Option<Analysis>) -> Result<Report, DynamoError> {
    let root = experiment.directory();
    let save = |name: &str, text: &str| write_atomically(&root.join(name), text.as_bytes()).map_err(RunError::from);
    save("metrics.json", &serde_json::to_string_pretty(&table).unwrap_or_default())?;
    let mut page = None;
    if let Some(routing) = &routing {
        save("analysis.json", &serde_json::to_string_pretty(routing).unwrap_or_default())?;
        // The run's own page, and those of its stages, which lead to one another.
        page = write_reports(&root).map_err(RunError::from)?.into_iter().next();
    }
    Ok(Report { table, routing, page })
}

/// Draws what an analysis found: the pictures, and the page of the run as a whole.
///
/// # Errors
/// When a picture cannot be drawn or a file not be written.
pub(crate) fn render(
    experiment: &Experiment,
    routing: &Analysis,
    table: &MetricsTable,
) -> Result<PathBuf, ReportError> {
    let root = experiment.directory();
    let pictures = pictures(routing, table, &curves(experiment))?;
    let folder = root.join("pictures");
    std::fs::create_dir_all(&folder).map_err(|source| StoreError::Io {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    for picture in &pictures {
        write_atomically(&folder.join(&picture.file_name), picture.svg.as_bytes())?;
    }
    let links: Vec<(String, String)> = trained_stages(experiment)
        .into_iter()
        .filter_map(|(title, directory)| Some((title, address(directory.strip_prefix(&root).ok()?))))
        .collect();
    let page = root.join(REPORT);
    let html = report_html(&experiment.run.name, routing, table, &pictures, &settings(experiment), &links);
    write_atomically(&page, html.as_bytes())?;
    Ok(page)
}

/// Where the page of a stage is, seen from the run's.
fn address(stage: &Path) -> String {
    let parts = stage.components().map(|part| encoded(&part.as_os_str().to_string_lossy()));
    parts.map(|part| part + "/").collect::<String>() + REPORT
}

/// A folder's name in an address: a task may be called anything.
fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// What a reader of the page wants to know of the configuration; `config.yaml` says the rest.
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
        ("gates".into(), format!("{:?}", experiment.router.gates).to_lowercase()),
        ("seed".into(), experiment.seed.to_string()),
    ]
}

/// The training losses of every stage that left any.
fn curves(experiment: &Experiment) -> Vec<LossCurves> {
    let named = Phase::ALL.iter().map(|phase| {
        let (mut losses, mut temperature) = (Vec::new(), Vec::new());
        for stage in stages(experiment, *phase) {
            let metrics =
                std::fs::read_to_string(stage.directory(experiment).join("metrics.jsonl")).unwrap_or_default();
            for logged in series(&metrics, "train") {
                match (&stage, logged.name.as_str()) {
                    (_, name) if is_rate(name) || ["grad_norm", LAST_LOSS].contains(&name) => {}
                    (_, GUMBEL_TEMPERATURE) => temperature.extend(logged.points),
                    (Stage::Adapter(index), "loss") => {
                        losses.push(Series { name: experiment.tasks[*index].name.clone(), ..logged });
                    }
                    // The terms of an adapter's loss are on its own page.
                    (Stage::Adapter(_), _) => {}
                    _ => losses.push(logged),
                }
            }
        }
        LossCurves { phase: format!("phase {}", *phase as usize + 1), losses, temperature }
    });
    named.filter(|curves| !curves.losses.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_found_whatever_its_task_is_called() {
        assert_eq!(address(Path::new("phase1/copy")), "phase1/copy/report.html");
        assert_eq!(address(Path::new("phase1/a b#?")), "phase1/a%20b%23%3F/report.html");
    }
}
