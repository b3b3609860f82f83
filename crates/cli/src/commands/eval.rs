//! `undertone eval`.

use crate::commands::choices::{SPLITS, one_of};
use crate::failure::Failure;
use crate::program::{load_config, load_run};
use crate::say;
use std::path::{Path, PathBuf};
use undertone::phases::Split;
use undertone::phases::run::{Choice, RouterKind, evaluate, evaluate_choice, evaluate_run};
use undertone::train::Evaluation;

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
    let evaluation = match (&args.what.run, &args.what.config) {
        (Some(run), _) => of_run(args, run)?,
        (None, Some(config)) => of_config(args, config)?,
        (None, None) => return Err(Failure::BadInput("give --run or --config".into())),
    };
    for example in &evaluation.examples {
        tracing::info!("{}\n  said  {}\n  read  {}", example.name, example.reference, example.hypothesis);
    }
    let mut line = serde_json::json!(evaluation.metrics);
    if !evaluation.intervals.is_empty() {
        line["intervals"] = serde_json::json!(evaluation.intervals);
    }
    if !evaluation.remarks.is_empty() {
        line["remarks"] = evaluation.remarks.into();
    }
    say!("{line}")
}

/// Evaluates the model of a run: all tasks with a router, or the model of one task.
fn of_run(args: &Args, run: &Path) -> Result<Evaluation, Failure> {
    if args.task.is_none() && run.join("config.yaml").is_file() {
        let experiment = load_run(run, &args.settings)?;
        let several = experiment.tasks.len() > 1 || args.router.is_some();
        if several && !experiment.tasks.is_empty() {
            let router = args.router.unwrap_or(RouterKind::Learned);
            return Ok(evaluate_run(&experiment, args.split, router).map_err(Failure::of_run)?.into_evaluation());
        }
    }
    if args.router.is_some() {
        return Err(Failure::BadInput("--router is for runs with tasks".into()));
    }
    let choice = Choice::of(run, args.task.as_deref(), &args.settings).map_err(Failure::of_run)?;
    evaluate_choice(&choice, args.split).map_err(Failure::of_run)
}

/// Evaluates the model that a configuration names, without training.
fn of_config(args: &Args, config: &Path) -> Result<Evaluation, Failure> {
    let experiment = load_config(config, &args.settings)?;
    if args.router.is_some() || !experiment.tasks.is_empty() {
        let text = "--router is for runs with tasks, and a configuration with tasks is judged as a run: give --run";
        return Err(Failure::BadInput(text.into()));
    }
    evaluate(&experiment, None, args.split).map_err(Failure::of_run)
}
