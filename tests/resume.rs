//! A run that is stopped and goes on ends in the same bits as one that never stopped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use undertone::phases::{Experiment, Session, finetune};
use undertone_tests::{CLIPS, Outcome, Place, change_tensors, write_model};

const TRAIN: [&str; 3] = ["train", "--config", "tiny.yaml"];
/// The last step's checkpoint.
const LAST: &str = "step-00000024";

/// Epochs of three batches in windows of two, so that stops fall inside epochs and after tails.
fn place() -> Place {
    let place = Place::default();
    let yaml = undertone_tests::experiment(&format!("samples: 12, {CLIPS}"));
    place.write("tiny.yaml", yaml.replace("max_steps", "accumulation: 2\n  max_steps"));
    place
}

/// What a run of the tiny experiment leaves that must be the same every time.
#[derive(PartialEq)]
struct Records {
    model: Vec<u8>,
    optimizer: Vec<u8>,
    metrics: String,
}

impl Records {
    fn of(place: &Place) -> Self {
        let run = place.path("runs/tiny");
        let read = |name: &str| std::fs::read(run.join("checkpoints").join(LAST).join(name)).expect(name);
        let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
        Self { model: read("model.safetensors"), optimizer: read("optimizer.safetensors"), metrics }
    }

    fn uninterrupted() -> Self {
        let place = place();
        finishes(&place, &[]);
        Self::of(&place)
    }

    fn assert_same_as(&self, other: &Self) {
        assert_eq!(self.metrics, other.metrics);
        assert!(self.model == other.model, "the models differ");
        assert!(self.optimizer == other.optimizer, "the optimizers differ");
    }
}

fn finishes(place: &Place, more: &[&str]) -> Outcome {
    let outcome = place.run(&[&TRAIN, more].concat());
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    outcome
}

/// Trains until the line of `step`, leaving the process as it is there.
fn train_to(place: &Place, step: u64) -> Child {
    let mut child = place.xtask(&TRAIN).spawn().expect("a process");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with(&format!("step {step}/")) {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the run ended before step {step}");
    }
    // Somebody has to listen on, or the process dies of its broken pipe.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    child
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    // The bundled model is large enough for its products to be spread over threads.
    let settings = [
        "model.source.config=null",
        "model.source.bundled=whisper-nano-cw",
        "loss.alignment.characters=1",
        "train.checkpoint.every=0",
    ];
    let train = |threads: &str| {
        let place = place();
        let mut command = place.xtask(&TRAIN);
        settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
        let output = command.env("RAYON_NUM_THREADS", threads).output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Records::of(&place)
    };
    train("1").assert_same_as(&train("3"));
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_bits() {
    let place = place();
    let mut child = train_to(&place, 7);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    let summary = std::fs::read_to_string(place.path("runs/tiny/summary.json")).expect("a summary");
    assert!(summary.contains("\"completed\": false"), "{summary}");
    let outcome = finishes(&place, &["--resume", "--set", "data.workers=3"]);
    assert!(outcome.stderr.contains("resuming from"), "{}", outcome.stderr);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let place = place();
    let mut child = train_to(&place, 10);
    child.kill().expect("killed");
    assert_eq!(child.wait().expect("a status").code(), None, "it was too late to kill it");
    finishes(&place, &["--resume", "--set", "data.workers=2"]);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_one_before_used() {
    let place = place();
    finishes(&place, &[]);
    let whole = Records::of(&place);
    let newest = place.path("runs/tiny/checkpoints").join(LAST).join("optimizer.safetensors");
    let mut bytes = std::fs::read(&newest).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).expect("written");
    let outcome = finishes(&place, &["--resume"]);
    assert!(
        outcome.stderr.lines().any(|l| l.contains(LAST) && l.contains("optimizer.safetensors")),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("step-00000020`, step 20"), "{}", outcome.stderr);
    Records::of(&place).assert_same_as(&whole);
}

#[test]
fn a_finished_run_goes_on_when_more_steps_are_asked_of_it() {
    let place = place();
    finishes(&place, &[]);
    let more = ["--resume", "--set", "train.max_steps=27"];
    let outcome = finishes(&place, &more);
    assert!(outcome.stderr.contains(&format!("{LAST}`, step 24")), "{}", outcome.stderr);
    let records = || {
        ["summary.json", "metrics.jsonl"]
            .map(|name| std::fs::read_to_string(place.path("runs/tiny").join(name)).expect(name))
    };
    let [summary, metrics] = records();
    assert!(summary.contains("\"completed\": true") && summary.contains("\"steps\": 27"), "{summary}");
    let steps = |line: &&str| line.contains("\"train\"");
    assert_eq!(metrics.lines().filter(steps).count(), 27, "{metrics}");
    assert!(place.path("runs/tiny/checkpoints/step-00000027").is_dir());
    finishes(&place, &more);
    assert_eq!(records(), [summary, metrics], "nothing is left to do");
}

#[test]
fn a_run_does_not_go_on_beside_a_changed_frozen_encoder() {
    let place = place();
    write_model(&place.path("model"));
    let settings = ["model.source.config=null", "model.path=model", "model.trainable=decoder"];
    let with = |more: &[&'static str]| [&settings.map(|s| ["--set", s]).concat(), more].concat();
    finishes(&place, &with(&["--set", "train.max_steps=3"]));
    let before = place.tree();
    change_tensors(&place.path("model/model.safetensors"), |tensors| {
        let weight = tensors.get_mut("model.encoder.conv1.weight").expect("a weight");
        weight.data[0] += 1e-3;
    });
    let outcome = place.run(&[&TRAIN[..], &with(&["--resume", "--set", "train.max_steps=6"])].concat());
    outcome.assert_refusal(&["checkpoints/step-00000003", "frozen weights", "--resume"]);
    assert_eq!(place.tree(), before, "nothing is touched");
}

#[test]
fn a_run_interrupted_before_its_first_step_evaluates_the_beginning_once() {
    let place = place();
    let settings = [format!("run.dir={}", place.path("runs").display()), "train.max_steps=3".to_owned()];
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &settings).expect("an experiment");
    let run = |resume, interrupt| {
        let session = Session { resume, interrupt: Arc::new(AtomicBool::new(interrupt)), ..Session::default() };
        finetune(&experiment, &session).expect("a run").summary.completed
    };
    assert!(!run(false, true) && run(true, false));
    let metrics = std::fs::read_to_string(place.path("runs/tiny/metrics.jsonl")).expect("metrics");
    let steps: Vec<&str> = metrics.lines().filter(|l| l.contains("\"step\":0,")).collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
}
