//! Tuning: the largest batch that fits, the best learning rate, and the resulting configuration.
//!
//! [`tune`] searches for the batch with [`undertone_fit::tune`]; [`run_probe`] is the work of a probe's process.
//! [`RateSubject::search`] searches for the rate.

mod batch;
mod rates;

pub use crate::probe::run_probe;
pub use batch::{earlier_batch, record_batch};
pub use rates::{RateSearchError, RateSubject, rate_subjects};

use crate::{Experiment, run};
use std::fmt::Write;
use undertone_data::limits::MOST_BATCH;
use undertone_fit::tune::{Attempt, Outcome, Plan, Probe, TuneError, TuneOptions, TuneRequest, search, table};
use undertone_ops::runs_ahead;
use undertone_train::{GradientCheckpointing, LrScaling};

/// Result of tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Probes, in order.
    pub probes: Vec<Probe>,
    /// Largest batch that fits.
    pub largest: usize,
    /// Split of an optimizer step into batches.
    pub plan: Plan,
    /// Configuration with that split.
    pub experiment: Experiment,
    /// Changes with their reasons, a sentence each.
    pub notes: Vec<String>,
}

/// Returns a description of the stage that probes of this configuration train.
///
/// In a run with tasks it is phase 3, which trains all adapters, heads and the router at once: `data.batch_size`
/// applies to every phase, and phase 3 needs the most memory. A run with a single task has only phase 1.
pub fn subject(experiment: &Experiment) -> String {
    let (stage, model) = (run::probed_stage(experiment), &experiment.model);
    match experiment.tasks.len() {
        // The title names the model.
        0 => stage.title,
        _ => format!("{} on {model}", stage.title),
    }
}

/// Searches for the largest batch that fits, and chooses one. `probe` tries a batch, `found` is called with each
/// result.
///
/// # Errors
/// When nothing fits, or `probe` fails.
pub fn tune(
    experiment: &Experiment,
    options: &TuneOptions,
    probe: impl FnMut(Attempt) -> Result<Outcome, TuneError>,
    found: impl FnMut(&Probe),
) -> Result<Tuned, TuneError> {
    if experiment.data.max_batch_seconds.is_some() {
        let text = "`data.max_batch_seconds` cuts batches by their seconds, and this searches for a number of samples: leave it out";
        return Err(TuneError::Refused(text.into()));
    }
    let one_by_one = experiment.device.resolve().is_ok_and(|device| runs_ahead(&device));
    let request = TuneRequest {
        together: if one_by_one { 1 } else { rayon::current_num_threads() },
        effective: experiment.data.batch_size * experiment.train.accumulation,
        most: MOST_BATCH,
        checkpointed: experiment.train.gradient_checkpointing.every().is_some(),
    };
    let batch = search(&request, options, probe, found)?;
    let mut tuned = Tuned {
        probes: batch.probes,
        largest: batch.largest,
        plan: batch.plan,
        experiment: experiment.clone(),
        notes: batch.notes,
    };
    if batch.checkpointing {
        tuned.experiment.train.gradient_checkpointing = GradientCheckpointing::Flag(true);
    }
    tuned.apply(experiment, options.scaling);
    Ok(tuned)
}

fn checkpointing(setting: GradientCheckpointing) -> String {
    setting.every().map_or("false".into(), |every| format!("every {every}"))
}

impl Tuned {
    /// Writes the split into the configuration, and adds notes on the changes.
    fn apply(&mut self, before: &Experiment, scaling: LrScaling) {
        let (was, now) = (before.data.batch_size * before.train.accumulation, self.plan.effective());
        self.experiment.data.batch_size = self.plan.batch;
        self.experiment.train.accumulation = self.plan.accumulation;
        if was == now {
            self.notes.push(format!("an optimizer step keeps its {was} samples, so the learning rate stays"));
        } else {
            let rate = before.train.optimizer.lr;
            let own = before.train.optimizer.lr_scaling;
            let rate = if own.rule().is_none() {
                let factor = scaling.factor(now as f64, was);
                let rescaled = rate * factor;
                self.experiment.train.optimizer.lr = rescaled;
                let groups = &mut self.experiment.train.optimizer.groups;
                let of_parts = self.experiment.phases.joint.lr.rates_mut();
                groups.iter_mut().filter_map(|group| group.lr.as_mut()).chain(of_parts).for_each(|lr| *lr *= factor);
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

    /// Returns the changed keys: name, value before, value after.
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

    /// Returns the table of probes, the reasons and the changes, a line each.
    pub fn lines(&self, before: &Experiment) -> Vec<String> {
        let table = table(&self.probes);
        let changes = self.changes(before).into_iter().map(|(key, was, now)| format!("{key}  {was} → {now}"));
        table.lines().map(str::to_owned).chain(self.notes.iter().cloned()).chain(changes).collect()
    }
}

/// Returns a complete configuration as YAML, with the results of tuning in a comment at the top.
pub fn tuned_yaml(experiment: &Experiment, results: &[String]) -> String {
    let mut text = format!("{SIGNATURE}\n#\n");
    for line in results {
        let _ = writeln!(text, "# {line}");
    }
    text + &experiment.to_yaml()
}

/// First line of the output of [`tuned_yaml`]. A file that starts with it may be overwritten.
pub const SIGNATURE: &str = "# Written by `cargo xtask tune`.";

/// Returns a note for each stage or task whose own keys override the result.
fn overrides(experiment: &Experiment, rate_changed: bool) -> Vec<String> {
    let phases = &experiment.phases;
    let sections = [
        ("phases.1.train", &phases.adapters.train),
        ("phases.2.train", &phases.router.train),
        ("phases.3.train", &phases.joint.train),
    ];
    let named = sections.map(|(name, keys)| (name.to_owned(), keys)).into_iter();
    let named = named.chain(phases.baselines.all().map(|(name, keys)| (format!("phases.baselines.{name}"), keys)));
    let tasks = experiment.tasks.iter().map(|task| (format!("tasks.{}.train", task.name), &task.train));
    let mut notes = Vec::new();
    for (name, keys) in named.chain(tasks) {
        if keys.contains_key("accumulation") {
            notes.push(format!("`{name}.accumulation` is left as it is: change it by the same factor"));
        }
        if rate_changed && keys.get("optimizer").is_some_and(|optimizer| optimizer.get("lr").is_some()) {
            notes.push(format!("`{name}.optimizer.lr` is left as it is"));
        }
        if rate_changed && keys.get("optimizer").is_some_and(|optimizer| optimizer.get("groups").is_some()) {
            notes.push(format!("the rates of `{name}.optimizer.groups` are left as they are"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_fit::tune::Goal;

    fn experiment(batch_size: usize, accumulation: usize) -> Experiment {
        let mut experiment = Experiment::default();
        (experiment.data.batch_size, experiment.train.accumulation) = (batch_size, accumulation);
        experiment
    }

    /// Returns a probe with 100 bytes for the model and 10 for each sample, which is faster up to four samples.
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
        let mut joint = experiment(2, 2);
        joint.phases.joint.lr.router = Some(1e-3);
        let rates = tuned(&joint, options, 100 + 10 * 16).experiment.phases.joint.lr;
        assert!((rates.router.expect("a rate") - 2e-3).abs() < 1e-12 && rates.heads.is_none());
        let kept = tuned(&experiment(2, 2), LARGEST, 100 + 10 * 16);
        assert_eq!(kept.plan, Plan { batch: 4, accumulation: 1 }, "the effective batch is the cap");
    }

    #[test]
    fn batches_that_are_cut_by_their_seconds_are_refused() {
        let mut experiment = experiment(64, 1);
        experiment.data.max_batch_seconds = Some(240.0);
        let refused = tune(&experiment, &LARGEST, device(1000), |_| {}).expect_err("refused").to_string();
        assert!(refused.contains("data.max_batch_seconds"), "{refused}");
    }

    #[test]
    fn blocks_run_again_where_nothing_fits_otherwise() {
        // With gradient checkpointing 40 bytes less for the model, and half for each sample.
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
        let before = experiment(32, 1);
        let found = tuned(&before, LARGEST, 100 + 10 * 11);
        assert_eq!((found.largest, found.plan), (11, Plan { batch: 8, accumulation: 4 }));
        let keys: Vec<&str> = found.changes(&before).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(keys, ["data.batch_size", "train.accumulation"]);
        let yaml = tuned_yaml(&found.experiment, &found.lines(&before));
        assert!(yaml.starts_with(SIGNATURE) && yaml.contains("# train.accumulation  1 → 4"), "{yaml}");
        assert!(yaml.contains("keeps its 32 samples"), "{yaml}");
        assert_eq!(Experiment::of_yaml(&yaml, &[]), Ok(found.experiment));
    }

    #[test]
    fn stages_with_an_accumulation_of_their_own_are_named() {
        let mut before = experiment(32, 1);
        before.phases.joint.train.insert("accumulation".into(), 2.into());
        let notes = tuned(&before, LARGEST, 100 + 10 * 11).notes;
        assert!(notes.iter().any(|note| note.contains("phases.3.train.accumulation")), "{notes:?}");
    }
}
