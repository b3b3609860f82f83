//! `undertone analyze`.

use crate::commands::choices::{SPLITS, one_of};
use crate::failure::Failure;
use crate::program::load_run;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::phases::Split;
use undertone::phases::run::{Others, Rejected, analyze, tell_others};

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
    /// Inputs of none of the tasks, to see what `router.reject` makes of them: a file with a text on each line, or for speech a
    /// recording or a folder of recordings
    #[arg(long, value_name = "PATH", conflicts_with = "by")]
    others: Option<PathBuf>,
    /// Override one key of the run's configuration
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let experiment = load_run(&args.run, &args.settings)?;
    if let Some(missing) = args.others.as_ref().filter(|others| !others.exists()) {
        return Err(Failure::BadInput(format!("there is no file or folder `{}`", missing.display())));
    }
    if let Some(others) = &args.others {
        return print_others(&tell_others(&experiment, args.split, others).map_err(Failure::of_run)?, others);
    }
    let report = analyze(&experiment, args.split, &args.by).map_err(Failure::of_run)?;
    say!("{}", report.table.markdown())?;
    for grouping in &report.evaluation.groups {
        say!("{}", grouping.markdown())?;
    }
    if let Some(routing) = &report.routing {
        say!("routing accuracy {:.2} % of {} inputs", 100.0 * routing.accuracy, routing.samples)?;
        if let Some(calibration) = &routing.calibration {
            say!("calibration error of the confidence {:.3}", calibration.error)?;
        }
    }
    if let Some(page) = &report.page {
        say!("report: {}", page.display())?;
    }
    Ok(())
}

/// Prints how well inputs of none of the tasks are told from those of the tasks.
fn print_others(found: &Others, path: &Path) -> Result<(), Failure> {
    let Others { own, others, area, rejected } = found;
    say!("{own} inputs of the tasks and {others} of {}: area under the ROC curve {area:.3}", path.display())?;
    say!(
        "| router.reject | the tasks' own, rejected | others, rejected |\n|--------------:|-------------------------:|-----------------:|"
    )?;
    for Rejected { reject, own, others } in rejected {
        say!("| {reject:13} | {:22.1} % | {:14.1} % |", 100.0 * own, 100.0 * others)?;
    }
    Ok(())
}
