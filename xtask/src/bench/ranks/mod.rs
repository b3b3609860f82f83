//! `cargo xtask bench ranks`: sums over several processes beside MPI's own, and steps beside those of one process alone.

#[cfg(feature = "mpi")]
mod child;
mod options;

use super::names::name;
use super::step::Size;
use crate::process::{json_line, this_program};
use clap::builder::RangedU64ValueParser;
pub use options::ChildArgs;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use undertone_cli::{Failure, output, say};

#[derive(clap::Args)]
pub struct Args {
    /// How many processes, one number after the other
    #[arg(short = 'n', long = "ranks", value_delimiter = ',', default_values_t = [1, 2, 3, 4])]
    ranks: Vec<usize>,
    /// Whose dimensions, one after the other
    #[arg(long, value_delimiter = ',', default_values = ["nano", "tiny"])]
    size: Vec<Size>,
    /// Clips of each process in a step
    #[arg(long, default_value = "1", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    /// Steps that count, after two that warm up; half of them each process takes by itself
    #[arg(long, default_value = "8", value_parser = RangedU64ValueParser::<usize>::new().range(2..))]
    steps: usize,
    /// Seconds that each exchange takes at least, as between machines
    #[arg(long, default_value = "0")]
    latency: f64,
    /// Megabytes of the sums that are timed beside MPI's own
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 25.0, 100.0])]
    megabytes: Vec<f64>,
    /// What starts the processes: it is given their number, the program and its arguments
    #[arg(long, default_value = "mpirun --oversubscribe --bind-to none -n")]
    launcher: String,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    needs_mpi()?;
    if !(args.latency.is_finite() && args.latency >= 0.0) || args.ranks.contains(&0) {
        return Err(Failure::BadInput("--latency is at least 0, and there is at least one process".into()));
    }
    sums(args)?;
    steps(args)
}

#[cfg(feature = "mpi")]
pub fn run_child(args: &ChildArgs) -> Result<(), Failure> {
    child::run(args)
}

#[cfg(not(feature = "mpi"))]
pub fn run_child(_: &ChildArgs) -> Result<(), Failure> {
    needs_mpi()
}

fn needs_mpi() -> Result<(), Failure> {
    match cfg!(feature = "mpi") {
        true => Ok(()),
        false => Err(Failure::BadInput("this program was built without MPI: build it with `--features mpi`".into())),
    }
}

/// Sums of gradients beside MPI's own, in turn.
fn sums(args: &Args) -> Result<(), Failure> {
    say!("| processes | megabytes | ours, GB/s | MPI_Allreduce, GB/s | ratio |\n|---|---|---|---|---|")?;
    let megabytes: Vec<String> = args.megabytes.iter().map(f64::to_string).collect();
    for ranks in args.ranks.iter().filter(|ranks| **ranks > 1) {
        let found = launch(args, *ranks, &["--megabytes", &megabytes.join(",")])?;
        for line in found.as_array().into_iter().flatten() {
            let [ours, bare] = ["ours_gb_per_s", "bare_gb_per_s"].map(|key| line[key].as_f64().unwrap_or(f64::NAN));
            say!("| {ranks} | {} | {ours:.2} | {bare:.2} | {:.2} |", line["megabytes"], ours / bare)?;
        }
    }
    output::text("\n")?;
    Ok(())
}

/// Steps of some processes together, beside those that each takes by itself.
fn steps(args: &Args) -> Result<(), Failure> {
    say!("| processes | model | alone, s | together, s | efficiency |\n|---|---|---|---|---|")?;
    let mut measured = Vec::new();
    for ranks in &args.ranks {
        for size in &args.size {
            let (batch, steps, latency) = (args.batch.to_string(), args.steps.to_string(), args.latency.to_string());
            let size = name(*size);
            let options = ["--size", &size, "--batch", &batch, "--steps", &steps, "--latency", &latency];
            let line = launch(args, *ranks, &options)?;
            let [alone, together] = ["alone_s", "together_s"].map(|key| line[key].as_f64().unwrap_or(f64::NAN));
            say!("| {ranks} | {size} | {alone:.4} | {together:.4} | {:.0} % |", 100.0 * alone / together)?;
            measured.push(line);
        }
    }
    say!("\n{}", json!({"measured": measured}))
}

/// Starts the processes; the line of the first one.
fn launch(args: &Args, ranks: usize, options: &[&str]) -> Result<Value, Failure> {
    let program = this_program()?;
    let mut words = args.launcher.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("mpirun"));
    command.args(words).arg(ranks.to_string()).arg(program.get_program()).arg("ranks-child").args(options);
    // A core for each, and in containers they run as root.
    command.env("RAYON_NUM_THREADS", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| Failure::BadInput(format!("cannot start `{}`: {e}", args.launcher)))?;
    if !output.status.success() {
        return Err(Failure::Machine(format!("{ranks} processes of `{}` failed ({})", args.launcher, output.status)));
    }
    json_line(&String::from_utf8_lossy(&output.stdout))
}
