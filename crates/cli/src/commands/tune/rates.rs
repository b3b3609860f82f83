//! `undertone tune --lr`: the search for a learning rate.

use crate::commands::train::interrupt;
use crate::failure::Failure;
use clap::builder::RangedU64ValueParser;
use undertone::fit::{RateOptions, RateTrial};
use undertone::phases::run::Baseline;
use undertone::phases::tune::{RateSearchError, RateSubject, rate_subjects};
use undertone::phases::{Experiment, Session};
use undertone::train::limits::MOST_STEPS;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Optimizer steps of the longest trials; a quarter of the training if not given
    #[arg(long, value_name = "N", requires = "lr", value_parser = RangedU64ValueParser::<u64>::new().range(1..=MOST_STEPS))]
    steps: Option<u64>,
    /// Learning rates to try, like 1e-4,3e-4,1e-3; if not given, seven around the configured one
    #[arg(long, value_name = "RATES", value_delimiter = ',', requires = "lr")]
    rates: Vec<f64>,
    /// Task whose rate to search for, in a run with tasks; all if not given
    #[arg(long, value_name = "TASK", requires = "lr", conflicts_with = "baseline")]
    task: Option<String>,
    /// Baseline whose rate to search for instead, in a run with tasks: head, shared or full
    #[arg(long, value_name = "NAME", requires = "lr")]
    baseline: Option<Baseline>,
}

/// Fewest steps of the longest trials by default, of a training that has as many.
const LEAST_STEPS: u64 = 40;

/// Searches for learning rates, and writes them into the experiment. Returns lines about the results.
pub fn tune(args: &Args, experiment: &mut Experiment) -> Result<Vec<String>, Failure> {
    let session = Session { interrupt: interrupt()?, ..Session::default() };
    let mut results = Vec::new();
    for subject in subjects(args, experiment)? {
        let options = options(args, &subject);
        say_what(&subject, &options);
        let print = |trial: &RateTrial| tracing::info!("{}", row(trial));
        let found = subject.search(&options, &session, print).map_err(failure)?;
        results.push(format!("learning rate of {}, by {}", subject.name(), subject.metric()));
        results.push(HEAD.to_owned());
        results.extend(found.trials.iter().map(row));
        results.push(format!("{}  {} → {}", subject.key(), subject.rate(), found.best));
        results.push(format!("curves: {}", subject.directory().join("report.html").display()));
        subject.set_rate(experiment, found.best);
    }
    Ok(results)
}

/// Checks the options of the search, which may come after minutes of a search for the batch.
pub fn check(args: &Args, experiment: &Experiment) -> Result<(), Failure> {
    let subjects = subjects(args, experiment)?;
    subjects.iter().try_for_each(|subject| options(args, subject).validate().map(|_| ()).map_err(Failure::bad_input))
}

fn subjects(args: &Args, experiment: &Experiment) -> Result<Vec<RateSubject>, Failure> {
    let mut chosen = experiment.clone();
    if let Some(name) = &args.task {
        let known = || experiment.tasks.iter().map(|task| format!("`{}`", task.name)).collect::<Vec<_>>().join(", ");
        if experiment.tasks.is_empty() {
            return Err(Failure::BadInput("`--task` is for a run with `tasks`, and this one has none".into()));
        }
        if experiment.phases.adapters.mixed {
            let text =
                "`--task` is for tasks that are trained one after another, and `phases.1.mixed` trains all at once";
            return Err(Failure::BadInput(text.into()));
        }
        if !experiment.tasks.iter().any(|task| task.name == *name) {
            return Err(Failure::BadInput(format!("there is no task `{name}`: there are {}", known())));
        }
        chosen.tasks.retain(|task| task.name == *name);
    }
    rate_subjects(&chosen, args.baseline).map_err(Failure::of_run)
}

fn options(args: &Args, subject: &RateSubject) -> RateOptions {
    let quarter = (subject.planned() / 4).max(LEAST_STEPS).min(subject.planned());
    let rates = if args.rates.is_empty() { RateOptions::around(subject.rate()) } else { args.rates.clone() };
    RateOptions { rates, steps: args.steps.unwrap_or(quarter) }
}

fn say_what(subject: &RateSubject, options: &RateOptions) {
    let lengths = options.lengths().iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    tracing::info!("learning rate of {}: {} rates, trials of {lengths} steps", subject.name(), options.rates.len());
    let (total, planned) = (options.total_steps(), subject.planned());
    tracing::info!("{total} steps in all, more if the best rate is beyond the given ones; the training has {planned}");
    tracing::info!("{HEAD}");
}

/// Header of the table of trials.
const HEAD: &str = "learning rate    steps  metric";

fn row(trial: &RateTrial) -> String {
    let value = trial.value.map_or("diverged".to_owned(), |value| format!("{value:.4}"));
    format!("{:>13}  {:>7}  {value}", trial.rate, trial.steps)
}

fn failure(error: RateSearchError) -> Failure {
    match error {
        RateSearchError::Run(error) => Failure::of_run(*error),
        RateSearchError::Interrupted => {
            tracing::warn!("{error}");
            Failure::Interrupted
        }
        RateSearchError::Report(error) => Failure::of_report(error),
        RateSearchError::Store(_) => Failure::Machine(error.to_string()),
        RateSearchError::Search(_) | RateSearchError::Other(_) | RateSearchError::NoMetric { .. } => {
            Failure::bad_input(error)
        }
    }
}
