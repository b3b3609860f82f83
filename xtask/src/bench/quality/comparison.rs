//! One kind of training, here and by a peer: the same configuration, the same records.

use super::results::{Results, Training};
use crate::process::{cannot_use, from_here, json_line, output, this_program};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use undertone_cli::Failure;

/// What is trained on both sides; `xtask/peers/quality/NAME.yaml` is its configuration.
pub struct Comparison {
    pub name: &'static str,
    /// What it is, for a table.
    pub title: &'static str,
    /// The metric that decides, as both sides call it.
    pub metric: &'static str,
    /// Whether more of it is better.
    pub higher: bool,
    /// Whether an adapter is trained on a frozen model: a configuration with one task.
    adapter: bool,
    config: &'static str,
}

macro_rules! comparison {
    ($name:literal, $title:literal, $metric:literal, higher: $higher:literal, adapter: $adapter:literal) => {
        Comparison {
            name: $name,
            title: $title,
            metric: $metric,
            higher: $higher,
            adapter: $adapter,
            config: include_str!(concat!("../../../peers/quality/", $name, ".yaml")),
        }
    };
}

pub const COMPARISONS: [Comparison; 7] = [
    comparison!("sst2", "SST-2, LoRA on MiniLM", "accuracy", higher: true, adapter: true),
    comparison!("wnut17", "WNUT17, LoRA on MiniLM", "entity_f1", higher: true, adapter: true),
    comparison!("squad", "SQuAD, LoRA on MiniLM", "f1", higher: true, adapter: true),
    comparison!("digits-full", "spoken digits, all of tiny.en", "wer", higher: false, adapter: false),
    comparison!("digits-lora", "spoken digits, LoRA on tiny.en", "wer", higher: false, adapter: true),
    comparison!("telephone-full", "telephone speech, all of tiny.en", "wer", higher: false, adapter: false),
    comparison!("telephone-lora", "telephone speech, LoRA on tiny.en", "wer", higher: false, adapter: true),
];

/// transformers and PEFT.
pub struct Peer<'a> {
    python: &'a Path,
    script: PathBuf,
    /// Where both sides read their records.
    work: &'a Path,
}

const SCRIPT: &str = include_str!("../../../peers/quality.py");

impl<'a> Peer<'a> {
    /// Writes the script and the configurations to the place of work.
    pub fn new(python: &'a Path, work: &'a Path) -> Result<Self, Failure> {
        let script = work.join("quality.py");
        std::fs::write(&script, SCRIPT).map_err(|error| cannot_use(&script, &error))?;
        for comparison in &COMPARISONS {
            let path = work.join(format!("{}.yaml", comparison.name));
            std::fs::write(&path, comparison.config).map_err(|error| cannot_use(&path, &error))?;
        }
        Ok(Self { python, script, work })
    }

    /// Writes the records.
    pub fn prepare(&self, data: &Path, models: &Path) -> Result<(), Failure> {
        for (folder, option) in [(data, "--data"), (models, "--models")] {
            if !folder.is_dir() {
                return Err(Failure::BadInput(format!(
                    "there is no folder `{}`: give one as {option}",
                    folder.display()
                )));
            }
        }
        let mut command = Command::new(self.python);
        command.arg(&self.script).arg("prepare").arg("--data").arg(data).arg("--models").arg(models);
        output(command.arg("--out").arg(self.work)).map(drop)
    }

    fn measure(&self, comparison: &Comparison, seed: u64) -> Result<Training, Failure> {
        let mut command = Command::new(from_here(self.python)?);
        command.arg(&self.script).args(["train", "--seed", &seed.to_string(), "--config"]);
        command.arg(format!("{}.yaml", comparison.name)).current_dir(self.work);
        let line = json_line(&output(&mut command)?)?;
        let scores = numbers(&line["scores"]);
        Ok(Training { seconds: line["seconds"].as_f64().unwrap_or(f64::NAN), scores })
    }
}

impl Comparison {
    /// Trains with a seed on both sides, in turn, what has not been trained yet.
    pub fn measure(&self, peer: &Peer, seed: u64, results: &mut Results) -> Result<(), Failure> {
        if !results.has(self.name, "undertone", seed) {
            results.add(self.name, "undertone", seed, self.ours(peer.work, seed)?)?;
        }
        if !results.has(self.name, "peer", seed) {
            results.add(self.name, "peer", seed, peer.measure(self, seed)?)?;
        }
        Ok(())
    }

    fn ours(&self, work: &Path, seed: u64) -> Result<Training, Failure> {
        let run = format!("{}-{seed}", self.name);
        let mut train = this_program()?;
        train.args(["train", "--config", &format!("{}.yaml", self.name), "--device", "cpu"]);
        train.args(["--set", &format!("seed={seed}"), "--set", "run.dir=.", "--set", "run.overwrite=true"]);
        train.args(["--set", &format!("run.name={run}")]).current_dir(work);
        train.args(if self.adapter { ["--phase", "1"].as_slice() } else { &[] });
        let started = Instant::now();
        output(&mut train)?;
        let seconds = started.elapsed().as_secs_f64();

        let mut judge = this_program()?;
        judge.args(["eval", "--run", &run, "--split", "test"]).current_dir(work);
        judge.args(if self.adapter { ["--router", "oracle"].as_slice() } else { &[] });
        let line = json_line(&output(&mut judge)?)?;
        Ok(Training { seconds, scores: numbers(&line) })
    }
}

/// The scores of an object, by their names without the task's.
fn numbers(object: &Value) -> BTreeMap<String, f64> {
    let all = object.as_object().into_iter().flatten();
    let own = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let scores = all.filter(|(name, _)| *name != "samples");
    scores.filter_map(|(name, value)| Some((own(name), value.as_f64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_configuration_is_one_that_we_train() {
        undertone::register().expect("registered");
        let work = tempfile::tempdir().expect("a folder");
        for comparison in &COMPARISONS {
            let path = work.path().join(format!("{}.yaml", comparison.name));
            std::fs::write(&path, comparison.config).expect("written");
            let experiment = undertone::phases::Experiment::load(Some(&path), &[])
                .unwrap_or_else(|error| panic!("{}: {error}", comparison.name));
            assert_eq!(experiment.tasks.len(), usize::from(comparison.adapter), "{}", comparison.name);
            let metrics = experiment.tasks.first().map_or(experiment.train.evaluate.metrics.clone(), |t| t.metrics());
            assert_eq!(metrics[0], comparison.metric, "{}", comparison.name);
        }
    }

    #[test]
    fn a_line_of_eval_is_read_without_the_names_of_tasks() {
        let found = numbers(&json!({"error": 0.1, "sst2.accuracy": 0.9, "remarks": []}));
        assert_eq!(found, BTreeMap::from([("accuracy".into(), 0.9), ("error".into(), 0.1)]));
    }
}
