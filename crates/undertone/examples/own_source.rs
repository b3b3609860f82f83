//! A source of speech of one's own that YAML can name: `cargo run -p undertone --example own_source`.
//!
//! A type that implements [`SpeechSource`], one that is its samples, and one line that registers it. From then on `synth`
//! may name it, `options` are its own keys, and it is trained on like any other: here whisper-nano-cw, which reads Morse,
//! begins to read the tones of telephone keys.

use std::f32::consts::TAU;
use undertone::data::loader::{Dataset, SampleError};
use undertone::data::source::{self, SourceRequest, SpeechSource, Utterance, Utterances};
use undertone::phases::run::train;
use undertone::phases::{Experiment, Session};

/// The source that `synth: dtmf` names.
struct Dtmf;

impl SpeechSource for Dtmf {
    fn name(&self) -> &str {
        "dtmf"
    }

    fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
        let digits = match request.config.get("digits") {
            None => 4,
            Some(digits) => digits.as_u64().ok_or("`options.digits` is not a number: give one like 4")? as usize,
        };
        Ok(Box::new(Calls { digits, samples: request.samples, seed: request.seed }))
    }
}

/// Numbers being dialled, other ones in every epoch.
struct Calls {
    digits: usize,
    samples: usize,
    seed: u64,
}

/// Hz of a key's row and column.
const KEYS: [(f32, f32); 10] = [
    (941.0, 1336.0),
    (697.0, 1209.0),
    (697.0, 1336.0),
    (697.0, 1477.0),
    (770.0, 1209.0),
    (770.0, 1336.0),
    (770.0, 1477.0),
    (852.0, 1209.0),
    (852.0, 1336.0),
    (852.0, 1477.0),
];
/// Samples of 16 kHz that a key is held for, and as many of silence after it.
const HELD: usize = 2000;

impl Dataset for Calls {
    type Item = Utterance;

    fn len(&self) -> usize {
        self.samples
    }

    /// The digits follow from seed, epoch and index alone.
    fn get(&self, index: usize, epoch: u64) -> Result<Utterance, SampleError> {
        let mut state = undertone::ops::seeds::of_sample(self.seed, epoch * self.samples as u64 + index as u64);
        let mut digits = Vec::with_capacity(self.digits);
        for _ in 0..self.digits {
            digits.push((state % 10) as usize);
            state /= 10;
        }
        let key = |digit: &usize| {
            let (row, column) = KEYS[*digit];
            let tone = move |n: usize| (TAU * row * n as f32 / 16e3).sin() + (TAU * column * n as f32 / 16e3).sin();
            (0..HELD).map(move |n| 0.3 * tone(n)).chain([0.0; HELD])
        };
        let audio = digits.iter().flat_map(key).collect();
        Ok(Utterance::new(audio, digits.iter().map(ToString::to_string).collect::<String>()))
    }

    fn name(&self, index: usize) -> String {
        format!("call {index}")
    }

    /// Seconds; of samples that are made, the longest that one can be.
    fn length(&self, _: usize) -> Option<f64> {
        Some((self.digits * 2 * HELD) as f64 / 16e3)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    undertone::register()?;
    source::register(Dtmf)?;

    let dir = tempfile::tempdir()?;
    let yaml = "
device: cpu
data: {batch_size: 8, eval_pad: longest, train: {synth: dtmf, options: {digits: 4}, samples: 240}}
train:
  max_steps: 60
  optimizer: {lr: 1.0e-3, warmup_steps: 5}
  evaluate: {metrics: [cer, loss]}
";
    std::fs::write(dir.path().join("calls.yaml"), yaml)?;
    let mut experiment = Experiment::load(Some(&dir.path().join("calls.yaml")), &[])?;
    experiment.at(&dir.path().join("calls"));
    let outcomes = train(&experiment, &Session::default())?;

    let summary = outcomes[0].summary.as_ref().ok_or("the run has no summary")?;
    let (before, after) = (summary.before["loss"], summary.after["loss"]);
    println!("loss on numbers nobody dialled before: {before:.2} before, {after:.2} after {} steps", summary.steps);
    assert!(after < before / 2.0, "nothing was learned");
    Ok(())
}
