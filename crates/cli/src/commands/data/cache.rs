//! `undertone data cache`.

use super::unreadable;
use crate::failure::Failure;
use crate::program::load_config;
use crate::progress::Bar;
use crate::{Program, say};
use std::path::PathBuf;
use undertone::data::cache::{Cache, CacheUsage};
use undertone::data::loader::OnBadSample;
use undertone::phases::{Experiment, RunError, fill_cache};
use undertone::train::Amount;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment's YAML file
    #[arg(long)]
    config: PathBuf,
    /// Override one key of the configuration, like data.cache.what=audio
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Empty the cache, whichever run filled it, instead of filling it
    #[arg(long, conflicts_with = "verify")]
    clear: bool,
    /// Check every entry and remove damaged ones, instead of filling it
    #[arg(long)]
    verify: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let experiment = load_config(&args.config, &args.settings)?;
    match (args.clear, args.verify) {
        (true, _) => {
            let gone = open(&experiment)?.clear().map_err(Failure::bad_input)?;
            say!("{} removed, {}", entries(gone.entries), Amount(gone.bytes))?;
        }
        (_, true) => {
            let cache = open(&experiment)?;
            let left = cache.verify().map_err(Failure::bad_input)?;
            say!("{}; {} damaged and removed", holds(left), cache.counts().corrupted)?;
        }
        (false, false) => fill(&experiment)?,
    }
    Ok(())
}

fn fill(experiment: &Experiment) -> Result<(), Failure> {
    let filled = fill_cache(experiment, &Bar::default()).map_err(Failure::bad_input)?;
    let declined = match filled.declined {
        0 => String::new(),
        declined => format!(", {declined} without room in `data.cache.max_bytes`"),
    };
    say!("{}; {} written, {} there already{declined}", holds(filled.usage), filled.written, filled.hits)?;
    unreadable::warn(&filled.unreadable);
    let (data, all) =
        (&experiment.data, filled.written + filled.hits + filled.declined + filled.unreadable.len() as u64);
    match filled.unreadable.len() {
        0 => Ok(()),
        // Training leaves them out as well.
        count if data.on_bad_sample == OnBadSample::Skip && count as f64 <= data.max_bad_share * all as f64 => Ok(()),
        count => {
            let program = Program::running();
            let text = format!("{count} of the recordings cannot be read: look at them with {program} data check");
            Err(Failure::BadInput(text))
        }
    }
}

fn open(experiment: &Experiment) -> Result<Cache, Failure> {
    let cache = experiment.data.cache.open().map_err(Failure::bad_input)?;
    cache.ok_or_else(|| Failure::bad_input(RunError::CacheOff))
}

fn holds(usage: CacheUsage) -> String {
    format!("the cache holds {}, {}", entries(usage.entries), Amount(usage.bytes))
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}
