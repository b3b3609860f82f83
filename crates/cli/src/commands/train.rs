//! `undertone train`.

use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::program::find_config;
use crate::say;
use crate::signals::on_end;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use undertone::phases::run::{Baseline, Phase, StageOutcome, train, train_baseline, train_phases};
use undertone::phases::{Experiment, Interrupt, RunError, Session};
use undertone::store::DirectoryLock;
use undertone::train::ranks::launched;
use undertone::train::{Display, Exported, ProcessGroup, Summary};

/// Default configuration.
pub const DEFAULT_CONFIG: &str = "configs/dynamo-cw.yaml";

#[derive(clap::Args)]
pub struct Args {
    /// The experiment's YAML file
    #[arg(long, default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Phases to run, of a configuration with tasks: 1 (adapters), 2 (router), 3 (both) or all; all if not given
    #[arg(long)]
    phase: Option<String>,
    /// Train a baseline for a configuration with tasks: head, shared, distilled or full
    #[arg(long, conflicts_with = "phase")]
    baseline: Option<Baseline>,
    /// Resume from the run's newest complete checkpoint
    #[arg(long)]
    resume: bool,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long)]
    device: Option<String>,
    /// Show Burn's dashboard instead of a progress bar
    #[arg(long)]
    tui: bool,
    /// Override one key of the configuration, like train.max_steps=100
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub fn run(args: &Args, log_format: LogFormat) -> Result<(), Failure> {
    let process_group = process_group()?;
    let Err(failure) = train_on(args, &process_group) else { return Ok(()) };
    if process_group.is_alone() {
        return Err(failure);
    }
    // One process of the group reports the error, before any of them exits, because the launcher then ends all.
    match &failure {
        Failure::BadInput(text) | Failure::Machine(text) if process_group.reports_errors() => {
            logging::complain(log_format, text)
        }
        _ => {}
    }
    Err(Failure::SaidByAnother(failure.status()))
}

/// Waits until the first rank has saved what it can and has released the lock on the run's directory.
fn let_first_rank_leave(directory: &Path) {
    let began = Instant::now();
    while directory.join(DirectoryLock::FILE).exists() && began.elapsed() < LONGEST_SAVE {
        std::thread::sleep(Duration::from_millis(100));
    }
    // The first rank still prints its error message.
    std::thread::sleep(Duration::from_secs(1));
}

/// Longest wait: a checkpoint of the largest model takes less, even on a slow disk.
const LONGEST_SAVE: Duration = Duration::from_secs(600);

fn train_on(args: &Args, process_group: &ProcessGroup) -> Result<(), Failure> {
    let mut settings = args.settings.clone();
    settings.extend(args.device.as_ref().map(|device| format!("device={device}")));
    let experiment = Experiment::load(Some(&find_config(&args.config)), &settings).map_err(RunError::from);
    let experiment = process_group.all_ok(experiment).map_err(Failure::of_run)?;
    let display = if args.tui { dashboard()? } else { Display::Lines };
    let session =
        Session { resume: args.resume, interrupt: interrupt()?, display, process_group: process_group.clone() };
    let outcomes = match (args.baseline, args.phase.as_deref()) {
        (Some(baseline), _) => train_baseline(&experiment, baseline, &session),
        (None, Some(phase)) => train_phases(&experiment, &phases(phase)?, &session),
        (None, None) => train(&experiment, &session),
    };
    let outcomes = process_group.all_ok(outcomes);
    if process_group.leaves_first_rank_behind() {
        let_first_rank_leave(&experiment.directory());
    }
    let outcomes = outcomes
        .map_err(|error| with_origin(Failure::of_run(error), &find_config(&args.config), &experiment.run.dir))?;
    if process_group.is_main_process() { report(&experiment, &outcomes) } else { Ok(()) }
}

/// Returns the process group of the training processes, if `mpirun` or `srun` started several.
#[cfg(feature = "mpi")]
fn process_group() -> Result<ProcessGroup, Failure> {
    use std::sync::Arc;
    use undertone::train::ranks::{Mpi, Ranks};
    if launched().is_none() {
        return Ok(ProcessGroup::default());
    }
    let ranks = Ranks::over(Mpi::init).map_err(|error| Failure::Machine(error.to_string()))?;
    Ok(ProcessGroup::of(Arc::new(ranks)))
}

/// Refuses several processes, because without MPI each would train the same run into one directory.
#[cfg(not(feature = "mpi"))]
fn process_group() -> Result<ProcessGroup, Failure> {
    let Some(launched) = launched() else { return Ok(ProcessGroup::default()) };
    let refused = Failure::BadInput(format!(
        "{} processes were started together, and this program was built without MPI, so that each would train the same run: \
         build it with `--features mpi`, or start it once",
        launched.count
    ));
    if launched.rank == 0 {
        return Err(refused);
    }
    // The first process reports the error. A launcher ends all processes as soon as one has exited.
    std::thread::sleep(Duration::from_secs(1));
    Err(Failure::SaidByAnother(refused.status()))
}

/// Adds to the error about a missing file that the comment at the head of the configuration says where the file comes
/// from, if it does.
fn with_origin(failure: Failure, config: &Path, runs: &Path) -> Failure {
    let Failure::BadInput(error) = failure else { return failure };
    let text = std::fs::read_to_string(config).unwrap_or_default();
    let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
    let explained = |folder: &Path| {
        let folder = folder.to_string_lossy();
        folder.contains('/') && head.iter().any(|line| line.contains(&*folder))
    };
    let words = error.split([' ', '`', ',', ';']).map(|word| Path::new(word.trim_end_matches(':')));
    // What a run writes is published nowhere.
    let is_written = |word: &Path| word.starts_with(runs);
    let mut missing = words.filter(|word| word.components().count() > 1 && !word.exists() && !is_written(word));
    if !missing.any(|path| path.ancestors().any(explained)) {
        return Failure::BadInput(error);
    }
    let head =
        format!("the comment at the head of `{}` says what belongs there and where it is published", config.display());
    Failure::BadInput(format!("{error}; {head}"))
}

#[cfg(feature = "tui")]
fn dashboard() -> Result<Display, Failure> {
    Ok(Display::Dashboard)
}

#[cfg(not(feature = "tui"))]
fn dashboard() -> Result<Display, Failure> {
    Err(Failure::BadInput("--tui is not in this build: build it with `--features tui`".into()))
}

fn phases(text: &str) -> Result<Vec<Phase>, Failure> {
    match text {
        "all" => Ok(Phase::ALL.to_vec()),
        phase => Ok(vec![phase.parse().map_err(Failure::BadInput)?]),
    }
}

/// Prints the results to standard output: a line for each stage and one for each of its metrics; for a run without
/// tasks also its hypotheses.
fn report(experiment: &Experiment, outcomes: &[StageOutcome]) -> Result<(), Failure> {
    let told = tell(experiment, outcomes);
    let is_complete = |outcome: &StageOutcome| outcome.summary.as_ref().is_none_or(|summary| summary.completed);
    if outcomes.iter().all(is_complete) {
        return told;
    }
    // An unfinished run takes precedence over output that nobody reads.
    let _ = told.and_then(|()| say!("go on with the same command and --resume"));
    Err(Failure::Interrupted)
}

fn tell(experiment: &Experiment, outcomes: &[StageOutcome]) -> Result<(), Failure> {
    for StageOutcome { directory, summary } in outcomes {
        let Some(summary) = summary else {
            say!("{}: finished earlier", directory.display())?;
            continue;
        };
        if experiment.tasks.is_empty() {
            in_detail(summary, directory)?;
            continue;
        }
        let state = if summary.completed { "finished" } else { "interrupted" };
        say!(
            "{} {state}: {} steps, {} samples in {:.0} s",
            directory.display(),
            summary.steps,
            summary.samples,
            summary.seconds
        )?;
        metrics(summary)?;
        say!("  {}", model(directory, summary.steps))?;
    }
    Ok(())
}

fn metrics(summary: &Summary) -> Result<(), Failure> {
    // A metric without a value, as of a validation in which nothing was written, is only in `before`.
    let names: BTreeSet<&String> = summary.before.keys().chain(summary.after.keys()).collect();
    for metric in names {
        match (summary.before.get(metric), summary.after.get(metric)) {
            (Some(before), Some(after)) => say!("  {metric}  {before:.4} → {after:.4}")?,
            (Some(before), None) => say!("  {metric}  {before:.4} → n/a")?,
            (None, after) => say!("  {metric}  {:.4}", after.copied().unwrap_or(f64::NAN))?,
        }
    }
    Ok(())
}

/// Time in which two signals are one.
const TOGETHER: Duration = Duration::from_millis(250);

/// Returns the interrupt flag, which the first SIGINT or SIGTERM sets. The second signal ends the process at once; so
/// does the first if there is nothing to save.
pub(super) fn interrupt() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    let first = OnceLock::<Instant>::new();
    on_end(move || {
        let is_second = asked.ask();
        // Programs like `timeout` signal a process and its group: that is one wish to end.
        if first.get_or_init(Instant::now).elapsed() < TOGETHER && is_second {
            return;
        }
        if !is_second && asked.is_heeded() {
            tracing::info!("stopping after this step, with a checkpoint; interrupt once more to leave at once");
            return;
        }
        if !is_second {
            tracing::info!("interrupted before anything was trained that is not saved");
        }
        std::process::exit(i32::from(Failure::Interrupted.status()));
    })?;
    Ok(interrupt)
}

/// Prints the results of a run with one stage.
fn in_detail(summary: &Summary, directory: &Path) -> Result<(), Failure> {
    let state = if summary.completed { "finished" } else { "interrupted" };
    say!(
        "{} {state}: {} steps, {} samples in {:.0} s ({:.1} samples/s, data wait {:.1} %)",
        summary.name,
        summary.steps,
        summary.samples,
        summary.seconds,
        summary.samples_per_second,
        100.0 * summary.data_wait,
    )?;
    metrics(summary)?;
    for remark in &summary.remarks {
        say!("  {remark}")?;
    }
    for example in &summary.examples {
        say!("  {}", example.name)?;
        say!("    said    {}", example.reference)?;
        if let Some(before) = &example.before {
            say!("    before  {before}")?;
        }
        say!("    after   {}", example.after)?;
    }
    say!("{}", model(directory, summary.steps))
}

/// Returns the location of a run's model. If its weights are not those after all `steps`, whose results stand above it, their step and
/// score.
fn model(directory: &Path, steps: u64) -> String {
    let best = directory.join("best");
    match Exported::read(&best) {
        _ if !best.exists() => "model: none yet".into(),
        Some(Exported { step: 0, .. }) => {
            format!("model: {}, untrained: that of step 0 scored best", best.display())
        }
        Some(Exported { value: None, step, metric, .. }) => {
            format!("model: {}, that of step {step}: no evaluation found a `{metric}`", best.display())
        }
        Some(Exported { value: Some(value), step, metric, .. }) if step != steps => {
            format!("model: {}, that of step {step}, which has the best {metric}: {value:.4}", best.display())
        }
        _ => format!("model: {}", best.display()),
    }
}
