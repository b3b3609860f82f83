//! Analysis of a run: evaluation of every finished stage on data that no decision depended on, with tables, figures and
//! a page.

use super::eval::{Evaluated, keep, routed};
use super::evaluation_result::EvaluationResult;
use super::evaluator::RouterKind;
use super::model::TaskModel;
use super::newest::{adapters, newest};
use super::phase::{Baseline, Phase};
use super::reporting::write_reports;
use super::scored::{ScoredTask, TaskMetric};
use super::setup::Setup;
use super::spec::{StageSpec, stages};
use super::stages::report_cuts;
use super::trivial::evaluate_baseline;
use crate::config::TaskConfig;
use crate::run_directory::{STAGE, forget_analysis, recorded};
use crate::{Experiment, RunError, Split};
use std::collections::BTreeSet;
use std::path::PathBuf;
use undertone_model::frozen::FrozenDtype;
use undertone_report::{EvaluationRecord, Metric, MetricsTable, RoutingAnalysis, TaskColumn};
use undertone_store::write_json;
use undertone_tasks::TrivialBaseline;

/// Results of [`analyze`], and the place of its page.
#[derive(Clone, Debug)]
pub struct Report {
    /// Metrics of every router and baseline by task.
    pub table: MetricsTable,
    /// Analysis of the router's decisions, if there is a router.
    pub routing: Option<RoutingAnalysis>,
    /// Evaluation of the newest model.
    pub evaluation: EvaluationRecord,
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
    evaluate(&setup, &routed(&setup, kind)?, &experiment.tasks, split, kind).map(|evaluated| evaluated.result)
}

/// Evaluates all finished stages of a run on a split of its data, and writes `analysis.json`, `metrics.json`,
/// `evaluation.json`, figures and `report.html` to the run's directory. The metrics of the newest model are also those
/// of groups of samples, for each of `by` as in [`EvaluationResult::groups`].
///
/// # Errors
/// When no phase has finished, no sample has what results are grouped by, or data, device or files fail.
pub fn analyze(experiment: &Experiment, split: Split, by: &[String]) -> Result<Report, RunError> {
    check_tasks(experiment)?;
    let mut experiment = experiment.clone();
    keep(&mut experiment, by);
    let experiment = &experiment;
    let setup = Setup::new(experiment)?;
    let (newest, model) = newest(&setup)?;
    let tasks = &experiment.tasks;
    report_cuts(&setup.dataset(tasks, split)?, tasks, split);
    let (mut results, mut routing, mut evaluation) = (Vec::new(), None, None);
    for (name, kind) in [
        ("learned", RouterKind::Learned),
        ("oracle", RouterKind::Oracle),
        ("uniform", RouterKind::Uniform),
        ("random", RouterKind::Random),
    ] {
        if kind == RouterKind::Learned && model.router.is_none() {
            continue;
        }
        let evaluated = evaluate(&setup, &model, tasks, split, kind)?;
        if !evaluated.result.routed.is_empty() {
            let names = tasks.iter().map(|t| t.name.clone()).collect();
            routing = Some(RoutingAnalysis::new(names, &evaluated.result.routed)?);
        }
        // The learned router's, or without one that of the true tasks.
        if evaluation.is_none() {
            evaluation = Some(evaluated.record(&format!("the {} data, {name} router", split.name()), by, None)?);
        }
        results.push((name, evaluated.result));
    }
    if newest == Phase::Joint {
        let evaluated = evaluate(&setup, &adapters(&setup)?, tasks, split, RouterKind::Oracle)?;
        results.push(("oracle, phase 1", evaluated.result));
    }
    for (name, baseline) in [
        ("head only", Baseline::Head),
        ("shared adapter", Baseline::Shared),
        ("distilled adapter", Baseline::Distilled),
        ("full fine-tuning", Baseline::Full),
    ] {
        for stage in stages(experiment, baseline).iter().filter(|stage| stage.is_complete()) {
            if !has_tasks_of(experiment, stage)? {
                let (name, directory) = (baseline.name(), stage.directory.display());
                tracing::warn!(
                    "`{directory}` was trained for other tasks and is left out: train it again with `--baseline {name} \
                     --set run.overwrite=true`"
                );
                continue;
            }
            // A trained backbone was in f32.
            let in_f32 = stage.description.trained_backbone && experiment.model.frozen_dtype != FrozenDtype::F32;
            let own = in_f32.then(|| Setup::in_f32(experiment)).transpose()?;
            let setup = own.as_ref().unwrap_or(&setup);
            let evaluated = evaluate(setup, &stage.best_model(setup)?, &stage.tasks, split, RouterKind::Oracle)?;
            results.push((name, evaluated.result));
        }
    }
    if experiment.model.backbone.is_text() {
        let [train, result] = [Split::Train, split].map(|split| setup.dataset(tasks, split));
        let (train, result) = (train?, result?);
        for (name, trivial) in [("copy, majority", TrivialBaseline::Copy), ("lead sentence", TrivialBaseline::Lead)] {
            results.push((name, evaluate_baseline(trivial, tasks, &train, &result).map_err(RunError::Evaluate)?));
        }
    }
    let mut table = table(tasks, &results)?;
    results.iter().try_for_each(|(name, result)| record(&mut table, name, result))?;
    write(experiment, Report { table, routing, page: None, evaluation: evaluation.unwrap_or_default() })
}

/// Whether a baseline was trained for the tasks of the configuration. One of a single task is.
fn has_tasks_of(experiment: &Experiment, stage: &StageSpec) -> Result<bool, RunError> {
    let names = |experiment: &Experiment| -> BTreeSet<String> {
        experiment.tasks.iter().map(|task| task.name.clone()).collect()
    };
    // A packaged run has no record of how its stages were trained.
    let trained = recorded(&stage.directory.join(STAGE))?;
    Ok(stage.task.is_some() || trained.is_none_or(|trained| names(&trained) == names(experiment)))
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

fn evaluate(
    setup: &Setup,
    model: &TaskModel,
    tasks: &[TaskConfig],
    split: Split,
    kind: RouterKind,
) -> Result<Evaluated, RunError> {
    let data = setup.evaluation_batches(tasks, split)?;
    let evaluator = setup.evaluator(tasks.to_vec())?;
    let mut result = evaluator.evaluate(model, &data, kind).map_err(RunError::Evaluate)?;
    result.describe(data.dataset());
    Ok(Evaluated { result, data, step: None, normalizer: evaluator.normalizer })
}

/// Returns a table without rows for these results.
fn table(tasks: &[TaskConfig], results: &[(&str, EvaluationResult)]) -> Result<MetricsTable, RunError> {
    let names = tasks.iter().flat_map(|task| task.metrics().into_iter().map(move |name| (task, name)));
    let configured = names.map(|(task, name)| (task.head.direction(&name), name));
    let found = results.iter().flat_map(|(_, result)| &result.scored).flat_map(ScoredTask::metrics);
    let found = found.map(|TaskMetric { name, direction }| (*direction, name.clone()));
    let mut metrics: Vec<Metric> = Vec::new();
    for (direction, name) in configured.chain(found) {
        let known = metrics.iter().any(|metric| metric.name == name);
        if let (Some(direction), false) = (direction, known) {
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
            if let Some(interval) = result.intervals.get(task).and_then(|intervals| intervals.get(metric)) {
                table.record_interval(router, task, metric, *interval);
            }
        }
    }
    Ok(())
}

fn write(experiment: &Experiment, report: Report) -> Result<Report, RunError> {
    let root = experiment.directory();
    let mut page = None;
    if report.routing.is_none() {
        forget_analysis(&root)?;
    }
    write_json(&root.join("metrics.json"), &report.table)?;
    report.evaluation.write(&root)?;
    if let Some(routing) = &report.routing {
        write_json(&root.join("analysis.json"), routing)?;
        // The run's own page and those of its stages, which link to one another.
        page = write_reports(&root).map_err(RunError::from)?.into_iter().next();
    }
    Ok(Report { page, ..report })
}
