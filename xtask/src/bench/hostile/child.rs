//! The process that runs cases.

use super::case::Case;
use super::kind::Kind;
use super::prepare::Seeds;
use super::watch::Ending;
use serde_json::{Value, json};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use undertone::train::{peak_memory_bytes, says_out_of_memory};
use undertone_cli::{Failure, allocator};

#[derive(clap::Args)]
pub struct ChildArgs {
    #[arg(long)]
    kind: Kind,
    /// The good inputs
    #[arg(long)]
    seeds: PathBuf,
    /// Where the case lies that is being run
    #[arg(long)]
    scratch: PathBuf,
    #[arg(long)]
    seed: u64,
    /// The first case
    #[arg(long)]
    from: u64,
    /// The case after the last
    #[arg(long)]
    to: u64,
    /// Bytes beyond what the process has before its first case
    #[arg(long)]
    memory: u64,
}

/// A process leaves its cases to another one after so many: what libraries keep is not held against later cases.
const CASES: u64 = 500;

/// What the last panic of any thread said.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Runs cases, with a line of JSON on standard output before and after each.
pub fn run(args: &ChildArgs) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Machine(format!("cannot prepare a case: {e}"));
    std::panic::set_hook(Box::new(|panic| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string().replace('\n', " "));
    }));
    let seeds = Seeds::open(args.kind, &args.seeds).map_err(failed)?;
    // What is done once is done before the first case.
    if args.kind != Kind::Trial {
        seeds.whole(&args.scratch).try_for_each(|case| good(args.kind, &case.map_err(failed)?))?;
    }
    let before = peak_memory_bytes();
    allocator::limit(args.memory).map_err(|e| Failure::Machine(format!("cannot limit memory: {e}")))?;
    for number in (args.from..args.to).take(CASES as usize) {
        let case = seeds.case(args.seed, number, &args.scratch).map_err(failed)?;
        say(&json!({ "begins": number }));
        let (ending, said) = outcome(args.kind, &case);
        let memory = peak_memory_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
        say(&json!({ "ending": ending.to_string(), "said": said, "memory": memory }));
    }
    Ok(())
}

/// A good input must be accepted: nothing is behind a seed that is refused as it is.
fn good(kind: Kind, case: &Case) -> Result<(), Failure> {
    let read = catch_unwind(AssertUnwindSafe(|| kind.read(case))).unwrap_or_else(|_| Err(panic_text()));
    let file = case.file.strip_prefix(&case.dir).unwrap_or(&case.file).display();
    read.map_err(|e| Failure::Machine(format!("a good input is refused, that of `{file}`: {e}")))
}

fn outcome(kind: Kind, case: &Case) -> (Ending, String) {
    let read = catch_unwind(AssertUnwindSafe(|| kind.read(case)));
    let panicked = panic_text();
    match read {
        Err(_) if says_out_of_memory(&panicked) => (Ending::TooMuchMemory, panicked),
        Err(_) => (Ending::Panic, panicked),
        Ok(_) if !panicked.is_empty() => (Ending::Caught, panicked),
        Ok(Ok(())) => (Ending::Accepted, String::new()),
        Ok(Err(refusal)) => (Ending::Refused, refusal),
    }
}

/// What the last panic said, once; nothing if there was none.
fn panic_text() -> String {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
}

fn say(line: &Value) {
    let mut stdout = std::io::stdout().lock();
    // If nobody reads it any more, nobody misses it.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
