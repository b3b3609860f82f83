//! `cargo xtask bench hostile`: good inputs, each changed somewhere, are given to everything that reads what users give us.
//! Each is accepted or refused in words; nothing else may happen.
//!
//! Cases run in a process of its own, one after another, with a limit on its memory, because a panic is not the worst that
//! can happen. When it dies or hangs, the case it was at is to blame, and another process goes on behind that.

mod args;
mod case;
mod child;
mod generate;
mod hub;
mod kind;
mod mutate;
mod prepare;
mod repair;
mod seeds;
mod watch;

pub use args::Args;
pub use child::{ChildArgs, run as run_child};

use super::names::name;
use clap::ValueEnum;
use kind::Kind;
use prepare::Seeds;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use undertone::phases::Progress;
use undertone_cli::{Bar, Failure, note, say};
use watch::{Ending, Watch};

/// What became of the cases of a kind.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<Ending, u64>,
    /// The longest that a case took, and its number.
    slowest: (Duration, u64),
    /// Bytes beyond what a process had before its first case.
    most: u64,
}

impl Tally {
    fn cases(&self) -> u64 {
        self.counts.values().sum()
    }

    fn failures(&self) -> u64 {
        self.counts.iter().filter(|(ending, _)| ending.is_failure()).map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: &Self) {
        for (ending, more) in &other.counts {
            *self.counts.entry(*ending).or_default() += more;
        }
        self.slowest = self.slowest.max(other.slowest);
        self.most = self.most.max(other.most);
    }

    /// A row of the table; that of a kind names its slowest case.
    fn row(&self, kind: Option<&str>) -> String {
        let count = |ending: &Ending| format!(" {} |", self.counts.get(ending).unwrap_or(&0));
        let counts: String = Ending::value_variants().iter().map(count).collect();
        let (cases, most, (slowest, number)) = (self.cases(), self.most >> 20, self.slowest);
        let number = kind.map_or(String::new(), |_| format!(" (case {number})"));
        format!("| {} | {cases} |{counts} {:.2} s{number} | {most} MiB |", kind.unwrap_or("all"), slowest.as_secs_f64())
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot write temporary files: {e}")))?;
    let mut total = Tally::default();
    let endings = Ending::value_variants();
    let head: String = endings.iter().map(|ending| format!(" {ending} |")).collect();
    say!("| kind | cases |{head} slowest | most memory |\n|---|---:|{}", "---:|".repeat(endings.len() + 2))?;
    for (kind, numbers) in shares(args) {
        let tally = all_of(kind, numbers, args, scratch.path())?;
        say!("{}", tally.row(Some(&name(kind))))?;
        total.add(&tally);
    }
    say!("{}", total.row(None))?;
    match total.failures() {
        0 => Ok(()),
        failures => Err(Failure::Machine(format!("{failures} of {} cases failed", total.cases()))),
    }
}

/// The numbers of each kind's cases.
fn shares(args: &Args) -> Vec<(Kind, Range<u64>)> {
    if let Some(kind) = args.kind {
        return vec![(kind, args.only.map_or(0..args.cases, |number| number..number + 1))];
    }
    let all: u64 = Kind::SHARES.iter().map(|(_, share)| share).sum();
    Kind::SHARES.iter().map(|(kind, share)| (*kind, 0..args.cases * share / all)).collect()
}

/// Runs the cases of a kind, each process as far as it gets.
fn all_of(kind: Kind, numbers: Range<u64>, args: &Args, scratch: &Path) -> Result<Tally, Failure> {
    let name = name(kind);
    let seeds = scratch.join(&name);
    seeds::write(kind, &seeds)?;
    let mut tally = Tally::default();
    let bar = Bar::default();
    bar.begin(&name, (numbers.end - numbers.start) as usize);
    let mut next = numbers.start;
    while next < numbers.end {
        let mut watch = Watch::start(args, &name, &seeds, next..numbers.end, scratch)?;
        while let Some(case) = watch.case()? {
            *tally.counts.entry(case.ending).or_default() += 1;
            tally.slowest = tally.slowest.max((case.time, case.number));
            tally.most = tally.most.max(case.memory);
            if case.ending.is_failure() {
                let again = format!("bench hostile --kind {name} --seed {} --only {}", args.seed, case.number);
                note!("{name} {}: {}: {} (cargo xtask {again})", case.number, case.ending, case.said);
            }
            if let Some(keep) = args.keep.as_ref().filter(|_| case.ending.is_failure() || args.only.is_some()) {
                let dir = keep.join(format!("{name}-{}", case.number));
                Seeds::open(kind, &seeds)
                    .and_then(|seeds| seeds.case(args.seed, case.number, &dir))
                    .map_err(|e| Failure::Machine(format!("cannot keep a case: {e}")))?;
            }
            next = case.number + 1;
            bar.step();
        }
    }
    bar.end();
    Ok(tally)
}
