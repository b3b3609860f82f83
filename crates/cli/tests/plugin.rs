//! Programs with custom kinds: every command has them.

mod common;

use common::{UNDERTONE, outcome, succeed};
use std::path::Path;
use undertone_tests::Place;

/// Two tasks whose samples, metric and optimizer are the plug-in's.
const YAML: &str = "run: {name: dialled, dir: runs}
device: cpu
model:
  source:
    config:
      {d_model: 16, encoder_layers: 2, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
        encoder_ffn_dim: 32, decoder_ffn_dim: 32, max_source_positions: 100, max_target_positions: 56, dropout: 0.1}
data: {batch_size: 4, workers: 1}
tasks:
  - name: short
    lora: {r: 2, target_modules: [q_proj]}
    metrics: [surplus]
    data: {train: {synth: dialled, samples: 8, options: {digits: 2}}, valid: {synth: dialled, samples: 3, options: {digits: 2}}}
  - name: long
    lora: {r: 2, target_modules: [q_proj]}
    metrics: [surplus]
    data: {train: {synth: dialled, samples: 8, options: {digits: 4}}, valid: {synth: dialled, samples: 3, options: {digits: 4}}}
router: {tap: 1, hidden: [8]}
train:
  optimizer: {name: lion, lr: 1.0e-4, warmup_steps: 1}
  evaluate: {every: 0}
phases: {1: {train: {max_steps: 3}}, 2: {train: {max_steps: 3}}, 3: {train: {max_steps: 3}}}
";

#[test]
fn a_program_with_kinds_of_its_own_has_every_command() {
    let place = Place::default();
    place.write("dialled.yaml", YAML);
    let run = |args: &[&str]| succeed(&place, "plugin", args);
    let trained = run(&["train", "--config", "dialled.yaml"]);
    assert!(trained.stdout.contains("short.surplus"), "{trained:?}");
    let judged = run(&["eval", "--run", "runs/dialled/phase3", "--task", "short", "--split", "valid"]);
    assert!(judged.stdout.contains("surplus"), "{judged:?}");
    undertone::data::audio::write_wav(&place.path("call.wav"), &vec![0.1; 16_000]).expect("written");
    let answered = run(&["predict", "--run", "runs/dialled", "--audio", "call.wav"]);
    assert!(answered.stdout.contains("short") && answered.stdout.contains("long"), "{answered:?}");
}

#[test]
fn the_program_without_them_says_what_it_lacks() {
    let place = Place::default();
    place.write("dialled.yaml", YAML);
    let refused = outcome(&place, Path::new(UNDERTONE), &["train", "--config", "dialled.yaml"]);
    refused.assert_refusal(&["dialled.yaml", "`dialled`"]);
}

#[test]
fn a_program_is_called_what_it_is() {
    let place = Place::default();
    let help = outcome(&place, Path::new(UNDERTONE), &["--help"]);
    assert!(help.stdout.contains("Usage: undertone ") && help.stdout.contains("train"), "{help:?}");
    assert!(!help.stdout.contains("bench") && !help.stdout.contains("structure"), "{help:?}");
    let version = outcome(&place, Path::new(UNDERTONE), &["--version"]);
    assert_eq!(version.stdout, format!("undertone {}\n", env!("CARGO_PKG_VERSION")));
}
