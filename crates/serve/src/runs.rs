//! Runs and their curves, as the monitor reads them.

use crate::library::Library;
use serde_json::{Value, json};
use std::path::Path;
use undertone::phases::stage_plan;
use undertone::report::logged_series;
use undertone::report::monitor::{Monitor, Snapshot};

/// Most points of a curve.
const POINTS: usize = 400;

/// Returns what is known of each run, last written first.
pub fn all(library: &Library) -> Vec<Value> {
    let look = |name: String| {
        let snapshot = snapshot(&library.run(&name)?)?;
        Some((snapshot.seconds_since_update.unwrap_or(f64::INFINITY), object(&name, &snapshot)))
    };
    let mut runs: Vec<(f64, Value)> = library.run_names().into_iter().filter_map(look).collect();
    runs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    runs.into_iter().map(|(_, run)| run).collect()
}

/// Returns a run with the curves of the stage that it trained last.
pub fn one(library: &Library, name: &str) -> Option<Value> {
    let directory = library.run(name)?;
    let snapshot = snapshot(&directory)?;
    let stage = snapshot.stage.as_ref().map_or(directory.clone(), |stage| directory.join(stage));
    let mut run = object(name, &snapshot);
    run["curves"] = ["train", "valid"].map(|split| curves(&stage, split)).concat().into();
    Some(run)
}

fn snapshot(directory: &Path) -> Option<Snapshot> {
    let runs = directory.parent().unwrap_or(directory);
    Some(Monitor::open(Some(directory), runs, stage_plan).ok()?.look())
}

fn object(name: &str, snapshot: &Snapshot) -> Value {
    let mut object = json!(snapshot);
    // The name is enough for a page; where it lies is nobody's business.
    object["run"] = name.into();
    object
}

fn curves(stage: &Path, split: &str) -> Vec<Value> {
    let curve = |series: undertone::report::Series| {
        let points: Vec<(f64, f64)> = series.stretches(POINTS).into_iter().flatten().collect();
        json!({"split": split, "name": series.name, "points": points})
    };
    logged_series(stage, split).into_iter().map(curve).collect()
}
