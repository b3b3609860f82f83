//! `cargo xtask eval`.

use crate::{Failure, train};
use std::path::PathBuf;
use undertone::phases::{Experiment, Split, evaluate};

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
    /// Override one key, like `data.valid.cw.snr_db=[10,10]`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SplitName {
    Train,
    Valid,
    Test,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let file = match (&args.what.run, &args.what.config) {
        (Some(run), _) => run.join("config.yaml"),
        (None, Some(config)) => train::find(config),
        (None, None) => return Err(Failure::BadInput("give --run or --config".into())),
    };
    let mut experiment = Experiment::load(Some(&file), &args.settings).map_err(Failure::bad_input)?;
    if let Some(run) = &args.what.run {
        experiment.model.path = Some(run.join("best"));
    }
    let split = match args.split {
        SplitName::Train => Split::Train,
        SplitName::Valid => Split::Valid,
        SplitName::Test => Split::Test,
    };
    let evaluation = evaluate(&experiment, split).map_err(Failure::of_run)?;
    for example in &evaluation.examples {
        eprintln!("{}\n  said  {}\n  read  {}", example.name, example.reference, example.hypothesis);
    }
    println!("{}", serde_json::json!(evaluation.metrics));
    Ok(())
}
