//! `undertone eval`.

mod blends;

use crate::commands::choices::{SPLITS, one_of};
use crate::failure::Failure;
use crate::program::{load_config, load_run};
use crate::say;
use blends::Share;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use undertone::phases::Split;
use undertone::phases::run::{Choice, Evaluated, RouterKind, Subject};
use undertone::report::{Compared, Comparison, write_report};

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
pub struct What {
    /// Directory of a run: evaluates its best model on its own data; or of one of its stages, like runs/x/phase1/TASK
    #[arg(long, group = "what")]
    run: Option<PathBuf>,
    /// A configuration: evaluates the model it names, without training
    #[arg(long, group = "what")]
    config: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// Split to evaluate
    #[arg(long, default_value = "valid", value_parser = one_of(SPLITS))]
    split: Split,
    /// Data to evaluate on instead of a split: a manifest, a folder, or a source as in a configuration, like
    /// `{path: general.csv, columns: {text: said}}`
    #[arg(long, value_name = "SOURCE", conflicts_with = "split")]
    data: Option<String>,
    /// Another model to compare with on the same samples: `base`, which the training began with, a run, a stage, or a
    /// model
    #[arg(long, value_name = "MODEL")]
    compare: Option<PathBuf>,
    /// Metrics of groups of samples, too: by `duration` of recordings, `words` of texts, or a column of the list that
    /// samples come from, like `speaker`; may be repeated
    #[arg(long, value_name = "COLUMN")]
    by: Vec<String>,
    /// Evaluate models between this one and the one that its training began with, which have these shares of the latter in
    /// their weights, like 0,0.1,0.3,1
    #[arg(long, value_name = "SHARES", value_delimiter = ',', conflicts_with_all = ["compare", "by", "config"])]
    blend: Vec<Share>,
    /// General data to evaluate them on, too, given as for --data: what is forgotten
    #[arg(long, value_name = "SOURCE", requires = "blend")]
    general: Option<String>,
    /// Write evaluation.json with the worst samples to the directory of the run or stage, and show it in its report.html; with
    /// --blend, draw the curve in its blend.html
    #[arg(long, conflicts_with = "config")]
    report: bool,
    /// Router of a run with tasks; the learned one if not given
    #[arg(long, value_parser = one_of(ROUTERS))]
    router: Option<RouterKind>,
    /// Evaluate one task of a run with tasks, by itself
    #[arg(long, conflicts_with_all = ["router", "config"])]
    task: Option<String>,
    /// Override one key, like `data.valid.cw.snr_db=[10,10]`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Routers by their names.
const ROUTERS: [(&str, RouterKind); 4] = [
    ("learned", RouterKind::Learned),
    ("oracle", RouterKind::Oracle),
    ("uniform", RouterKind::Uniform),
    ("random", RouterKind::Random),
];

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut subject = match (&args.what.run, &args.what.config) {
        (Some(run), _) => of_run(args, run)?,
        (None, Some(config)) => of_config(args, config)?,
        (None, None) => return Err(Failure::BadInput("give --run or --config".into())),
    };
    let page = page(args, &subject)?;
    let mut split = args.split;
    if let Some(data) = &args.data {
        subject.test_on(data).map_err(Failure::of_run)?;
        split = Split::Test;
    }
    if !args.blend.is_empty() {
        return blends::run(&args.blend, args.general.as_deref(), &subject, split, page.as_deref());
    }
    subject.keep(&args.by);
    let rival = args.compare.as_deref().map(|with| subject.rival(with).map_err(Failure::of_run)).transpose()?;
    let evaluated = subject.evaluate(split).map_err(Failure::of_run)?;
    let mut line = line(&evaluated);
    let comparison = compare_and_group(args, &subject, &evaluated, rival.as_ref(), split, &mut line);
    // Before the report, which may not be writable, and whatever there was to compare with.
    let told = say!("{line}");
    let comparison = comparison?;
    if let Some(directory) = page {
        let data = args.data.clone().unwrap_or_else(|| format!("the {} data", split.name()));
        let record = evaluated.record(&data, &args.by, comparison).map_err(Failure::of_run)?;
        let written = record.write(&directory).and_then(|()| write_report(&directory));
        let path = written.map_err(Failure::of_report)?;
        tracing::info!("report: {}", path.display());
    }
    told
}

/// Returns the directory of the page that shows the evaluation, if it is asked for.
fn page(args: &Args, subject: &Subject) -> Result<Option<PathBuf>, Failure> {
    match subject {
        _ if !args.report => Ok(None),
        Subject::Choice(choice) => Ok(Some(choice.stage.directory.clone())),
        Subject::Initial(_) | Subject::Tasks(..) => Err(Failure::BadInput(
            "--report is for the model of one stage: name a task with --task, or use `analyze`, which writes the report of \
             a run with tasks"
                .into(),
        )),
    }
}

/// Adds to the results the comparison and the groups that are asked for. Returns the comparison.
fn compare_and_group(
    args: &Args,
    subject: &Subject,
    evaluated: &Evaluated,
    rival: Option<&Subject>,
    split: Split,
    line: &mut Value,
) -> Result<Option<Comparison>, Failure> {
    if !args.by.is_empty() {
        line["groups"] = json!(evaluated.result.groups(&args.by).map_err(Failure::of_run)?);
    }
    let rival = args.compare.as_deref().zip(rival);
    let comparison = rival.map(|(with, rival)| compared(subject, evaluated, (with, rival), split)).transpose()?;
    if let Some(comparison) = &comparison {
        line["comparison"] = json!(comparison);
    }
    Ok(comparison)
}

/// Evaluates another model on the same samples, and compares it.
fn compared(
    subject: &Subject,
    evaluated: &Evaluated,
    (with, rival): (&Path, &Subject),
    split: Split,
) -> Result<Comparison, Failure> {
    let other = subject.evaluate_rival(evaluated, rival, split).map_err(Failure::of_run)?;
    let name = with.display().to_string();
    let comparison = evaluated.result.compare(&other.result, &name).map_err(Failure::of_run)?;
    for (metric, Compared { value, difference, significance }) in &comparison.metrics {
        let certainty = significance.map_or_else(String::new, |found| {
            let (low, high) = (found.interval.low, found.interval.high);
            format!(", 95 % interval {low:+.4} to {high:+.4}, p = {:.3}", found.p_value)
        });
        tracing::info!(
            "{metric}: {:.4}, `{name}` {value:.4}, difference {difference:+.4}{certainty}",
            value + difference
        );
    }
    Ok(comparison)
}

/// Returns the results as one line of JSON, and logs the examples.
fn line(evaluated: &Evaluated) -> Value {
    let evaluation = evaluated.result.clone().into_evaluation();
    for example in &evaluation.examples {
        tracing::info!("{}\n  said  {}\n  read  {}", example.name, example.reference, example.hypothesis);
    }
    let mut line = json!(evaluation.metrics);
    if !evaluation.intervals.is_empty() {
        line["intervals"] = json!(evaluation.intervals);
    }
    let samples = evaluated.samples();
    line["samples"] = samples.get("").map_or_else(|| json!(samples), |alone| json!(alone));
    let errors = evaluated.errors();
    if !errors.is_empty() {
        line["errors"] = json!(errors);
    }
    if !evaluation.remarks.is_empty() {
        line["remarks"] = evaluation.remarks.into();
    }
    line
}

/// Returns the model of a run: all tasks with a router, or the model of one task.
fn of_run(args: &Args, run: &Path) -> Result<Subject, Failure> {
    if args.task.is_none() && run.join("config.yaml").is_file() {
        let experiment = load_run(run, &args.settings)?;
        let several = experiment.tasks.len() > 1 || args.router.is_some();
        if several && !experiment.tasks.is_empty() {
            return Ok(Subject::Tasks(Box::new(experiment), args.router.unwrap_or(RouterKind::Learned)));
        }
    }
    let choice = Choice::of(run, args.task.as_deref(), &args.settings).and_then(Choice::for_one_task);
    let choice = choice.map_err(Failure::of_run)?;
    if args.router.is_some() {
        return Err(Failure::BadInput("--router is for runs with tasks".into()));
    }
    Ok(Subject::Choice(Box::new(choice)))
}

/// Returns the model that a configuration names, without training.
fn of_config(args: &Args, config: &Path) -> Result<Subject, Failure> {
    let experiment = load_config(config, &args.settings)?;
    let refused = match experiment.tasks.as_slice() {
        [] if args.router.is_some() => "--router is for runs with tasks: leave it out",
        [] => return Ok(Subject::Initial(Box::new(experiment))),
        _ => "the tasks of a configuration have no heads before they are trained: train it, and give its run by --run",
    };
    Err(Failure::BadInput(refused.into()))
}
