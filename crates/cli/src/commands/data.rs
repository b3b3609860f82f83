//! `undertone data …`.

mod cache;
mod check;

use crate::failure::Failure;
use crate::find_config;
use crate::progress::Bar;
use crate::say;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone::cw::{CwConfig, CwSynth};
use undertone::data::audio::write_wav;
use undertone::phases::{Experiment, Progress, SourceConfig};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Look at a configuration's data before it is trained on; exit status 2 if training would fail
    Check(check::Args),
    /// Keep what training would compute of recordings before it begins
    Cache(cache::Args),
    /// Write synthesised samples as WAV files with a manifest
    Synth(SynthArgs),
}

#[derive(clap::Args)]
pub struct SynthArgs {
    /// Take the sound from this configuration's `data.train.cw`; the defaults if not given
    #[arg(long)]
    config: Option<PathBuf>,
    /// Of a configuration with tasks, the one whose `data.train.cw` it is
    #[arg(long, requires = "config")]
    task: Option<String>,
    /// Override one key, like `data.train.cw.wpm=[20,25]`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// How many samples
    #[arg(long, default_value_t = 10)]
    count: u64,
    /// The directory to write to; it must be empty or not there
    #[arg(long)]
    out: PathBuf,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Synth(args) => synth(args),
    }
}

fn synth(args: &SynthArgs) -> Result<(), Failure> {
    let config = args.config.as_deref().map(find_config);
    let experiment = Experiment::load(config.as_deref(), &args.settings).map_err(Failure::bad_input)?;
    let cw = sound(&experiment, args.task.as_deref())?.clone();
    let synth = CwSynth::new(cw, experiment.seed).map_err(Failure::bad_input)?;
    refuse_to_replace(&args.out)?;
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| Failure::Machine(format!("cannot write `{}`: {e}", path.display()));
    std::fs::create_dir_all(&args.out).map_err(|e| failed(&args.out, &e))?;
    let manifest_path = args.out.join("manifest.jsonl");
    let mut manifest = std::fs::File::create(&manifest_path).map_err(|e| failed(&manifest_path, &e))?;
    let mut seconds = 0.0;
    let bar = Bar::default();
    bar.begin("synthesising", args.count as usize);
    for index in 0..args.count {
        let sample = synth.sample(index);
        let name = format!("{index:06}.wav");
        write_wav(&args.out.join(&name), &sample.audio).map_err(|e| Failure::Machine(e.to_string()))?;
        let line = serde_json::json!({"audio": name, "text": sample.text});
        writeln!(manifest, "{line}").map_err(|e| failed(&manifest_path, &e))?;
        seconds += sample.audio.len() as f64 / 16_000.0;
        bar.step();
    }
    bar.end();
    say!("{} samples, {seconds:.0} s of audio, manifest {}", args.count, manifest_path.display())
}

/// What a configuration's clips sound like.
fn sound<'a>(experiment: &'a Experiment, task: Option<&str>) -> Result<&'a CwConfig, Failure> {
    let tasks = &experiment.tasks;
    let found = if tasks.is_empty() && task.is_none() {
        experiment.data.train.0.iter().find(|source| !source.is_recorded()).or(experiment.data.train.0.first())
    } else {
        tasks.iter().find(|known| Some(known.name.as_str()) == task).and_then(|task| task.data.train.0.first())
    };
    if found.is_some_and(SourceConfig::is_recorded) {
        return Err(Failure::BadInput("the samples are recordings and not synthesised".into()));
    }
    found.map(|source| &source.cw).ok_or_else(|| {
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::BadInput(format!("name one of the configuration's tasks with --task: there are {known}"))
    })
}

/// What is already in a directory that a command would fill is not ours to delete.
pub fn refuse_to_replace(dir: &Path) -> Result<(), Failure> {
    let full = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    match full || dir.is_file() {
        true => Err(Failure::BadInput(format!("`{}` is not empty: choose another directory", dir.display()))),
        false => Ok(()),
    }
}
