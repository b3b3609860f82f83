//! `undertone eval`.

use crate::failure::Failure;
use crate::find_config;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::phases::run::{Choice, RouterKind, evaluate, evaluate_choice, judge_run};
use undertone::phases::{Experiment, Split};
use undertone::train::Evaluation;

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
pub struct What {
    /// A run's directory: judges its best model on its own data; or the directory of one of its stages, like
    /// runs/x/phase1/TASK
    #[arg(long, group = "what")]
    run: Option<PathBuf>,
    /// A configuration: judges the model it names as it is
    #[arg(long, group = "what")]
    config: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// Which data
    #[arg(long, default_value = "valid")]
    split: SplitName,
    /// Who decides about adapters, for a run with tasks; its router if not given
    #[arg(long)]
    router: Option<Router>,
    /// The one task of a run with tasks that is judged, by itself
    #[arg(long, conflicts_with_all = ["router", "config"])]
    task: Option<String>,
    /// Override one key, like `data.valid.cw.snr_db=[10,10]`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// A split as it is typed.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum SplitName {
    Train,
    Valid,
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Self {
        match name {
            SplitName::Train => Self::Train,
            SplitName::Valid => Self::Valid,
            SplitName::Test => Self::Test,
        }
    }
}

/// Who decides about adapters, as it is typed.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Router {
    Learned,
    Oracle,
    Uniform,
    Random,
}

impl From<Router> for RouterKind {
    fn from(name: Router) -> Self {
        match name {
            Router::Learned => Self::Learned,
            Router::Oracle => Self::Oracle,
            Router::Uniform => Self::Uniform,
            Router::Random => Self::Random,
        }
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let evaluation = match (&args.what.run, &args.what.config) {
        (Some(run), _) => of_run(args, run)?,
        (None, Some(config)) => of_config(args, &find_config(config))?,
        (None, None) => return Err(Failure::BadInput("give --run or --config".into())),
    };
    for example in &evaluation.examples {
        tracing::info!("{}\n  said  {}\n  read  {}", example.name, example.reference, example.hypothesis);
    }
    let mut line = serde_json::json!(evaluation.metrics);
    if !evaluation.remarks.is_empty() {
        line["remarks"] = evaluation.remarks.into();
    }
    say!("{line}")
}

/// Judges what a run has trained: all tasks with somebody who decides among them, or what there is for one of them.
fn of_run(args: &Args, run: &Path) -> Result<Evaluation, Failure> {
    let (config, split) = (run.join("config.yaml"), args.split.into());
    if args.task.is_none() && config.is_file() {
        let mut experiment = Experiment::load(Some(&config), &args.settings).map_err(Failure::bad_input)?;
        experiment.at(run);
        let several = experiment.tasks.len() > 1 || args.router.is_some();
        if several && !experiment.tasks.is_empty() {
            let router = args.router.unwrap_or(Router::Learned);
            return Ok(judge_run(&experiment, split, router.into()).map_err(Failure::of_run)?.into_evaluation());
        }
    }
    if args.router.is_some() {
        return Err(Failure::BadInput("--router is for runs with tasks".into()));
    }
    let choice = Choice::of(run, args.task.as_deref(), &args.settings).map_err(Failure::of_run)?;
    evaluate_choice(&choice, split).map_err(Failure::of_run)
}

/// Judges the model that a configuration names as it is.
fn of_config(args: &Args, config: &Path) -> Result<Evaluation, Failure> {
    let experiment = Experiment::load(Some(config), &args.settings).map_err(Failure::bad_input)?;
    if args.router.is_some() || !experiment.tasks.is_empty() {
        let text = "--router is for runs with tasks, and a configuration with tasks is judged as a run: give --run";
        return Err(Failure::BadInput(text.into()));
    }
    evaluate(&experiment, None, args.split.into()).map_err(Failure::of_run)
}
