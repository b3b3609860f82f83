//! `cargo xtask eval`.

use crate::failure::Failure;
use crate::train;
use std::path::PathBuf;
use undertone::phases::run::{RouterKind, evaluate, judge_run};
use undertone::phases::{Experiment, Split};

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
pub struct What {
    /// A run's directory: judges its best model on its own data
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
    let file = match (&args.what.run, &args.what.config) {
        (Some(run), _) => run.join("config.yaml"),
        (None, Some(config)) => train::find(config),
        (None, None) => return Err(Failure::BadInput("give --run or --config".into())),
    };
    let mut experiment = Experiment::load(Some(&file), &args.settings).map_err(Failure::bad_input)?;
    let split = args.split.into();
    let evaluation = match &args.what.run {
        Some(run) if !experiment.tasks.is_empty() => {
            experiment.at(run);
            let router = args.router.unwrap_or(Router::Learned);
            judge_run(&experiment, split, router.into()).map_err(Failure::of_run)?.into_evaluation()
        }
        _ if args.router.is_some() || !experiment.tasks.is_empty() => {
            let text = "--router is for runs with tasks, and a configuration with tasks is judged as a run: give --run";
            return Err(Failure::BadInput(text.into()));
        }
        run => {
            let trained = run.as_ref().map(|run| run.join("best"));
            evaluate(&experiment, trained.as_deref(), split).map_err(Failure::of_run)?
        }
    };
    for example in &evaluation.examples {
        tracing::info!("{}\n  said  {}\n  read  {}", example.name, example.reference, example.hypothesis);
    }
    let mut line = serde_json::json!(evaluation.metrics);
    if !evaluation.remarks.is_empty() {
        line["remarks"] = evaluation.remarks.into();
    }
    println!("{line}");
    Ok(())
}
