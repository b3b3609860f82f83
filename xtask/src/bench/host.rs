//! `cargo xtask bench host`: launches, memory and the host's time for a training step on CUDA. On a driver that computes nothing the time
//! of a step is the host's alone.

use crate::cuda::FakeMachine;
use crate::process::{json_line, work_folder};
use serde_json::{Value, json};
use undertone_cli::{Failure, say};

/// Options of `bench host`.
#[derive(clap::Args)]
pub struct Args {
    /// Whispers
    #[arg(long, value_delimiter = ',', default_value = "nano,small,large-v3")]
    sizes: Vec<String>,
    /// Ranks of LoRA adapters; 0 trains the model itself
    #[arg(long, value_delimiter = ',', default_value = "0,32")]
    lora: Vec<String>,
    /// Clips in a batch, or `fit`: the largest of 16, 8, 4, 2 and 1 that fits the card by the memory model
    #[arg(long, default_value = "16")]
    batch: String,
    /// What products are computed in; `auto` is bf16 or f16, as the card has units for
    #[arg(long, default_value = "auto")]
    compute: String,
    /// The pretended cards
    #[arg(long, value_delimiter = ',', default_value = "h200")]
    card: Vec<String>,
    /// Steps that count
    #[arg(long, default_value = "8")]
    steps: usize,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let machine = FakeMachine::brought()?;
    for card in &args.card {
        for size in &args.sizes {
            for lora in &args.lora {
                say!("{}", line(&machine, args, card, size, lora)?)?;
            }
        }
    }
    Ok(())
}

/// One step's figures: a first run compiles, and the second, which counts, finds everything compiled.
fn line(machine: &FakeMachine, args: &Args, card: &str, size: &str, lora: &str) -> Result<Value, Failure> {
    let work = work_folder()?;
    let steps = args.steps.to_string();
    let run = |steps: &str| {
        let device = ["bench", "device", "--device", "cuda:0", "--list", "0", "--size", size, "--lora", lora];
        let asked = ["--batch", &args.batch, "--compute", &args.compute, "--steps", steps];
        machine.run(card, work.path(), &[&device[..], &asked].concat())
    };
    let first = run("1")?;
    let second = run(&steps)?;
    let device = json_line(&second.stdout)?;
    let [seconds, launches] =
        ["seconds_per_step", "kernels_per_step"].map(|key| device[key].as_f64().unwrap_or_default());
    let report = &second.report;
    if device["batch"] == 0 {
        return Ok(
            json!({ "size": size, "lora": lora, "batch": 0, "card": report["card"], "modelled_mib": device["modelled_mib"] }),
        );
    }
    Ok(json!({
        "size": size, "lora": lora, "batch": device["batch"], "compute": device["compute"], "card": report["card"],
        "host_ms_per_step": (seconds * 1e3).round(),
        "launches_per_step": launches,
        "host_us_per_launch": (seconds * 1e7 / launches.max(1.0)).round() / 10.0,
        "waits_per_step": device["waits_per_step"],
        "upload_ms": device["upload_seconds"].as_f64().map(|seconds| seconds * 1e3),
        "allocations": report["memory"]["allocations"],
        "reserved_mib": device["reserved_mib"],
        "modelled_mib": device["modelled_mib"],
        "peak_gb": report["memory"]["peak"].as_f64().map(|bytes| (bytes / 1e7).round() / 100.0),
        "first_nvrtc": [first.report["nvrtc"]["programs"], first.report["nvrtc"]["seconds"], first.report["nvrtc"]["longest"]],
        "second_nvrtc": report["nvrtc"]["programs"],
        "problems": report["problems"],
    }))
}
