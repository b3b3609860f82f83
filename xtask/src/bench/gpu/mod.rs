//! `cargo xtask bench gpu`: everything that is worth knowing of a card, in the minutes that there are, as a page of
//! `docs/benchmarks`.
//!
//! Each measurement is a process of its own, which may fail or take too long: then a sentence says so, and what was measured
//! before it is kept. The page is written anew after each.

mod card;
mod child;
mod clock;
mod guides;
mod parts;
mod report;
mod steps;

pub use parts::{ChildArgs, run_child};

use super::step::Size;
use crate::failure::Failure;
use card::Card;
use clap::builder::RangedU64ValueParser;
use clock::Clock;
use report::Report;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use undertone::ops::DeviceSpec;

#[derive(clap::Args)]
pub struct Args {
    /// cuda:0, wgpu:0, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// What all of it may take; what does not fit is left out and said
    #[arg(long, default_value = "9", value_parser = minutes)]
    minutes: f64,
    /// Whispers whose steps are timed
    #[arg(long, value_delimiter = ',', default_value = "small,tiny,medium,large-v3")]
    sizes: Vec<Size>,
    /// Clips of a step, of 30 s each; by the size if not given
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: Option<usize>,
    /// Steps that count, after two that warm up
    #[arg(long, default_value = "10", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    steps: usize,
    /// What the runs of the guides train: the models that the guides are about, or whisper-nano and a small encoder, for drivers
    /// that compute on the CPU
    #[arg(long, default_value = "full")]
    guides: guides::Scale,
    /// Optimizer steps of each of those runs
    #[arg(long, default_value = "60", value_parser = RangedU64ValueParser::<u64>::new().range(6..))]
    guide_steps: u64,
    /// A Python with torch and transformers, for the same steps in PyTorch, eager and compiled
    #[arg(long, value_name = "PATH", requires = "peer")]
    peer_python: Option<PathBuf>,
    /// The peer's script: xtask/peers/step.py
    #[arg(long, value_name = "PATH", requires = "peer_python")]
    peer: Option<PathBuf>,
    /// What tuning chose on this card before, and where it is kept; it may be carried to another machine with such a card
    #[arg(long, value_name = "DIR", default_value = "target/gpu-caches")]
    caches: PathBuf,
    /// Where the page is written
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    output: PathBuf,
}

/// What everything takes on the fastest cards, with kernels that are tuned.
const ENOUGH: f64 = 9.0;

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is a number of minutes".to_owned())?;
    if minutes.is_finite() && minutes > 0.0 { Ok(minutes) } else { Err("it is a number of minutes above 0".to_owned()) }
}

/// What is measured, and with what.
struct Bench<'a> {
    args: &'a Args,
    device: DeviceSpec,
    card: Card,
    clock: Clock,
    report: Report,
    /// Configurations, models and runs of the measurements.
    work: TempDir,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let clock = Clock::of_minutes(args.minutes);
    let (device, card) = card::find(&args.device)?;
    let work = tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot make a temporary directory: {e}")))?;
    let said_of_caches = card.keep_caches_in(&args.caches, work.path())?;
    let mut report = Report::new(&args.output, &card, device)?;
    report.leave_out(said_of_caches);
    if args.minutes < ENOUGH {
        let minutes = args.minutes;
        report.leave_out(Some(format!(
            "all of it takes {ENOUGH} minutes and {minutes} were given: what comes last is left out"
        )));
    }
    child::stop_on_interrupt()?;
    let mut bench = Bench { args, device, card, clock, report, work };
    // What says most comes first.
    bench.parity()?;
    let (first, others) = args.sizes.split_at(args.sizes.len().min(1));
    bench.steps(first)?;
    bench.kernels()?;
    bench.quickstart()?;
    bench.guides()?;
    bench.steps(others)?;
    bench.compiled()?;
    bench.finish()
}

impl Bench<'_> {
    /// Runs this very program with a command of its own for at most `most`; what it printed. Where it fails, or there is no
    /// time for it, that is noted as `what`.
    fn our(
        &mut self,
        what: &str,
        arguments: &[String],
        [least, most]: [Duration; 2],
    ) -> Result<Option<String>, Failure> {
        let program =
            std::env::current_exe().map_err(|e| Failure::Machine(format!("cannot find this very program: {e}")))?;
        let mut command = Command::new(program);
        command.args(arguments);
        self.child(what, command, [least, most])
    }

    /// The same with any program.
    fn child(
        &mut self,
        what: &str,
        mut command: Command,
        [least, most]: [Duration; 2],
    ) -> Result<Option<String>, Failure> {
        if child::is_interrupted() {
            return Ok(None);
        }
        let left = self.clock.left();
        if left < least {
            let (left, least) = (left.as_secs(), least.as_secs());
            self.report.leave_out(Some(format!("{what}: {left} s were left, and it takes {least} s or more")));
            self.report.write()?;
            return Ok(None);
        }
        eprintln!("── {what} ({} s left)", left.as_secs());
        // Where tuning keeps what it chose is said by a file there.
        command.current_dir(self.work.path());
        match child::output(&mut command, most.min(left)) {
            Ok(text) => Ok(Some(text)),
            Err(reason) => {
                self.report.leave_out(Some(format!("{what}: {reason}")));
                self.report.write()?;
                Ok(None)
            }
        }
    }

    /// The last line of a child's output, as JSON.
    fn line(text: &str) -> Option<Value> {
        text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }

    fn finish(mut self) -> Result<(), Failure> {
        if !child::is_interrupted() {
            self.report.finish(self.clock.elapsed());
        }
        self.report.write()?;
        println!("{}", self.report.path().display());
        match self.report.is_empty() {
            _ if child::is_interrupted() => Err(Failure::Interrupted),
            true => Err(Failure::Machine("nothing could be measured: the page says why".into())),
            false => Ok(()),
        }
    }
}

/// Seconds.
const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
