//! `cargo xtask bench quality`: what training comes to, beside transformers and PEFT on the same records, and DYNAMO's phases
//! beside one adapter for all tasks.

mod comparison;
mod phases;
mod results;
mod table;

use crate::process::cannot_use;
use clap::builder::RangedU64ValueParser;
use comparison::{COMPARISONS, Comparison};
use phases::EXPERIMENTS;
use results::Results;
use std::path::PathBuf;
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    /// The Python that has torch, transformers and peft (`xtask/peers/quality.py` says what else); without it only DYNAMO's
    /// phases are compared, with one adapter for all tasks
    #[arg(long, value_name = "PATH")]
    peer_python: Option<PathBuf>,
    /// Only these of sst2, wnut17, squad, digits-full, digits-lora, telephone-full, telephone-lora, dynamo-cw,
    /// dynamo-text-small
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// How often each is trained, with seeds from 1
    #[arg(long, default_value = "3", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    seeds: u64,
    /// The records: a folder with sst2, tweets, squad, fsdd and speech-en
    #[arg(long, default_value = "../shared/data", value_name = "DIR")]
    data: PathBuf,
    /// The models: a folder with minilm-l6 and whisper-tiny.en
    #[arg(long, default_value = "../shared/models", value_name = "DIR")]
    models: PathBuf,
    /// Where runs and results are kept: what is there already is not trained again
    #[arg(long, default_value = "runs/quality", value_name = "DIR")]
    work: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let known: Vec<&str> = COMPARISONS.iter().map(|c| c.name).chain(EXPERIMENTS.iter().map(|e| e.name)).collect();
    if let Some(unknown) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::BadInput(format!("there is no comparison `{unknown}`: there are {}", known.join(", "))));
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    std::fs::create_dir_all(&args.work).map_err(|error| cannot_use(&args.work, &error))?;
    let work = args.work.canonicalize().map_err(|error| cannot_use(&args.work, &error))?;
    let mut results = Results::open(&work.join("results.jsonl"))?;

    let compared: Vec<&Comparison> = COMPARISONS.iter().filter(|comparison| wanted(comparison.name)).collect();
    match &args.peer_python {
        Some(python) if !compared.is_empty() => {
            let peer = comparison::Peer::new(python, &work)?;
            peer.prepare(&args.data, &args.models)?;
            for seed in 1..=args.seeds {
                for comparison in &compared {
                    comparison.measure(&peer, seed, &mut results)?;
                }
            }
            say!("{}", table::of_peers(&compared, &results, args.seeds))?;
        }
        None if !args.only.is_empty() && !compared.is_empty() => {
            let text = format!("`{}` is compared with a peer: give its Python as --peer-python", compared[0].name);
            return Err(Failure::BadInput(text));
        }
        _ => {}
    }
    for experiment in EXPERIMENTS.iter().filter(|experiment| wanted(experiment.name)) {
        for seed in 1..=args.seeds {
            experiment.measure(&work, seed, &mut results)?;
        }
        say!("{}", table::of_phases(experiment.name, &results, args.seeds))?;
    }
    Ok(())
}
