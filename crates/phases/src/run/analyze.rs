//! Analysis of a run: evaluation of every finished stage on data that no decision depended on, with tables, figures and
//! a page.

use super::evaluation_result::EvaluationResult;
use super::evaluator::RouterKind;
use super::model::TaskModel;
use super::phase::{Baseline, Phase};
use super::reporting::write_reports;
use super::setup::Setup;
use super::spec::{StageSpec, stages};
use super::stages::report_cuts;
use super::trivial::evaluate_baseline;
use crate::config::TaskConfig;
use crate::{Experiment, RunError, Split};
use std::path::PathBuf;
use undertone_model::frozen::FrozenDtype;
use undertone_report::{Metric, MetricsTable, RoutingAnalysis, TaskColumn};
use undertone_store::write_atomically;
use undertone_tasks::TrivialBaseline;

/// Results of [`analyze`], and the place of its page.
#[derive(Clone, Debug)]
pub struct Report {
    /// Metrics of every router and baseline by task.
    pub table: MetricsTable,
    /// Analysis of the router's decisions, if there is a router.
    pub routing: Option<RoutingAnalysis>,
    /// Path of the page, if there is a router.
    pub page: Option<PathBuf>,
}

/// Evaluates the newest finished phase of a run with one kind of router.
///
/// # Errors
/// When no phase has finished, or data or device are not available.
pub fn evaluate_run(experiment: &Experiment, split: Split, kind: RouterKind) -> Result<EvaluationResult, RunError> {
    check_tasks(experiment)?;
    let setup = Setup::new(experiment)?;
    let (_, model) = newest(&setup)?;
    if kind == RouterKind::Learned && model.router.is_none() {
        return Err(RunError::NoRouter(experiment.directory()));
    }
    evaluate(&setup, &model, &experiment.tasks, split, kind)
}

/// Evaluates all finished stages of a run on a split of its data, and writes `analysis.json`, `metrics.json`, figures
/// and `report.html` to the run's directory.
///
/// # Errors
/// When no phase has finished, or data, device or files fail.
pub fn analyze(experiment: &Experiment, split: Split) -> Result<Report, RunError> {
    check_tasks(experiment)?;
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
        let result = evaluate(&setup, &model, tasks, split, kind)?;
        record(&mut table, name, &result)?;
        if !result.routed.is_empty() {
            routing = Some(RoutingAnalysis::new(tasks.iter().map(|t| t.name.clone()).collect(), &result.routed)?);
        }
    }
    if newest == Phase::Joint {
        let result = evaluate(&setup, &adapters(&setup)?, tasks, split, RouterKind::Oracle)?;
        record(&mut table, "oracle, phase 1", &result)?;
    }
    for (name, baseline) in
        [("head only", Baseline::Head), ("shared adapter", Baseline::Shared), ("full fine-tuning", Baseline::Full)]
    {
        for stage in stages(experiment, baseline).iter().filter(|stage| stage.is_complete()) {
            // A trained backbone was in f32.
            let in_f32 = stage.description.trained_backbone && experiment.model.frozen_dtype != FrozenDtype::F32;
            let own = in_f32.then(|| Setup::in_f32(experiment)).transpose()?;
            let setup = own.as_ref().unwrap_or(&setup);
            let result = evaluate(setup, &stage.best_model(setup)?, &stage.tasks, split, RouterKind::Oracle)?;
            record(&mut table, name, &result)?;
        }
    }
    if experiment.model.backbone.is_text() {
        let [train, result] = [Split::Train, split].map(|split| setup.dataset(tasks, split));
        let (train, result) = (train?, result?);
        for (name, trivial) in [("copy, majority", TrivialBaseline::Copy), ("lead sentence", TrivialBaseline::Lead)] {
            let found = evaluate_baseline(trivial, tasks, &train, &result).map_err(RunError::Evaluate)?;
            record(&mut table, name, &found)?;
        }
    }
    write(experiment, table, routing)
}

/// Refuses a run without tasks.
fn check_tasks(experiment: &Experiment) -> Result<(), RunError> {
    if !experiment.tasks.is_empty() {
        return Ok(());
    }
    let directory = experiment.directory();
    let instead = format!("evaluate it with `cargo xtask eval --run {} --split test`", directory.display());
    Err(RunError::OtherKind { directory, instead })
}

/// Returns the newest finished phase and its model.
pub(super) fn newest(setup: &Setup) -> Result<(Phase, TaskModel), RunError> {
    let experiment = &*setup.experiment;
    if let Some((phase, stage)) = newest_routed(experiment) {
        return Ok((phase, stage.best_model(setup)?));
    }
    if stages(experiment, Phase::Adapters).iter().all(StageSpec::is_complete) {
        return Ok((Phase::Adapters, adapters(setup)?));
    }
    Err(RunError::NothingTrained(experiment.directory()))
}

/// Returns the newest finished phase with a router, and its stage.
pub(super) fn newest_routed(experiment: &Experiment) -> Option<(Phase, StageSpec)> {
    let stage = |phase| Some((phase, stages(experiment, phase).into_iter().find(StageSpec::is_complete)?));
    [Phase::Joint, Phase::Router].into_iter().find_map(stage)
}

/// Returns a model with the adapters and heads of phase 1.
fn adapters(setup: &Setup) -> Result<TaskModel, RunError> {
    // Phase 2 starts from them, with a router that is still untrained.
    let mut model = stages(&setup.experiment, Phase::Router).swap_remove(0).model(setup)?;
    model.router = None;
    Ok(model)
}

fn evaluate(
    setup: &Setup,
    model: &TaskModel,
    tasks: &[TaskConfig],
    split: Split,
    kind: RouterKind,
) -> Result<EvaluationResult, RunError> {
    let data = setup.evaluation_batches(tasks, split)?;
    setup.evaluator(tasks.to_vec())?.evaluate(model, &data, kind).map_err(RunError::Evaluate)
}

fn table(tasks: &[TaskConfig]) -> Result<MetricsTable, RunError> {
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

fn record(table: &mut MetricsTable, router: &str, result: &EvaluationResult) -> Result<(), RunError> {
    for (task, metrics) in &result.tasks {
        for (metric, value) in metrics {
            table.record(router, task, metric, *value)?;
        }
    }
    Ok(())
}

fn write(experiment: &Experiment, table: MetricsTable, routing: Option<RoutingAnalysis>) -> Result<Report, RunError> {
    let root = experiment.directory();
    let save = |name: &str, text: &str| write_atomically(&root.join(name), text.as_bytes()).map_err(RunError::from);
    save("metrics.json", &serde_json::to_string_pretty(&table).unwrap_or_default())?;
    let mut page = None;
    if let Some(routing) = &routing {
        save("analysis.json", &serde_json::to_string_pretty(routing).unwrap_or_default())?;
        // The run's own page and those of its stages, which link to one another.
        page = write_reports(&root).map_err(RunError::from)?.into_iter().next();
    }
    Ok(Report { table, routing, page })
}
