//! DYNAMO's phases beside one adapter for all tasks.

use super::results::{Results, Training};
use crate::process::{cannot_use, output, this_program};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use undertone_cli::{Failure, find_config};

/// A configuration with tasks.
pub struct Phases {
    pub name: &'static str,
    config: &'static str,
}

pub const EXPERIMENTS: [Phases; 2] = [
    Phases { name: "dynamo-cw", config: "configs/dynamo-cw.yaml" },
    Phases { name: "dynamo-text-small", config: "configs/dynamo-text-small.yaml" },
];

impl Phases {
    /// Trains all phases and the shared adapter with a seed, and judges them on test data, if that has not been done yet.
    pub fn measure(&self, work: &Path, seed: u64, results: &mut Results) -> Result<(), Failure> {
        if results.has(self.name, "undertone", seed) {
            return Ok(());
        }
        let run = work.join(format!("{}-{seed}", self.name));
        if run.exists() {
            // It was begun and not finished.
            std::fs::remove_dir_all(&run).map_err(|error| cannot_use(&run, &error))?;
        }
        let config = find_config(Path::new(self.config));
        let started = Instant::now();
        for part in [["--phase", "all"], ["--baseline", "shared"]] {
            let mut command = this_program()?;
            command.arg("train").arg("--config").arg(&config).args(part);
            command.args(["--set", &format!("seed={seed}"), "--set", &format!("run.dir={}", work.display())]);
            command.args(["--set", &format!("run.name={}-{seed}", self.name)]);
            output(&mut command)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        output(this_program()?.args(["analyze", "--run"]).arg(&run))?;
        let mut scores = scores(&read(&run.join("metrics.json"))?);
        if let Some(accuracy) = read(&run.join("analysis.json"))?["accuracy"].as_f64() {
            scores.insert("routing accuracy".into(), accuracy);
        }
        results.add(self.name, "undertone", seed, Training { seconds, scores })
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| cannot_use(path, &error))?;
    serde_json::from_str(&text).map_err(|error| Failure::Machine(format!("`{}` is not JSON: {error}", path.display())))
}

/// The primary metric of each task by each router and baseline, as `task: metric/router`.
fn scores(table: &Value) -> BTreeMap<String, f64> {
    let mut scores = BTreeMap::new();
    for task in table["tasks"].as_array().into_iter().flatten() {
        let (name, metric) = (task["task"].as_str().unwrap_or_default(), task["primary"].as_str().unwrap_or_default());
        for row in table["rows"].as_array().into_iter().flatten() {
            if let (Some(router), Some(value)) = (row["router"].as_str(), row["cells"][name][metric].as_f64()) {
                scores.insert(format!("{name}: {metric}/{router}"), value);
            }
        }
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_primary_metrics_of_a_table_are_read() {
        let cells = json!({"copy": {"cer": 0.5, "wer": 0.7}});
        let table =
            json!({"tasks": [{"task": "copy", "primary": "cer"}], "rows": [{"router": "learned", "cells": cells}]});
        assert_eq!(scores(&table), BTreeMap::from([("copy: cer/learned".into(), 0.5)]));
    }
}
