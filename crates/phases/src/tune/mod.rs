//! The largest batch that fits: probes in processes of their own, and the configuration that comes of them.
//!
//! [`tune`] asks for one probe after another and decides; [`probe_in_child`] starts a process for one and reads what it
//! found, whatever became of it; [`run_probe`] is what that process does.

mod child;
mod probe;

pub use child::probe_in_child;
pub(crate) use probe::{Ahead, Timed, probing, steps};
pub use probe::{Attempt, Limits, run_probe};

use crate::Experiment;
use crate::dynamo::{self, Stage};
use std::fmt::Write;
use undertone_data::limits::MOST_BATCH;
use undertone_train::Amount;
use undertone_train::tune::{Goal, NOISE, Outcome, Plan, Probe, Search, choose};
use undertone_train::{GradientCheckpointing, LrScaling};

/// What is wanted of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TuneOptions {
    /// What the batch is chosen for.
    pub goal: Goal,
    /// Whether an optimizer step may have more samples than the configuration says, if they fit.
    pub grow: bool,
    /// What becomes of the learning rate if it has.
    pub scaling: LrScaling,
    /// The share of the largest batch that is given up where allocations fail at the next: allocators fragment in hours of
    /// training as they do not in three steps.
    pub margin: f64,
}

/// What the search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Every probe, in the order in which they were made.
    pub probes: Vec<Probe>,
    /// The largest batch that fitted.
    pub largest: usize,
    /// How an optimizer step is split.
    pub plan: Plan,
    /// The configuration with it.
    pub experiment: Experiment,
    /// What was changed and why, a sentence each.
    pub notes: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A probe found the configuration unusable.
    #[error("{0}")]
    Refused(String),
    /// A probe's process cannot be started or read.
    #[error("a probe's process cannot be run: {0}")]
    Process(#[from] std::io::Error),
    /// Not even one sample fits.
    #[error(
        "a batch of one sample does not fit: {0}; train fewer parameters (`model.trainable`) or a smaller model, shorten the samples, or give more memory"
    )]
    NothingFits(String),
    /// One sample could not be tried.
    #[error("a batch of one sample could not be tried: {0}")]
    Broken(String),
}

/// Nobody wants more samples in an optimizer step than this without having said so.
const GROWN: usize = 4096;

/// What is trained in probes of this configuration.
///
/// Of a run with tasks that is phase 3, where all adapters, heads and the router are trained at once: `data.batch_size`
/// holds for every phase, and no other keeps more. A run with a single task has only phase 1.
pub fn subject(experiment: &Experiment) -> String {
    let (stage, model) = (dynamo::probed_stage(experiment), &experiment.model);
    match stage {
        Stage::Whole => stage.title(experiment),
        stage => format!("{} on {model}", stage.title(experiment)),
    }
}

/// Searches for the largest batch that fits, and chooses one. `probe` tries a batch; `found` hears of each result.
///
/// # Errors
/// When nothing fits, or `probe` cannot be had.
pub fn tune(
    experiment: &Experiment,
    options: &TuneOptions,
    mut probe: impl FnMut(Attempt) -> Result<Outcome, TuneError>,
    mut found: impl FnMut(&Probe),
) -> Result<Tuned, TuneError> {
    let effective = experiment.data.batch_size * experiment.train.accumulation;
    let cap = if options.grow { effective.max(GROWN) } else { effective }.min(MOST_BATCH);
    let mut searched = |checkpointing| -> Result<(Search, Vec<Probe>), TuneError> {
        let (mut search, mut probes) = (Search::new(cap), Vec::new());
        while let Some(batch) = search.next() {
            // With two batches a step the sum of gradients lies beside the next batch's activations; more change nothing.
            let attempt = Attempt { batch, accumulation: effective.div_ceil(batch).min(2), checkpointing };
            let outcome = probe(attempt)?;
            search.record(batch, outcome.fits());
            probes.push(Probe { batch, accumulation: attempt.accumulation, outcome });
            probes.last().into_iter().for_each(&mut found);
        }
        Ok((search, probes))
    };
    let mut experiment = experiment.clone();
    let before = experiment.clone();
    let (mut search, mut probes) = searched(false)?;
    let memory = |probes: &[Probe]| probes.last().is_some_and(|probe| probe.outcome.wants_memory());
    if search.largest().is_none() && memory(&probes) && experiment.train.gradient_checkpointing.every().is_none() {
        experiment.train.gradient_checkpointing = GradientCheckpointing::Flag(true);
        (search, probes) = searched(true)?;
    }
    let Some(largest) = search.largest() else { return Err(nothing(&probes)) };
    let limit = if largest == search.cap() { largest } else { (largest as f64 * (1.0 - options.margin)) as usize };
    let chosen = choose(options.goal, &probes, limit.max(1));
    let plan = match chosen > effective {
        true => Plan { batch: chosen, accumulation: 1 },
        false => Plan::of(effective, chosen),
    };
    let mut tuned = Tuned { probes, largest, plan, experiment, notes: Vec::new() };
    if tuned.experiment.train.gradient_checkpointing != before.train.gradient_checkpointing {
        tuned.notes.push("not one sample fits unless blocks run again in the backward pass".into());
    }
    tuned.explain(&before, options, chosen);
    tuned.apply(&before, options.scaling);
    Ok(tuned)
}

fn checkpointing(setting: GradientCheckpointing) -> String {
    setting.every().map_or("false".into(), |every| format!("every {every}"))
}

fn nothing(probes: &[Probe]) -> TuneError {
    match probes.last().map(|probe| &probe.outcome) {
        Some(outcome @ (Outcome::Crashed { .. } | Outcome::TooSlow { .. })) => TuneError::Broken(reason(outcome)),
        Some(outcome) => TuneError::NothingFits(reason(outcome)),
        None => TuneError::NothingFits("there was no probe".into()),
    }
}

impl Tuned {
    /// Why this batch.
    fn explain(&mut self, before: &Experiment, options: &TuneOptions, chosen: usize) {
        let effective = before.data.batch_size * before.train.accumulation;
        let (largest, plan) = (self.largest, self.plan);
        self.notes.push(if largest == effective && !options.grow {
            format!("all {effective} samples of an optimizer step fit at once; --grow looks for more")
        } else {
            format!("the largest batch that fits is {largest}")
        });
        let rate = |batch| self.probes.iter().find(|p| p.batch == batch)?.outcome.samples_per_second();
        let fastest = self.probes.iter().filter_map(|p| p.outcome.samples_per_second()).fold(0.0, f64::max);
        if options.goal == Goal::Throughput && chosen < largest {
            self.notes.push(match rate(chosen) {
                Some(rate) => format!(
                    "batch {chosen} trains {rate:.2} samples/s, the fastest {fastest:.2}: larger ones are not {:.0} % faster (--objective largest takes them all the same)",
                    100.0 * NOISE
                ),
                None => format!("batch {chosen} leaves {:.0} % of that as a margin", 100.0 * options.margin),
            });
        }
        if plan.batch != chosen {
            self.notes
                .push(format!("{} is the batch up to {chosen} that an optimizer step splits into best", plan.batch));
        }
    }

    /// Puts the split into the configuration, and says what that changes.
    fn apply(&mut self, before: &Experiment, scaling: LrScaling) {
        let (was, now) = (before.data.batch_size * before.train.accumulation, self.plan.effective());
        self.experiment.data.batch_size = self.plan.batch;
        self.experiment.train.accumulation = self.plan.accumulation;
        if was == now {
            self.notes.push(format!("an optimizer step keeps its {was} samples, so the learning rate stays"));
        } else {
            let rate = before.train.optimizer.lr;
            let own = before.train.optimizer.lr_scaling;
            let rate = if own == LrScaling::None {
                let rescaled = rate * scaling.factor(now as f64, was);
                self.experiment.train.optimizer.lr = rescaled;
                let rule = format!("{scaling:?}").to_lowercase();
                format!("learning rate {rate} → {rescaled} by the rule `{rule}`")
            } else {
                format!("`train.optimizer.lr_scaling` makes the learning rate from {rate}")
            };
            self.notes.push(format!(
                "an optimizer step has {now} samples instead of {was}: {rate}, and as many steps see other data"
            ));
        }
        self.notes.extend(overrides(before, was != now));
    }

    /// The keys that changed: name, before, after.
    pub fn changes(&self, before: &Experiment) -> Vec<(&'static str, String, String)> {
        let after = &self.experiment;
        let keys = [
            ("data.batch_size", before.data.batch_size.to_string(), after.data.batch_size.to_string()),
            ("train.accumulation", before.train.accumulation.to_string(), after.train.accumulation.to_string()),
            (
                "train.gradient_checkpointing",
                checkpointing(before.train.gradient_checkpointing),
                checkpointing(after.train.gradient_checkpointing),
            ),
            ("train.optimizer.lr", before.train.optimizer.lr.to_string(), after.train.optimizer.lr.to_string()),
        ];
        keys.into_iter().filter(|(_, before, after)| before != after).collect()
    }

    /// A whole configuration, with what was found as its head.
    pub fn to_yaml(&self) -> String {
        let mut text = format!("{SIGNATURE}\n#\n");
        for line in table(&self.probes).lines().chain(self.notes.iter().map(String::as_str)) {
            let _ = writeln!(text, "# {line}");
        }
        text + &self.experiment.to_yaml()
    }
}

/// The first line of what [`Tuned::to_yaml`] gives: such a file may be replaced.
pub const SIGNATURE: &str = "# Written by `cargo xtask tune`.";

/// Stages whose own keys say otherwise.
fn overrides(experiment: &Experiment, rate_changed: bool) -> Vec<String> {
    let phases = &experiment.phases;
    let sections = [
        ("phases.1.train", &phases.adapters.train),
        ("phases.2.train", &phases.router.train),
        ("phases.3.train", &phases.joint.train),
        ("phases.baselines.head", &phases.baselines.head),
        ("phases.baselines.shared", &phases.baselines.shared),
        ("phases.baselines.full", &phases.baselines.full),
    ];
    let named = sections.map(|(name, keys)| (name.to_owned(), keys)).into_iter();
    let tasks = experiment.tasks.iter().map(|task| (format!("tasks.{}.train", task.name), &task.train));
    let mut notes = Vec::new();
    for (name, keys) in named.chain(tasks) {
        if keys.contains_key("accumulation") {
            notes.push(format!("`{name}.accumulation` is left as it is: change it by the same factor"));
        }
        if rate_changed && keys.get("optimizer").is_some_and(|optimizer| optimizer.get("lr").is_some()) {
            notes.push(format!("`{name}.optimizer.lr` is left as it is"));
        }
    }
    notes
}

/// The probes by size, a line each.
pub fn table(probes: &[Probe]) -> String {
    let mut sorted: Vec<&Probe> = probes.iter().collect();
    sorted.sort_by_key(|probe| probe.batch);
    let mut text = format!("{HEAD}\n");
    for probe in sorted {
        let _ = writeln!(text, "{}", row(probe));
    }
    text
}

/// The names of a table's columns.
pub const HEAD: &str = "batch  peak memory  samples/s";

/// A line of the table.
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

fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Fits { .. } => String::new(),
        Outcome::OverBudget { peak_bytes } => format!("it held {} and was stopped", Amount(*peak_bytes)),
        Outcome::OutOfMemory { reason } => reason.clone(),
        Outcome::TooSlow { seconds } => format!("it was given up after {seconds:.0} s"),
        Outcome::Crashed { reason } => format!("it crashed: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(batch_size: usize, accumulation: usize) -> Experiment {
        let mut experiment = Experiment::default();
        (experiment.data.batch_size, experiment.train.accumulation) = (batch_size, accumulation);
        experiment
    }

    /// 100 bytes for the model and 10 for each sample; faster up to four samples.
    fn device(bytes: u64) -> impl FnMut(Attempt) -> Result<Outcome, TuneError> {
        move |attempt| {
            let peak = 100 + 10 * attempt.batch as u64;
            Ok(match peak <= bytes {
                true => Outcome::Fits { peak_bytes: Some(peak), samples_per_second: attempt.batch.min(4) as f64 },
                false => Outcome::OverBudget { peak_bytes: peak },
            })
        }
    }

    fn tuned(experiment: &Experiment, options: TuneOptions, bytes: u64) -> Tuned {
        tune(experiment, &options, device(bytes), |_| {}).expect("something fits")
    }

    const LARGEST: TuneOptions =
        TuneOptions { goal: Goal::Largest, grow: false, scaling: LrScaling::None, margin: 0.0 };

    #[test]
    fn accumulation_keeps_the_effective_batch() {
        let before = experiment(32, 1);
        let found = tuned(&before, LARGEST, 100 + 10 * 11);
        assert_eq!((found.largest, found.plan), (11, Plan { batch: 8, accumulation: 4 }));
        assert_eq!((found.experiment.data.batch_size, found.experiment.train.accumulation), (8, 4));
        assert_eq!(found.experiment.train.optimizer, before.train.optimizer);
        let keys: Vec<&str> = found.changes(&before).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(keys, ["data.batch_size", "train.accumulation"]);
        assert!(found.notes.iter().any(|note| note.contains("keeps its 32 samples")), "{:?}", found.notes);
    }

    #[test]
    fn the_fastest_is_taken_unless_the_largest_is_wanted() {
        let fast = tuned(&experiment(16, 1), TuneOptions::default(), 1000);
        assert_eq!((fast.largest, fast.plan), (16, Plan { batch: 4, accumulation: 4 }));
        assert!(fast.notes.iter().any(|note| note.contains("--objective largest")), "{:?}", fast.notes);
        assert_eq!(tuned(&experiment(16, 1), LARGEST, 1000).plan, Plan { batch: 16, accumulation: 1 });
    }

    #[test]
    fn growing_scales_the_rate_by_the_rule() {
        let options = TuneOptions { grow: true, scaling: LrScaling::Sqrt, ..LARGEST };
        let found = tuned(&experiment(2, 2), options, 100 + 10 * 16);
        assert_eq!(found.plan, Plan { batch: 16, accumulation: 1 });
        assert!((found.experiment.train.optimizer.lr - 2.0 * 3e-4).abs() < 1e-12);
        let kept = tuned(&experiment(2, 2), LARGEST, 100 + 10 * 16);
        assert_eq!(kept.plan, Plan { batch: 4, accumulation: 1 }, "the effective batch is the cap");
    }

    #[test]
    fn a_margin_is_kept_below_failed_allocations_only() {
        let options = TuneOptions { margin: 0.1, ..LARGEST };
        assert_eq!(tuned(&experiment(64, 1), options, 100 + 10 * 20).plan.batch, 16, "of 18");
        assert_eq!(tuned(&experiment(16, 1), options, 10_000).plan.batch, 16);
    }

    #[test]
    fn blocks_run_again_where_nothing_fits_otherwise() {
        // 40 bytes less, and half for each sample.
        let device = |attempt: Attempt| {
            let (model, sample) = if attempt.checkpointing { (60, 5) } else { (100, 10) };
            let peak = model + sample * attempt.batch as u64;
            Ok(match peak <= 100 {
                true => Outcome::Fits { peak_bytes: Some(peak), samples_per_second: 1.0 },
                false => Outcome::OverBudget { peak_bytes: peak },
            })
        };
        let before = experiment(16, 1);
        let found = tune(&before, &LARGEST, device, |_| {}).expect("it fits so");
        assert_eq!((found.largest, found.plan), (8, Plan { batch: 8, accumulation: 2 }));
        assert_eq!(found.experiment.train.gradient_checkpointing, GradientCheckpointing::Flag(true));
        let keys: Vec<&str> = found.changes(&before).into_iter().map(|(key, ..)| key).collect();
        assert!(keys.contains(&"train.gradient_checkpointing"), "{keys:?}");
        assert!(found.notes[0].contains("run again"), "{:?}", found.notes);
    }

    #[test]
    fn nothing_fits_or_works_is_an_error_with_its_reason() {
        let error = tune(&experiment(8, 1), &LARGEST, device(50), |_| {}).expect_err("nothing fits");
        assert!(matches!(&error, TuneError::NothingFits(_)) && error.to_string().contains("it held"), "{error}");
        let crash = |_| Ok(Outcome::Crashed { reason: "signal 11".into() });
        let error = tune(&experiment(8, 1), &LARGEST, crash, |_| {}).expect_err("it crashed");
        assert!(matches!(&error, TuneError::Broken(_)) && error.to_string().contains("signal 11"), "{error}");
    }

    #[test]
    fn the_yaml_reads_back_with_its_changes() {
        let found = tuned(&experiment(32, 1), LARGEST, 100 + 10 * 11);
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("tuned.yaml");
        std::fs::write(&file, found.to_yaml()).expect("written");
        assert!(found.to_yaml().starts_with(SIGNATURE));
        assert_eq!(Experiment::load(Some(&file), &[]), Ok(found.experiment));
    }

    #[test]
    fn stages_with_an_accumulation_of_their_own_are_named() {
        let mut before = experiment(32, 1);
        before.phases.joint.train.insert("accumulation".into(), 2.into());
        let notes = tuned(&before, LARGEST, 100 + 10 * 11).notes;
        assert!(notes.iter().any(|note| note.contains("phases.3.train.accumulation")), "{notes:?}");
    }
}
