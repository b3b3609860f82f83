//! Table of probes.

use super::probe::{Outcome, Probe};
use std::fmt::Write;
use undertone_train::Amount;

/// Returns the probes sorted by batch, one line each.
pub fn table(probes: &[Probe]) -> String {
    let mut sorted: Vec<&Probe> = probes.iter().collect();
    sorted.sort_by_key(|probe| probe.batch);
    let mut text = format!("{HEAD}\n");
    for probe in sorted {
        let _ = writeln!(text, "{}", row(probe));
    }
    text
}

/// Header of the table.
pub const HEAD: &str = "batch  peak memory  samples/s";

/// Returns a line of the table.
pub fn row(probe: &Probe) -> String {
    let peak = probe.outcome.peak_bytes().map_or("-".to_owned(), |bytes| Amount(bytes).to_string());
    let rate = probe.outcome.samples_per_second().map_or("-".to_owned(), |rate| format!("{rate:.2}"));
    format!("{:>5}  {peak:>11}  {rate:>9}  {}", probe.batch, verdict(&probe.outcome))
}

fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Fits { .. } => "fits".into(),
        Outcome::OverBudget { .. } | Outcome::OutOfMemory { .. } => format!("does not fit: {}", reason(outcome)),
        Outcome::TooSlow { .. } | Outcome::Crashed { .. } => reason(outcome),
    }
}

/// Returns why a batch does not fit or could not be tried.
pub(super) fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Fits { .. } => String::new(),
        Outcome::OverBudget { peak_bytes } => format!("it held {} and was stopped", Amount(*peak_bytes)),
        Outcome::OutOfMemory { reason } => reason.clone(),
        Outcome::TooSlow { seconds } => format!("it was given up after {seconds:.0} s"),
        Outcome::Crashed { reason } => format!("it crashed: {reason}"),
    }
}
