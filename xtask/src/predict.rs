//! `cargo xtask predict`.

use crate::failure::Failure;
use std::path::PathBuf;
use undertone::phases::Experiment;
use undertone::phases::run::Predictor;

#[derive(clap::Args)]
#[group(id = "input", required = true, multiple = false)]
struct Input {
    /// An audio file: WAV, FLAC, MP3 or Ogg Vorbis
    #[arg(long)]
    audio: Option<PathBuf>,
    /// A text, or a question about a --context
    #[arg(long)]
    text: Option<String>,
}

#[derive(clap::Args)]
pub struct Args {
    /// A run with tasks whose router has been trained
    #[arg(long)]
    run: PathBuf,
    #[command(flatten)]
    input: Input,
    /// Where the answer to a question is
    #[arg(long, requires = "text", conflicts_with = "audio")]
    context: Option<String>,
    /// How to print: `text`, or `json` with one object a line
    #[arg(long, default_value = "text")]
    format: Format,
    /// Override one key of the run's configuration, like router.gates=soft
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(audio) = args.input.audio.as_ref().filter(|audio| !audio.is_file()) {
        return Err(Failure::BadInput(format!("there is no audio file `{}`", audio.display())));
    }
    let mut experiment =
        Experiment::load(Some(&args.run.join("config.yaml")), &args.settings).map_err(Failure::bad_input)?;
    experiment.at(&args.run);
    let predictor = Predictor::load(&experiment).map_err(Failure::of_run)?;
    let answers = match (&args.input.audio, &args.input.text) {
        (Some(audio), _) => predictor.audio(audio),
        (None, text) => {
            let text = text.as_deref().unwrap_or_default();
            predictor.text(text, args.context.as_deref()).map(|answer| vec![answer])
        }
    };
    for answer in answers.map_err(Failure::of_run)? {
        let gates: Vec<(&str, f32)> = experiment.tasks.iter().map(|t| t.name.as_str()).zip(answer.gates).collect();
        match args.format {
            Format::Json => {
                let gates: serde_json::Map<String, serde_json::Value> =
                    gates.into_iter().map(|(task, gate)| (task.to_owned(), gate.into())).collect();
                println!(
                    "{}",
                    serde_json::json!({"start": answer.start, "task": answer.task, "text": answer.text, "gates": gates,
                        "confidence": answer.confidence})
                );
            }
            Format::Text => {
                let gates: Vec<String> = gates.into_iter().map(|(task, gate)| format!("{task} {gate:.2}")).collect();
                println!("{}", answer.text);
                println!("  {} (confidence {:.2}); gates: {}", answer.task, answer.confidence, gates.join(", "));
            }
        }
    }
    Ok(())
}
