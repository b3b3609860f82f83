//! The search: one probe after another, and the choice of a batch.

use super::error::TuneError;
use super::plan::{Goal, NOISE, Plan, Search, choose};
use super::probe::{Attempt, Outcome, Probe};
use super::table::reason;
use undertone_train::LrScaling;

/// Options of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TuneOptions {
    /// Objective by which the batch is chosen.
    pub goal: Goal,
    /// Whether an optimizer step may have more samples than the configuration has, if they fit.
    pub grow: bool,
    /// Scaling of the learning rate in that case.
    pub scaling: LrScaling,
    /// Margin as a share of the largest batch, where allocations fail at the next larger one: allocators fragment in
    /// hours of training as they do not in three steps.
    pub margin: f64,
}

/// Configuration that the search starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneRequest {
    /// Samples per optimizer step. The number stays the same unless the search may grow it.
    pub effective: usize,
    /// Upper limit of the batch in a configuration.
    pub most: usize,
    /// Most batches of an optimizer step that are computed side by side, with the activations of each in memory: on a CPU as many as it has
    /// threads, elsewhere 1.
    pub together: usize,
    /// Whether activation checkpointing is on already; if so, the search does not try it in addition.
    pub checkpointed: bool,
}

/// Result of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedBatch {
    /// Every probe, in the order in which they ran.
    pub probes: Vec<Probe>,
    /// The largest batch that fitted.
    pub largest: usize,
    /// Split of an optimizer step into batches.
    pub plan: Plan,
    /// Whether the batch fits only with activation checkpointing, which the configuration did not have.
    pub checkpointing: bool,
    /// Reasons for this batch, one sentence each.
    pub notes: Vec<String>,
}

/// Upper limit of the samples per optimizer step if the search may grow them.
const GROWN: usize = 4096;

/// Searches for the largest batch that fits, and chooses one. `probe` tries a batch; `found` is called with each
/// result.
///
/// # Errors
/// If no batch fits, or `probe` fails.
pub fn search(
    request: &TuneRequest,
    options: &TuneOptions,
    mut probe: impl FnMut(Attempt) -> Result<Outcome, TuneError>,
    mut found: impl FnMut(&Probe),
) -> Result<TunedBatch, TuneError> {
    let effective = request.effective;
    let cap = if options.grow { effective.max(GROWN) } else { effective }.min(request.most);
    let mut searched = |checkpointing| -> Result<(Search, Vec<Probe>), TuneError> {
        let (mut search, mut probes) = (Search::new(cap), Vec::new());
        while let Some(batch) = search.next() {
            // With two batches per step, the accumulated gradients are in memory together with the activations of the
            // second batch. More batches per step than those side by side change nothing.
            let most = request.together.max(2);
            let attempt = Attempt { batch, accumulation: effective.div_ceil(batch).min(most), checkpointing };
            let outcome = probe(attempt)?;
            search.record(batch, outcome.fits());
            probes.push(Probe { batch, accumulation: attempt.accumulation, outcome });
            probes.last().into_iter().for_each(&mut found);
        }
        Ok((search, probes))
    };
    let (mut search, mut probes) = searched(false)?;
    let memory = |probes: &[Probe]| probes.last().is_some_and(|probe| probe.outcome.wants_memory());
    let checkpointing = search.largest().is_none() && memory(&probes) && !request.checkpointed;
    if checkpointing {
        (search, probes) = searched(true)?;
    }
    let Some(largest) = search.largest() else { return Err(nothing(&probes)) };
    let limit = if largest == search.cap() { largest } else { (largest as f64 * (1.0 - options.margin)) as usize };
    let chosen = choose(options.goal, &probes, limit.max(1));
    let plan = match chosen > effective {
        true => Plan { batch: chosen, accumulation: 1 },
        false => Plan::of(effective, chosen),
    };
    let mut tuned = TunedBatch { probes, largest, plan, checkpointing, notes: Vec::new() };
    if checkpointing {
        tuned.notes.push("not one sample fits unless blocks run again in the backward pass".into());
    }
    tuned.explain(effective, options, chosen, limit.max(1));
    Ok(tuned)
}

fn nothing(probes: &[Probe]) -> TuneError {
    match probes.last().map(|probe| &probe.outcome) {
        Some(outcome @ (Outcome::Crashed { .. } | Outcome::TooSlow { .. })) => TuneError::Broken(reason(outcome)),
        Some(outcome) => TuneError::NothingFits(reason(outcome)),
        None => TuneError::NothingFits("there was no probe".into()),
    }
}

impl TunedBatch {
    /// Adds the reasons for this batch to the notes. Up to `limit`, batches leave the margin.
    fn explain(&mut self, effective: usize, options: &TuneOptions, chosen: usize, limit: usize) {
        let (largest, plan) = (self.largest, self.plan);
        self.notes.push(if largest == effective && !options.grow {
            format!("all {effective} samples of an optimizer step fit at once; --grow looks for more")
        } else {
            format!("the largest batch that fits is {largest}")
        });
        let rate = |batch| self.probes.iter().find(|p| p.batch == batch)?.outcome.samples_per_second();
        if limit < largest {
            self.notes.push(format!("batches up to {limit} leave {:.0} % of that as a margin", 100.0 * options.margin));
        }
        let allowed = self.probes.iter().filter(|p| p.batch <= limit);
        let fastest = allowed.filter_map(|p| p.outcome.samples_per_second()).fold(0.0, f64::max);
        if let Some(rate) = rate(chosen).filter(|_| options.goal == Goal::Throughput && chosen < limit) {
            self.notes.push(format!(
                "batch {chosen} trains {rate:.2} samples/s, the fastest {fastest:.2}: larger ones are not {:.0} % faster (--objective largest takes them all the same)",
                100.0 * NOISE
            ));
        }
        if plan.batch != chosen {
            self.notes
                .push(format!("{} is the batch up to {chosen} that an optimizer step splits into best", plan.batch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes of a search in which batches up to 26 fit, and 24 is the fastest.
    fn notes(goal: Goal) -> (usize, String) {
        let request = TuneRequest { effective: 64, most: 64, together: 1, checkpointed: false };
        let options = TuneOptions { goal, margin: 0.08, ..Default::default() };
        let probe = |attempt: Attempt| {
            Ok(match attempt.batch {
                batch @ ..=26 => {
                    Outcome::Fits { peak_bytes: None, samples_per_second: if batch > 20 { 110.0 } else { 100.0 } }
                }
                _ => Outcome::OutOfMemory { reason: "no memory".into() },
            })
        };
        let tuned = search(&request, &options, probe, |_| ()).expect("a batch");
        assert_eq!(tuned.largest, 26);
        (tuned.plan.batch, tuned.notes.join("\n"))
    }

    #[test]
    fn as_many_batches_are_tried_as_are_computed_side_by_side() {
        let request = TuneRequest { effective: 64, most: 64, together: 8, checkpointed: false };
        let mut tried = Vec::new();
        let probe = |attempt: Attempt| {
            tried.push((attempt.batch, attempt.accumulation));
            // Each of those side by side takes memory.
            Ok(match attempt.batch * attempt.accumulation.min(8) {
                ..=32 => Outcome::Fits { peak_bytes: None, samples_per_second: 100.0 },
                _ => Outcome::OutOfMemory { reason: "no memory".into() },
            })
        };
        let tuned = search(&request, &TuneOptions::default(), probe, |_| ()).expect("a batch");
        assert_eq!(tuned.largest, 4);
        assert!(tried.contains(&(8, 8)) && tried.contains(&(4, 8)), "{tried:?}");
    }

    #[test]
    fn a_margin_is_explained_and_what_exceeds_it_is_not_compared() {
        for goal in [Goal::Throughput, Goal::Largest] {
            let (batch, notes) = notes(goal);
            assert!(batch <= 23 && notes.contains("batches up to 23 leave 8 % of that as a margin"), "{notes}");
            // A batch of 24 would be faster, and does not leave the margin.
            assert!(!notes.contains("110"), "{notes}");
        }
    }

    #[test]
    fn where_nothing_fails_there_is_no_margin() {
        let request = TuneRequest { effective: 16, most: 64, together: 1, checkpointed: false };
        let options = TuneOptions { goal: Goal::Largest, margin: 0.1, ..Default::default() };
        let probe = |_| Ok(Outcome::Fits { peak_bytes: None, samples_per_second: 100.0 });
        assert_eq!(search(&request, &options, probe, |_| ()).expect("a batch").plan.batch, 16);
    }
}
