//! A program with custom kinds and every command of Undertone: `cargo run -p undertone-cli --example plugin -- train --config
//! mine.yaml`, then `eval`, `predict`, `transcribe` and the others.
//!
//! In YAML: `synth: dialled, options: {digits: 3}`, `metrics: [surplus]` and `optimizer: {name: lion}`.

use burn::tensor::Tensor;
use serde::Deserialize;
use std::f32::consts::TAU;
use undertone::data::loader::{Dataset, SampleError};
use undertone::data::source::{SourceRequest, SpeechSource, Utterance, Utterances};
use undertone::metrics::Direction;
use undertone::metrics::registry::TextMetric;
use undertone::train::optimizer::registry::{Update, UpdateRule};

fn main() -> std::process::ExitCode {
    undertone_cli::main(|kinds| kinds.source(Dialled).metric::<Surplus>().optimizer::<Lion>())
}

/// Numbers that are dialled: a tone for each digit.
struct Dialled;

impl SpeechSource for Dialled {
    fn name(&self) -> &str {
        "dialled"
    }

    fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
        let digits = match request.config.get("digits") {
            None => 4,
            Some(digits) => digits.as_u64().ok_or("`options.digits` is not a number: give one like 4")? as usize,
        };
        Ok(Box::new(Calls { digits, samples: request.samples, seed: request.seed }))
    }
}

struct Calls {
    digits: usize,
    samples: usize,
    seed: u64,
}

impl Dataset for Calls {
    type Item = Utterance;

    fn len(&self) -> usize {
        self.samples
    }

    /// The digits follow from seed, epoch and index alone.
    fn get(&self, index: usize, epoch: u64) -> Result<Utterance, SampleError> {
        let state = undertone::ops::seeds::of_sample(self.seed, epoch * self.samples as u64 + index as u64);
        let digits: Vec<u64> = (0..self.digits).map(|at| state / 10_u64.saturating_pow(at as u32) % 10).collect();
        // A tenth of a second of 400 to 1300 Hz, and as much silence.
        let tone = |digit: &u64| {
            let hz = 400.0 + 100.0 * *digit as f32;
            (0..1600).map(move |n| 0.3 * (TAU * hz * n as f32 / 16e3).sin()).chain([0.0; 1600])
        };
        Ok(Utterance::new(
            digits.iter().flat_map(tone).collect(),
            digits.iter().map(ToString::to_string).collect::<String>(),
        ))
    }

    fn name(&self, index: usize) -> String {
        format!("call {index}")
    }
}

/// Characters that were written beyond those that were said, for each text.
#[derive(Clone, Debug, Default)]
struct Surplus {
    characters: usize,
    texts: usize,
}

impl TextMetric for Surplus {
    const NAME: &str = "surplus";
    const DIRECTION: Direction = Direction::Lower;

    fn add(&mut self, reference: &str, hypothesis: &str) {
        self.characters += hypothesis.chars().count().saturating_sub(reference.chars().count());
        self.texts += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.texts > 0).then(|| self.characters as f64 / self.texts as f64)
    }
}

/// Lion (Chen et al., 2023): the sign of a mean of gradients.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lion {
    betas: [f64; 2],
}

impl Default for Lion {
    fn default() -> Self {
        Self { betas: [0.9, 0.98] }
    }
}

impl UpdateRule for Lion {
    const NAME: &'static str = "lion";
    const STATE: &'static [&'static str] = &["mean"];

    fn step(&self, update: Update) -> (Tensor<1>, Vec<Tensor<1>>) {
        let (gradient, mean) = (update.gradient, update.state[0].clone());
        let [change, mean] = self.betas.map(|beta| mean.clone() * beta + gradient.clone() * (1.0 - beta));
        let change = change.sign() + update.parameter.clone() * update.weight_decay;
        (update.parameter - change * update.learning_rate, vec![mean])
    }
}
