//! `undertone analyze`.

use crate::commands::eval::SplitName;
use crate::failure::Failure;
use crate::say;
use std::path::PathBuf;
use undertone::phases::Experiment;
use undertone::phases::run::analyze;

#[derive(clap::Args)]
pub struct Args {
    /// A run with tasks; for any other run, use `eval`
    #[arg(long)]
    run: PathBuf,
    /// Split to evaluate
    #[arg(long, default_value = "test")]
    split: SplitName,
    /// Override one key of the run's configuration
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut experiment =
        Experiment::load(Some(&args.run.join("config.yaml")), &args.settings).map_err(Failure::bad_input)?;
    experiment.at(&args.run);
    let report = analyze(&experiment, args.split.into()).map_err(Failure::of_run)?;
    say!("{}", report.table.markdown())?;
    if let Some(routing) = &report.routing {
        say!("routing accuracy {:.2} % of {} inputs", 100.0 * routing.accuracy, routing.samples)?;
    }
    if let Some(page) = &report.page {
        say!("report: {}", page.display())?;
    }
    Ok(())
}
