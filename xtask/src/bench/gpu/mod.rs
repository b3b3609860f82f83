//! `cargo xtask bench gpu`: everything that is worth knowing of a card, in the minutes that there are, as a page of
//! `docs/benchmarks`.
//!
//! Each measurement is a process of its own, which may fail or take too long: then a sentence says so, and what was measured
//! before it is kept. The page is written anew after each.

mod args;
mod bench;
mod card;
mod child;
mod clock;
mod guides;
mod parts;
mod report;
mod steps;

pub use args::Args;
pub use parts::{ChildArgs, run_child};

use crate::process::work_folder;
use bench::Bench;
use clock::Clock;
use report::Report;
use undertone_cli::Failure;

/// What everything takes on the fastest cards, with kernels that are tuned.
const ENOUGH: f64 = 9.0;

pub fn run(args: &Args) -> Result<(), Failure> {
    let clock = Clock::of_minutes(args.minutes);
    if let Some(peer) = args.peer.as_ref().filter(|peer| !peer.is_file()) {
        return Err(Failure::BadInput(format!("there is no script `{}`: give one as --peer", peer.display())));
    }
    let (device, card) = card::find(&args.device)?;
    let work = work_folder()?;
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
    bench.compiled(first)?;
    bench.steps(others)?;
    bench.compiled(others)?;
    bench.finish()
}
