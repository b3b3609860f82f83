//! `undertone data …`.

mod cache;
mod check;
mod label;
mod unreadable;

use crate::commands::places::refuse_to_replace;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::{find_config, say};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone::data::audio::write_wav;
use undertone::data::source::{SourceRequest, Utterance};
use undertone::phases::{Experiment, Progress, Synthesised};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Check the data of a configuration before training; exit status 2 if training would fail
    Check(check::Args),
    /// Fill the sample cache before training, with what training would compute of recordings
    Cache(cache::Args),
    /// Write a list of the training recordings with the texts that a model writes for them, to train another model on
    Label(label::Args),
    /// Write synthesised samples as WAV files with a manifest
    Synth(SynthArgs),
}

#[derive(clap::Args)]
pub struct SynthArgs {
    /// Take the synthesiser and its settings from this configuration's `data.train`; the defaults if not given
    #[arg(long)]
    config: Option<PathBuf>,
    /// Task whose `data.train` to use, in a configuration with tasks
    #[arg(long, requires = "config")]
    task: Option<String>,
    /// Override one key, like `data.train.cw.wpm=[20,25]`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Number of samples
    #[arg(long, default_value_t = 10)]
    count: u64,
    /// Output directory; it must be empty or not exist
    #[arg(long)]
    out: PathBuf,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Label(args) => label::run(args),
        Command::Synth(args) => synth(args),
    }
}

fn synth(args: &SynthArgs) -> Result<(), Failure> {
    let config = args.config.as_deref().map(find_config);
    let experiment = Experiment::load(config.as_deref(), &args.settings).map_err(Failure::bad_input)?;
    let synthesiser = synthesiser(&experiment, args.task.as_deref())?;
    let config = synthesiser.options.clone().into();
    let request = SourceRequest { config, samples: args.count as usize, seed: experiment.seed };
    let kind = synthesiser.kind().map_err(Failure::bad_input)?;
    let utterances = kind.open(&request).map_err(Failure::bad_input)?;
    refuse_to_replace(&args.out)?;
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| Failure::Machine(format!("cannot write `{}`: {e}", path.display()));
    std::fs::create_dir_all(&args.out).map_err(|e| failed(&args.out, &e))?;
    let manifest_path = args.out.join("manifest.jsonl");
    let mut manifest = std::fs::File::create(&manifest_path).map_err(|e| failed(&manifest_path, &e))?;
    let mut seconds = 0.0;
    let bar = Bar::default();
    bar.begin("synthesising", utterances.len());
    for index in 0..utterances.len() {
        let sample = utterances.get(index, 0).map_err(Failure::bad_input)?;
        let name = format!("{index:06}.wav");
        write_wav(&args.out.join(&name), &sample.audio).map_err(|e| Failure::Machine(e.to_string()))?;
        seconds += sample.audio.len() as f64 / 16_000.0;
        let line = manifest_line(name, sample);
        writeln!(manifest, "{line}").map_err(|e| failed(&manifest_path, &e))?;
        bar.step();
    }
    bar.end();
    say!("{} samples, {seconds:.0} s of audio, manifest {}", utterances.len(), manifest_path.display())
}

/// Returns the row of a sample: its audio file, its text, and what else is known about it.
fn manifest_line(audio: String, sample: Utterance) -> Value {
    let mut line = serde_json::Map::from_iter([("audio".into(), audio.into()), ("text".into(), sample.text.into())]);
    for (column, text) in sample.columns {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        line.entry(column).or_insert(number.map_or(Value::String(text), Value::from));
    }
    Value::Object(line)
}

/// Returns the synthesiser of a configuration's training data.
fn synthesiser<'a>(experiment: &'a Experiment, task: Option<&str>) -> Result<&'a Synthesised, Failure> {
    let tasks = &experiment.tasks;
    let found = if tasks.is_empty() && task.is_none() {
        experiment.data.train.0.iter().find(|source| !source.is_recorded()).or(experiment.data.train.0.first())
    } else {
        tasks.iter().find(|known| Some(known.name.as_str()) == task).and_then(|task| task.data.train.0.first())
    };
    let Some(found) = found else {
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let reason = format!("name one of the configuration's tasks with --task: there are {known}");
        return Err(Failure::BadInput(reason));
    };
    let recorded = || Failure::BadInput("the samples are recordings and not synthesised".into());
    found.synthesised().ok_or_else(recorded)
}
