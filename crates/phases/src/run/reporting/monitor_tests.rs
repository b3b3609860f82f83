//! Tests of the monitor on runs with a configuration.

use super::stage_plan;
use crate::Experiment;
use serde_json::Value;
use std::fs::{create_dir_all, write};
use std::path::{Path, PathBuf};
use undertone_report::monitor::{Monitor, State};
use undertone_store::DirectoryLock;

/// Returns log lines of a run that logs every ten steps.
fn metrics(steps: std::ops::RangeInclusive<u64>) -> String {
    let line = |at: u64| format!("{{\"step\":{},\"split\":\"train\",\"loss\":0.5,\"lr\":0.0003}}\n", 10 * at);
    steps.map(line).collect()
}

/// Hardware measurement in which half of the cores are idle.
const HARDWARE: &str = r#""hardware":{"cpu":0.5,"process_cpu":0.5}"#;

fn performance(steps: std::ops::RangeInclusive<u64>, wait: f64) -> String {
    let line = |at: u64| {
        let time = format!(
            r#"{{"data_wait":{wait},"transfer":0.0,"forward":0.2,"backward":{},"optimizer":0.05,"other":0.0}}"#,
            0.75 - wait
        );
        let step = 10 * at;
        format!(
            "{{\"step\":{step},\"steps\":10,\"seconds\":2.0,\"samples_per_second\":40.0,\"time\":{time},{HARDWARE}}}\n"
        )
    };
    steps.map(line).collect()
}

fn summary(completed: bool, steps: u64) -> String {
    format!(
        r#"{{"name":"run","completed":{completed},"steps":{steps},"samples":80,"parameters":{{"trainable":1,"total":2}},
        "seconds":1.5,"samples_per_second":60.0,"data_wait":0.1,"peak_memory_bytes":null,"before":{{}},"after":{{}},
        "best":null,"examples":[]}}"#
    )
}

/// Creates a directory of runs with one run of 200 steps.
fn runs(yaml: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    create_dir_all(&run).expect("made");
    let experiment: Experiment = serde_norway::from_str(yaml).expect("an experiment");
    write(run.join("config.yaml"), experiment.to_yaml()).expect("written");
    (dir, run)
}

const CONFIG: &str = "{data: {workers: 1}, train: {max_steps: 200}}";

#[test]
fn a_run_is_followed_from_its_first_line_to_its_end() {
    let (dir, run) = runs(CONFIG);
    let mut monitor = Monitor::open(Some(&run), dir.path(), stage_plan).expect("a run");
    let nothing = monitor.look();
    assert_eq!((nothing.step, nothing.steps, nothing.state), (None, Some(200), State::Running));
    assert!(nothing.text().ends_with("nothing is logged yet\n"), "{}", nothing.text());

    write(run.join("metrics.jsonl"), metrics(1..=1)).expect("written");
    let early = monitor.look();
    assert_eq!((early.step, early.train.as_ref().map(|line| line["loss"].clone())), (Some(10), Some(0.5.into())));
    assert!(early.text().contains("there is no performance.jsonl"), "{}", early.text());

    let valid = "{\"step\":150,\"split\":\"valid\",\"cer\":0.25}\n";
    write(run.join("metrics.jsonl"), metrics(1..=15) + valid).expect("written");
    // The first five lines have a larger data wait, but only the last ten lines count.
    write(run.join("performance.jsonl"), performance(1..=5, 0.75) + &performance(6..=15, 0.3)).expect("written");
    let running = monitor.look();
    assert_eq!((running.step, running.state, running.eta_seconds), (Some(150), State::Running, Some(10.0)));
    assert_eq!(running.valid.as_ref().expect("evaluated")["cer"], 0.25);
    let latest = running.performance.as_ref().expect("measured");
    assert_eq!((latest.steps, latest.seconds), (100, 20.0));
    assert!((latest.time.data_wait - 0.3).abs() < 1e-9);
    let changes: Vec<&str> = running.recommendations.iter().flat_map(|r| &r.changes).map(|c| c.key.as_str()).collect();
    assert_eq!(changes, ["data.workers"]);
    let text = running.text();
    for part in
        ["running", "step    150/200", "75 %  ETA 0:10", "loss 0.5000", "cer 0.2500  (step 150)", "40.00 samples/s"]
    {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(text.contains("time    data wait  30.0 %  ███████▎\n"), "{text}");
    assert!(text.contains("→ data wait 30 %: raise data.workers from 1 to "), "{text}");

    write(run.join("summary.json"), summary(false, 155)).expect("written");
    let interrupted = monitor.look();
    assert_eq!((interrupted.step, interrupted.state), (Some(155), State::Interrupted));
    // The run resumes from the checkpoint of step 100, faster, and trains to its end.
    write(run.join("metrics.jsonl"), metrics(1..=10)).expect("written");
    write(run.join("performance.jsonl"), performance(1..=10, 0.01)).expect("written");
    assert_eq!(monitor.look().state, State::Interrupted, "the summary is of a later step still");
    write(run.join("metrics.jsonl"), metrics(1..=20)).expect("written");
    write(run.join("performance.jsonl"), performance(1..=20, 0.01)).expect("written");
    let resumed = monitor.look();
    assert_eq!((resumed.step, resumed.state, resumed.recommendations.len()), (Some(200), State::Running, 0));
    assert!(resumed.text().ends_with("nothing to change: data wait 1 %, transfer 0 %, optimizer 5 %\n"));
    write(run.join("summary.json"), summary(true, 200)).expect("written");
    let finished = monitor.look();
    assert_eq!((finished.state, finished.eta_seconds), (State::Finished, None));
}

#[test]
fn the_next_stage_is_shown_once_it_begins() {
    let tasks = "{train: {max_steps: 200}, phases: {2: {train: {max_steps: 150}}}, \
                 tasks: [{name: a, data: {train: {synth: cw}, valid: {synth: cw}}}]}";
    let (dir, run) = runs(tasks);
    create_dir_all(run.join("phase1/a")).expect("made");
    write(run.join("phase1/a/metrics.jsonl"), metrics(1..=20)).expect("written");
    write(run.join("phase1/a/summary.json"), summary(true, 200)).expect("written");
    let mut monitor = Monitor::open(None, dir.path(), stage_plan).expect("a run");
    let first = monitor.look();
    assert_eq!(
        (first.stage.as_deref(), first.state, first.run),
        (Some("phase1/a"), State::Finished, run.display().to_string())
    );
    std::thread::sleep(std::time::Duration::from_millis(20));
    create_dir_all(run.join("phase2")).expect("made");
    write(run.join("phase2/metrics.jsonl"), metrics(1..=3)).expect("written");
    let second = monitor.look();
    assert_eq!((second.stage.as_deref(), second.state), (Some("phase2"), State::Running));
    assert_eq!((second.step, second.steps), (Some(30), Some(150)));
}

#[test]
fn epochs_are_counted_once_a_checkpoint_knows_their_batches() {
    let (dir, run) = runs("{train: {epochs: 3, accumulation: 2, optimizer: {warmup_steps: 1}}}");
    write(run.join("metrics.jsonl"), metrics(1..=2)).expect("written");
    let mut monitor = Monitor::open(None, dir.path(), stage_plan).expect("a run");
    assert_eq!(monitor.look().steps, None);
    for (name, batches) in [("step-00000010", 4), ("step-00000020", 31)] {
        let checkpoint = run.join("checkpoints").join(name);
        create_dir_all(&checkpoint).expect("made");
        write(checkpoint.join("state.json"), format!(r#"{{"step":20,"batching":[{batches},2]}}"#)).expect("written");
    }
    assert_eq!(monitor.look().steps, Some(48), "3 · ⌈31 / 2⌉");
}

#[test]
fn the_json_has_every_key_whatever_is_known() {
    let (dir, _run) = runs(CONFIG);
    let snapshot = Monitor::open(Some(Path::new("run")), dir.path(), stage_plan).expect("a run").look();
    let json = serde_json::to_value(&snapshot).expect("JSON");
    let keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = [
        "run", "stage", "state", "seconds_since_update", "step", "steps", "eta_seconds", "train", "valid",
        "performance", "recommendations",
    ];
    assert_eq!(keys, expected);
    assert_eq!(
        (json["state"].as_str(), json["steps"].as_u64(), &json["performance"]),
        (Some("running"), Some(200), &Value::Null)
    );
}

#[test]
fn a_run_that_was_killed_is_not_called_running() {
    let (dir, run) = runs(CONFIG);
    let log = run.join("metrics.jsonl");
    write(&log, metrics(1..=3)).expect("written");
    let mut monitor = Monitor::open(Some(&run), dir.path(), stage_plan).expect("a run");
    assert_eq!(monitor.look().state, State::Running, "its last line is new");
    let hour = std::time::Duration::from_secs(3600);
    let file = std::fs::File::options().write(true).open(&log).expect("opened");
    file.set_modified(std::time::SystemTime::now() - hour).expect("made older");
    let lock = DirectoryLock::acquire(&run).expect("free");
    assert_eq!(monitor.look().state, State::Running, "a process has it: a step may take that long");
    drop(lock);
    let stopped = monitor.look();
    assert_eq!((stopped.state, stopped.eta_seconds), (State::Stopped, None));
    let text = stopped.text();
    assert!(text.contains("goes on from its last checkpoint, last line 1:00:00 ago"), "{text}");
}
