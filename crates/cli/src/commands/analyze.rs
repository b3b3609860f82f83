//! `undertone analyze`.

use crate::commands::choices::{SPLITS, one_of};
use crate::failure::Failure;
use crate::program::load_run;
use crate::say;
use std::path::PathBuf;
use undertone::phases::Split;
use undertone::phases::run::analyze;

#[derive(clap::Args)]
pub struct Args {
    /// A run with tasks; for any other run, use `eval`
    #[arg(long)]
    run: PathBuf,
    /// Split to evaluate
    #[arg(long, default_value = "test", value_parser = one_of(SPLITS))]
    split: Split,
    /// Metrics of groups of samples, too: by `duration` of recordings, `words` of texts, or a column of the list that
    /// samples come from, like `speaker`; may be repeated
    #[arg(long, value_name = "COLUMN")]
    by: Vec<String>,
    /// Override one key of the run's configuration
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let experiment = load_run(&args.run, &args.settings)?;
    let report = analyze(&experiment, args.split, &args.by).map_err(Failure::of_run)?;
    say!("{}", report.table.markdown())?;
    for grouping in &report.evaluation.groups {
        say!("{}", grouping.markdown())?;
    }
    if let Some(routing) = &report.routing {
        say!("routing accuracy {:.2} % of {} inputs", 100.0 * routing.accuracy, routing.samples)?;
    }
    if let Some(page) = &report.page {
        say!("report: {}", page.display())?;
    }
    Ok(())
}
