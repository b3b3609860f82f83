//! `cargo xtask bench faults`: trains small runs that are killed, starved of disk and damaged at random moments, resumes
//! each until it ends, and compares what it leaves with a run that nothing happened to. Files of somebody's own lie around it
//! all the while, and must be what they were.

mod decoy;
mod end;
mod fault;
mod subject;
mod trial;

use clap::ValueEnum;
use end::End;
use fault::Fault;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use subject::{SUBJECTS, Trace};
use trial::{Ground, Trial};
use undertone_cli::{Failure, note, output};

#[derive(clap::Args)]
pub struct Args {
    /// Runs, each with faults of its own
    #[arg(long, default_value_t = 200)]
    runs: u64,
    /// The seed of the first run; the others' follow it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program that is tested; this one, if not given
    #[arg(long)]
    program: Option<PathBuf>,
    /// Runs at the same time; as many as there are processors, if not given
    #[arg(long)]
    jobs: Option<usize>,
    /// Say what happens to every run
    #[arg(long)]
    verbose: bool,
}

/// What became of all runs.
#[derive(Default)]
struct Tally {
    /// Fault → how often it hit a process that was alive, and how often the run then went on.
    faults: BTreeMap<Fault, (u64, u64)>,
    /// Seeds of runs that did not end in the same bits, and how they did.
    failed: Vec<(u64, String)>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let started = Instant::now();
    let machine = |error: std::io::Error| Failure::Machine(format!("the harness cannot run: {error}"));
    let ground = Ground::new(args.program.as_deref()).map_err(machine)?;
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let mut whole = Vec::new();
    for subject in &SUBJECTS {
        let begun = Instant::now();
        whole.push((Trial::undisturbed(&ground, subject).map_err(Failure::Machine)?, begun.elapsed()));
    }
    let (next, tally) = (Mutex::new(args.seed..args.seed.saturating_add(args.runs)), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let Some(seed) = next.lock().expect("no thread panics with it").next() else { return };
                    let (faults, end) = one(&ground, &whole, seed);
                    if args.verbose {
                        note!("seed {seed}: {faults:?}: {end:?}");
                    }
                    tally.lock().expect("no thread panics with it").add(seed, &faults, end);
                }
            });
        }
    });
    let tally = tally.into_inner().expect("no thread panics with it");
    output::text(tally.table(args.runs, started.elapsed(), &ground))?;
    if tally.failed.is_empty() { Ok(()) } else { Err(Failure::Machine("runs were lost or ended otherwise".into())) }
}

/// The run of a seed: what happened to it, each with whether it went on, and how it ended.
fn one(ground: &Ground, whole: &[(Trace, Duration)], seed: u64) -> (Vec<(Fault, bool)>, End) {
    // Every fifth is a run in phases, which takes several times as long.
    let index = usize::from(seed.is_multiple_of(5));
    let (expected, length) = &whole[index];
    match Trial::new(ground, &SUBJECTS[index], seed) {
        Ok(mut trial) => {
            let end = trial.run(expected, *length);
            (trial.faults, end)
        }
        Err(error) => (Vec::new(), End::Lost(error)),
    }
}

impl Tally {
    fn add(&mut self, seed: u64, faults: &[(Fault, bool)], end: End) {
        for (fault, went_on) in faults {
            let (hit, survived) = self.faults.entry(*fault).or_default();
            *hit += 1;
            *survived += u64::from(*went_on);
        }
        match end {
            End::Same => {}
            End::Different(how) => self.failed.push((seed, how)),
            End::Lost(said) => self.failed.push((seed, format!("lost: {said}"))),
        }
    }

    fn table(&self, runs: u64, took: Duration, ground: &Ground) -> String {
        let mut text = String::from("| fault | hit a process | the run went on |\n|---|---:|---:|\n");
        for fault in Fault::value_variants() {
            match self.faults.get(fault) {
                _ if !ground.allows(*fault) => text += &format!("| {fault} | not possible here | |\n"),
                found => {
                    let (hit, survived) = found.copied().unwrap_or_default();
                    text += &format!("| {fault} | {hit} | {survived} |\n");
                }
            }
        }
        let lost = self.failed.iter().filter(|(_, end)| end.starts_with("lost")).count();
        let other = self.failed.len() - lost;
        let hits: u64 = self.faults.values().map(|(hit, _)| hit).sum();
        text += &format!(
            "\n{runs} runs, {hits} faults, {:.0} s: {lost} lost, {other} ended in other bits than an undisturbed run\n",
            took.as_secs_f64()
        );
        for (seed, end) in &self.failed {
            text += &format!("seed {seed}: {end}\n");
        }
        text
    }
}
