//! `cargo xtask bench kernels`: what the kernels of training steps ask of NVIDIA's cards, by the compilers that a card is run with
//! and on a driver that has no GPU behind it.

mod assembled;
mod measured;
mod page;

use crate::cuda::FakeMachine;
use crate::process::work_folder;
use assembled::assembled;
use measured::Measured;
use page::{Page, Spill};
use std::path::PathBuf;
use undertone_cli::{Failure, note, say};

/// What is compiled and where it is written.
#[derive(clap::Args)]
pub struct Args {
    /// Cards whose architecture kernels are compiled for
    #[arg(long, value_delimiter = ',', default_value = "t4,a100,rtx3060,l4,h200")]
    cards: Vec<String>,
    /// Types that products are computed in
    #[arg(long, value_delimiter = ',', default_value = "f32,bf16,f16")]
    computes: Vec<String>,
    /// Which steps: of the model itself, of an adapter, of a router over two
    #[arg(long, value_delimiter = ',', default_value = "full,lora,router")]
    steps: Vec<String>,
    /// The Whisper whose steps they are
    #[arg(long, default_value = "nano")]
    size: String,
    /// Bytes that a kernel may spill from registers to memory
    #[arg(long, default_value_t = SPILL.kernel)]
    spill: u64,
    /// As many for a product of CubeK's that tuning tries beside others: a card's time decides whether it is used
    #[arg(long, default_value_t = SPILL.candidate)]
    spill_of_candidates: u64,
    /// The page to write
    #[arg(long)]
    page: Option<PathBuf>,
}

/// The most that was measured of CubeK's products is 624 bytes, for Hopper.
const SPILL: Spill = Spill { kernel: 16, candidate: 640 };

/// Compiles the kernels of full steps in f32 and bf16 for every generation of cards, and refuses those that do not compile or spill too
/// much.
pub fn check() -> Result<(), Failure> {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    run(&Args {
        cards: all(&["t4", "a100", "rtx3060", "l4", "h200"]),
        computes: all(&["f32", "bf16"]),
        steps: all(&["full"]),
        size: "nano".into(),
        spill: SPILL.kernel,
        spill_of_candidates: SPILL.candidate,
        page: None,
    })
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let machine = FakeMachine::brought()?;
    let mut page = Page::new(args.size.clone(), Spill { kernel: args.spill, candidate: args.spill_of_candidates });
    for card in &args.cards {
        for compute in &args.computes {
            for step in &args.steps {
                let measured = measure(&machine, args, [card, compute, step])?;
                let programs = &measured.report["nvrtc"];
                let text = format!(
                    "{card} {compute} {step}: {} kernels in {:.0} s of NVRTC (longest {:.1} s)",
                    programs["programs"],
                    programs["seconds"].as_f64().unwrap_or_default(),
                    programs["longest"].as_f64().unwrap_or_default()
                );
                note!("{text}");
                page.add(measured);
            }
        }
    }
    let text = page.text();
    match &args.page {
        Some(path) => std::fs::write(path, text)
            .map_err(|e| Failure::BadInput(format!("cannot write `{}`: {e}", path.display())))?,
        None => say!("{text}")?,
    }
    page.verdict()
}

/// Runs a step in a process of its own with empty caches, and assembles what it loaded.
fn measure(machine: &FakeMachine, args: &Args, [card, compute, step]: [&str; 3]) -> Result<Measured, Failure> {
    let work = work_folder()?;
    let device = ["bench", "device", "--device", "cuda:0", "--batch", "2", "--steps", "1", "--list", "0"];
    let asked = ["--size", &args.size, "--compute", compute];
    let finished = machine.run(card, work.path(), &[&device[..], &asked, of_step(step)?].concat())?;
    let kernels = assembled(&machine.toolkit, &finished.out)?;
    let card = finished.report["card"].as_str().unwrap_or(card).to_owned();
    let (seconds, report) = (finished.seconds, finished.report);
    Ok(Measured { card, compute: compute.into(), step: step.into(), seconds, report, kernels })
}

/// Arguments of `bench device`.
fn of_step(step: &str) -> Result<&'static [&'static str], Failure> {
    match step {
        "full" => Ok(&[]),
        "lora" => Ok(&["--lora", "8"]),
        "router" => Ok(&["--lora", "8", "--adapters", "2"]),
        _ => Err(Failure::BadInput(format!("`{step}` is not a step: they are full, lora and router"))),
    }
}
