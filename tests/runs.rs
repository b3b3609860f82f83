//! A run of seconds as a process: begun, watched, stopped, and what it leaves.

use crate::{CLIPS, Outcome, Place, experiment};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Trains the experiment of [`place`].
pub const TRAIN: [&str; 3] = ["train", "--config", "tiny.yaml"];
/// The last step's checkpoint.
pub const LAST: &str = "step-00000024";

/// Epochs of three batches in windows of two, so that stops fall inside epochs and after tails.
pub fn place() -> Place {
    let place = Place::default();
    let yaml = experiment(&format!("samples: 12, {CLIPS}"));
    place.write("tiny.yaml", yaml.replace("max_steps", "accumulation: 2\n  max_steps"));
    place
}

/// Twelve recordings that are all of this sample, trained on without checkpoints on the way.
pub fn with_recordings(sample: f32) -> Place {
    let place = Place::default();
    place.write_recordings((0..12).map(|index| (vec![sample; 8000 + 1000 * index], "T".repeat(1 + index % 3))));
    place.write("tiny.yaml", experiment("path: list.jsonl").replace("{every: 4}", "{every: 0}"));
    place
}

/// What a run of the tiny experiment leaves that must be the same every time.
#[derive(PartialEq)]
pub struct Records {
    model: Vec<u8>,
    optimizer: Vec<u8>,
    metrics: String,
}

impl Records {
    /// What the run in `place` left.
    pub fn of(place: &Place) -> Self {
        let run = place.path("runs/tiny");
        let read = |name: &str| std::fs::read(run.join("checkpoints").join(LAST).join(name)).expect(name);
        let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
        Self { model: read("model.safetensors"), optimizer: read("optimizer.safetensors"), metrics }
    }

    /// What a run that nothing happens to leaves.
    pub fn uninterrupted() -> Self {
        let place = place();
        finishes(&place, &[]);
        Self::of(&place)
    }

    /// Bit by bit.
    pub fn assert_same_as(&self, other: &Self) {
        assert_eq!(self.metrics, other.metrics);
        assert!(self.model == other.model, "the models differ");
        assert!(self.optimizer == other.optimizer, "the optimizers differ");
    }
}

/// Trains to the end.
pub fn finishes(place: &Place, more: &[&str]) -> Outcome {
    place.train("tiny.yaml", more).succeeded()
}

/// Trains until the line of `step`, leaving the process as it is there.
pub fn train_to(place: &Place, step: u64) -> Child {
    spawn_to(&mut place.xtask(&TRAIN), step)
}

/// Starts a training, as [`train_to`] does.
pub fn spawn_to(command: &mut Command, step: u64) -> Child {
    let mut child = command.spawn().expect("a process");
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

/// Sends a signal to a process.
pub fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
}

/// Waits for something to happen, for a minute.
pub fn wait_until(happened: impl Fn() -> bool, what: &str) {
    wait_for(Duration::from_secs(60), || happened().then_some(()), what);
}

/// Waits for something to be found, for `most` at most.
pub fn wait_for<T>(most: Duration, mut found: impl FnMut() -> Option<T>, what: &str) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < most, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for something that a process does before it ends.
pub fn wait_while_alive(child: &mut Child, happened: impl Fn() -> bool, what: &str) {
    while !happened() {
        assert!(child.try_wait().expect("a status").is_none(), "it ended before {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Two tasks that differ in pitch, on a frozen model of width 16 that knows nothing.
pub fn two_tasks() -> String {
    let clip = |pitch: &str| {
        format!(
            "{{synth: cw, samples: 12, cw: {{duration_s: [2, 2], wpm: [20, 30], pitch_hz: {pitch}, lead_s: [0.05, 0.2],
      tail_s: [0.05, 0.1], farnsworth: {{probability: 0}}, hand: {{probability: 0}}, clean: 1, noise_only: 0}}}}"
        )
    };
    let task = |name: &str, pitch: &str| {
        let (train, valid) = (clip(pitch), clip(pitch).replace("samples: 12", "samples: 3"));
        format!(
            "  - name: {name}
    lora: {{r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: [q_proj, fc1]}}
    metrics: [cer, exact]
    data: {{train: {train}, valid: {valid}}}
"
        )
    };
    format!(
        "run: {{name: two, dir: runs}}
device: cpu
model:
  source:
    config:
      {{d_model: 16, encoder_layers: 2, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
        encoder_ffn_dim: 32, decoder_ffn_dim: 32, max_source_positions: 100, max_target_positions: 56, dropout: 0.1}}
data: {{batch_size: 4, workers: 1}}
tasks:
{}{}router: {{tap: 1, hidden: [8]}}
train:
  log_every: 1
  optimizer: {{lr: 1.0e-3, warmup_steps: 1}}
  evaluate: {{every: 3}}
  checkpoint: {{every: 2}}
phases:
  1: {{train: {{max_steps: 6}}}}
  2: {{train: {{max_steps: 6, accumulation: 2}}}}
  3: {{train: {{max_steps: 6}}}}
",
        task("low", "[400, 420]"),
        task("high", "[900, 950]")
    )
}
