//! `undertone data label`.

use super::unreadable;
use crate::commands::places::refuse_no_place;
use crate::failure::Failure;
use crate::program::load_config;
use crate::progress::Bar;
use crate::say;
use burn::tensor::Device;
use serde_json::Value;
use std::path::PathBuf;
use undertone::data::loader::OnBadSample;
use undertone::ops::{Compute, autocast};
use undertone::phases::config::DataConfig;
use undertone::phases::run::load_whisper;
use undertone::phases::{Experiment, LabelRecord, Labelled, label};
use undertone::store::{StoreError, write_atomically};
use undertone::transcribe::{TranscribeOptions, Transcriber};

#[derive(clap::Args)]
pub struct Args {
    /// The experiment's YAML file: the recordings of its training data are labelled
    #[arg(long)]
    config: PathBuf,
    /// Override one key of the configuration, like data.train.path=recordings.csv
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Model that writes the texts: a folder, a run, or a name on the hub; the teacher in `loss.distillation` if not given
    #[arg(long)]
    model: Option<PathBuf>,
    /// Leave out recordings whose text in the list differs from that of the model by a word error rate above this, such as 0.1
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_wer: Option<f64>,
    /// List to write, in JSON lines; it must not exist
    #[arg(long)]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let experiment = load_config(&args.config, &args.settings)?;
    refuse_no_place(&args.out)?;
    let device = experiment.open_device().map_err(Failure::bad_input)?;
    let (mut transcriber, spellings) = transcriber(args, &experiment, &device)?;
    let mut unfinished = args.out.clone().into_os_string();
    unfinished.push(".partial");
    let unfinished = PathBuf::from(unfinished);
    let mut record = LabelRecord::open(&unfinished).map_err(Failure::of_run)?;
    if !record.is_empty() {
        tracing::info!("going on: `{}` has the texts of {} recordings", unfinished.display(), record.len());
    }
    let mut list = String::new();
    let labelled = autocast(Compute::Auto.on(&device), || {
        let mut write = |row: Value| list.extend([row.to_string().as_str(), "\n"]);
        let spellings = spellings.as_deref();
        label(&experiment, &mut transcriber, spellings, args.max_wer, &mut record, &Bar::default(), &mut write)
            .map_err(Failure::of_run)
    })?;
    let failed = |e: StoreError| Failure::Machine(format!("cannot write `{}`: {e}", args.out.display()));
    write_atomically(&args.out, list.as_bytes()).map_err(failed)?;
    drop(record);
    // What is left of it would only be found again.
    let _ = std::fs::remove_file(&unfinished);
    report(args, &labelled, &experiment.data)
}

/// Returns the model that writes the texts, and its spelling map.
fn transcriber(
    args: &Args,
    experiment: &Experiment,
    device: &Device,
) -> Result<(Transcriber, Option<Vec<u8>>), Failure> {
    let teacher = experiment.loss.distillation.as_ref().map(|distillation| &distillation.teacher);
    let model = args.model.as_ref().or(teacher).ok_or_else(|| {
        Failure::BadInput("there is no model to write the texts: give --model, or `loss.distillation.teacher`".into())
    })?;
    let whisper = load_whisper(model, None, device).map_err(Failure::of_run)?;
    let is_multilingual = whisper.generation.is_multilingual;
    let data = &experiment.data;
    let [language, task] = [&data.language, &data.task].map(|word| is_multilingual.then_some(word.as_str()));
    let options = TranscribeOptions::plain(language, task);
    let spellings = whisper.spellings().map(<[u8]>::to_vec);
    Ok((Transcriber::new(whisper, device, options).map_err(Failure::bad_input)?, spellings))
}

fn report(args: &Args, labelled: &Labelled, data: &DataConfig) -> Result<(), Failure> {
    let Labelled { written, differing, silent, unreadable, wer } = labelled;
    if args.max_wer.is_some() && wer.is_none() && *differing == 0 {
        tracing::warn!("--max-wer has no effect: no recording of the list has a text to compare with");
    }
    let wer = wer.map_or(String::new(), |wer| format!("; WER {:.1} % against the texts of the list", 100.0 * wer));
    let mut left_out = Vec::new();
    if *differing > 0 {
        let most = args.max_wer.unwrap_or_default();
        left_out.push(format!("{differing} left out that differ by more than {:.1} %", 100.0 * most));
    }
    if *silent > 0 {
        left_out.push(format!("{silent} left out without a text"));
    }
    let left_out: String = left_out.into_iter().map(|text| format!(", {text}")).collect();
    say!("{}: {written} labelled{left_out}{wer}", args.out.display())?;
    unreadable::warn(unreadable);
    let all = written + differing + silent + unreadable.len();
    match unreadable.len() {
        0 => Ok(()),
        count if data.on_bad_sample == OnBadSample::Skip && count as f64 <= data.max_bad_share * all as f64 => {
            tracing::warn!("{count} recordings that cannot be read are not in the list");
            Ok(())
        }
        count => Err(Failure::BadInput(format!("{count} of the recordings cannot be read, and are not in the list"))),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "give a word error rate of at least 0, such as 0.1".into())
}
