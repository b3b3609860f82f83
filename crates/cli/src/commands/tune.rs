//! `undertone tune`, and the hidden command that each of its probes runs.

mod rates;

use crate::commands::train;
use crate::failure::Failure;
use crate::program::load_config;
use crate::{Program, say};
use clap::builder::RangedU64ValueParser;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use undertone::fit::tune::{Attempt, Goal, HEAD, Limits, Outcome, TuneError, TuneOptions, probe_in_child, row};
use undertone::ops::runs_on_host;
use undertone::phases::Experiment;
use undertone::phases::tune::{SIGNATURE, Tuned, earlier_batch, record_batch, run_probe, subject, tune, tuned_yaml};
use undertone::store::write_atomically;
use undertone::train::{Amount, LrScaling, MemoryBudget, available_memory_bytes, resident_memory_bytes};

/// Name of the hidden command.
const PROBE: &str = "tune-probe";

/// Additional time after its own limit in which a probe may report that it was too slow.
const GRACE: Duration = Duration::from_secs(10);

/// Margin below the largest batch, where only a failed allocation shows that a batch is too large.
const MARGIN: f64 = 0.08;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment's YAML file
    #[arg(long, default_value = train::DEFAULT_CONFIG)]
    config: PathBuf,
    /// Override one key of the configuration, like data.pad=window
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long)]
    device: Option<String>,
    /// Memory limit: an amount like 6GB, or a share of the available memory like 80%, the default on a CPU. On a GPU:
    /// an amount, or all of its memory if not given
    #[arg(long, value_name = "BUDGET")]
    memory: Option<MemoryBudget>,
    /// Objective: `throughput`, or `largest` for the largest batch
    #[arg(long, default_value = "throughput")]
    objective: Goal,
    /// Allow an optimizer step to have more samples than batch_size × accumulation
    #[arg(long)]
    grow: bool,
    /// Scaling of the learning rate if the samples per step change: none, linear or sqrt
    #[arg(long, default_value = "none")]
    lr_scaling: LrScaling,
    /// Time limit of a probe in seconds, loading included
    #[arg(long, default_value = "600", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    probe_seconds: u64,
    /// Search for the learning rate, too, with short trainings (after the batch)
    #[arg(long)]
    lr: bool,
    /// Keep the batch, and search for the learning rate alone
    #[arg(long, requires = "lr", conflicts_with_all = ["memory", "objective", "grow", "lr_scaling", "probe_seconds"])]
    keep_batch: bool,
    #[command(flatten)]
    rates: rates::Args,
    /// YAML file to write; CONFIG-tuned.yaml in the working directory if not given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct ProbeArgs {
    /// The experiment's YAML file
    #[arg(long)]
    config: PathBuf,
    /// Samples per batch
    #[arg(long)]
    batch: usize,
    /// Batches per optimizer step
    #[arg(long)]
    accumulation: usize,
    /// Memory limit, in bytes
    #[arg(long)]
    memory: Option<u64>,
    /// Time limit, in seconds
    #[arg(long)]
    seconds: u64,
    /// Use activation checkpointing, whatever the configuration says
    #[arg(long)]
    checkpointing: bool,
    /// Directory of its records
    #[arg(long)]
    scratch: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut settings = args.settings.clone();
    settings.extend(args.device.as_ref().map(|device| format!("device={device}")));
    let before = load_config(&args.config, &settings)?;
    let mut experiment = before.clone();
    let out = args.out.clone().unwrap_or_else(|| default_out(&args.config));
    may_be_written(&out)?;
    if args.lr {
        rates::check(&args.rates, &experiment)?;
    }
    let mut results = Vec::new();
    if !args.keep_batch {
        let asked = asked_of_batch(args);
        match args.lr.then(|| earlier_batch(&experiment, &asked)).flatten() {
            Some(found) => {
                results.push("batch taken from the earlier search".into());
                experiment = found;
            }
            None => {
                let tuned = tune_batch(args, &experiment)?;
                results = tuned.lines(&experiment);
                if args.lr {
                    let recorded = record_batch(&experiment, &asked, &tuned.experiment);
                    recorded.map_err(|error| Failure::Machine(error.to_string()))?;
                }
                experiment = tuned.experiment;
            }
        }
    }
    if args.lr {
        let found = rates::tune(&args.rates, &mut experiment).inspect_err(|_| {
            results.iter().for_each(|line| tracing::info!("{line}"));
        })?;
        results.extend(found);
    }
    if experiment == before {
        results.push("nothing is changed".into());
    }
    let written = write(&out, &experiment, &results);
    for line in results {
        say!("{line}")?;
    }
    written?;
    say!("train with: {} train --config {}", Program::running(), out.display())
}

fn write(out: &Path, experiment: &Experiment, results: &[String]) -> Result<(), Failure> {
    let yaml = tuned_yaml(experiment, results);
    write_atomically(out, yaml.as_bytes()).map_err(|e| Failure::Machine(e.to_string()))
}

/// Searches for the batch.
fn tune_batch(args: &Args, experiment: &Experiment) -> Result<Tuned, Failure> {
    let (memory, on_host) = budget(args.memory, experiment)?;
    let limits = Limits { memory, time: Duration::from_secs(args.probe_seconds) };
    let prober = Prober::new(experiment, limits)?;
    say_what(experiment, &limits);
    let options = TuneOptions {
        goal: args.objective,
        grow: args.grow,
        scaling: args.lr_scaling,
        margin: if on_host || memory.is_some() { 0.0 } else { MARGIN },
    };
    tracing::info!("{HEAD}");
    let tuned = tune(experiment, &options, |attempt| prober.probe(attempt), |probe| tracing::info!("{}", row(probe)));
    tuned.map_err(failure)
}

/// Returns the options that a search for the batch depends on.
fn asked_of_batch(args: &Args) -> String {
    let Args { objective, grow, lr_scaling, memory, probe_seconds, .. } = args;
    format!("{objective:?}, grow {grow}, {lr_scaling:?}, memory {memory:?}, {probe_seconds} s")
}

/// Tries one batch and prints one line of JSON.
pub fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    let experiment = Experiment::load(Some(&args.config), &[]).map_err(Failure::bad_input)?;
    let attempt = Attempt { batch: args.batch, accumulation: args.accumulation, checkpointing: args.checkpointing };
    let limits = Limits { memory: args.memory, time: Duration::from_secs(args.seconds) };
    let outcome = run_probe(&experiment, attempt, limits, &args.scratch, print_outcome).map_err(Failure::of_run)?;
    print_outcome(&outcome);
    Ok(())
}

fn print_outcome(outcome: &Outcome) {
    let mut stdout = std::io::stdout().lock();
    // An error is ignored, because without a reader nobody needs the result.
    let _ = serde_json::to_writer(&mut stdout, outcome);
    let _ = writeln!(stdout).and_then(|()| stdout.flush());
}

/// Returns the memory limit in bytes, and whether the device's memory is the memory of this process.
fn budget(given: Option<MemoryBudget>, experiment: &Experiment) -> Result<(Option<u64>, bool), Failure> {
    let device = experiment.device.resolve().map_err(Failure::bad_input)?;
    match (runs_on_host(&device), given) {
        (false, None) => Ok((None, false)),
        (false, Some(MemoryBudget::Bytes(bytes))) => Ok((Some(bytes), false)),
        (false, Some(MemoryBudget::Share(_))) => {
            Err(Failure::BadInput("`--memory` as a share is for the CPU: give an amount, like 6GB".into()))
        }
        (true, given) => {
            if resident_memory_bytes().is_none() {
                let text = "this system does not tell a process how much memory it holds, so there is nothing to tune by: use Linux, or a GPU";
                return Err(Failure::BadInput(text.into()));
            }
            let bytes = given.unwrap_or_default().bytes(available_memory_bytes());
            let unknown = || Failure::BadInput("the available memory is unknown: give an amount with --memory".into());
            Ok((Some(bytes.ok_or_else(unknown)?), true))
        }
    }
}

fn say_what(experiment: &Experiment, limits: &Limits) {
    let (batch, accumulation) = (experiment.data.batch_size, experiment.train.accumulation);
    let within = limits.memory.map_or("until allocations fail".to_owned(), |bytes| format!("within {}", Amount(bytes)));
    tracing::info!("{}, {within}", subject(experiment));
    tracing::info!("an optimizer step has {} samples: {batch} × {accumulation}", batch * accumulation);
}

fn default_out(config: &Path) -> PathBuf {
    let stem = config.file_stem().map_or("config".into(), |stem| stem.to_string_lossy());
    PathBuf::from(format!("{stem}-tuned.yaml"))
}

/// Refuses to replace a file that an earlier search did not write.
fn may_be_written(out: &Path) -> Result<(), Failure> {
    let refused = |what: &str| Failure::BadInput(format!("`{}` {what}: name another file with --out", out.display()));
    match std::fs::read_to_string(out) {
        Ok(text) if text.starts_with(SIGNATURE) => Ok(()),
        Ok(_) => Err(refused("is there already, and tune did not write it")),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(refused(&format!("cannot be written ({e})"))),
        Err(_) => match out.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
            Some(parent) => Err(refused(&format!("cannot be written, there is no directory `{}`", parent.display()))),
            None => Ok(()),
        },
    }
}

fn failure(error: TuneError) -> Failure {
    match error {
        TuneError::Refused(_) | TuneError::NothingFits(_) => Failure::bad_input(error),
        TuneError::Process(_) | TuneError::Broken(_) => Failure::Machine(error.to_string()),
    }
}

/// Starts probes of one configuration.
struct Prober {
    scratch: tempfile::TempDir,
    limits: Limits,
}

impl Prober {
    fn new(experiment: &Experiment, limits: Limits) -> Result<Self, Failure> {
        let unwritable = |e| Failure::Machine(format!("cannot write temporary files: {e}"));
        let scratch = tempfile::tempdir().map_err(unwritable)?;
        std::fs::write(scratch.path().join("probe.yaml"), experiment.to_yaml()).map_err(unwritable)?;
        Ok(Self { scratch, limits })
    }

    fn probe(&self, attempt: Attempt) -> Result<Outcome, TuneError> {
        let scratch = self.scratch.path();
        let records = scratch.join(format!("batch-{}", attempt.batch));
        let mut command = Command::new(std::env::current_exe()?);
        // Variables `UNDERTONE_…` override keys of a configuration. They are part of `probe.yaml` already, where `--set` may have
        // replaced some; in the child's environment they would override it again.
        let variables = std::env::vars_os().map(|(name, _)| name);
        let of_configuration = |name: &OsString| name.as_encoded_bytes().starts_with(b"UNDERTONE_");
        variables.filter(of_configuration).for_each(|name| _ = command.env_remove(name));
        command.arg(PROBE).arg("--config").arg(scratch.join("probe.yaml")).arg("--scratch").arg(&records);
        command.args(["--batch", &attempt.batch.to_string(), "--accumulation", &attempt.accumulation.to_string()]);
        command.args(["--seconds", &self.limits.time.as_secs().to_string()]);
        command.args(self.limits.memory.iter().flat_map(|bytes| ["--memory".to_owned(), bytes.to_string()]));
        command.args(attempt.checkpointing.then_some("--checkpointing"));
        let outcome = probe_in_child(&mut command, self.limits.time + GRACE);
        // Records of a few steps. If they cannot be removed now, they are removed with the temporary directory.
        let _ = std::fs::remove_dir_all(&records);
        outcome
    }
}
