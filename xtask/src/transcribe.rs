//! `cargo xtask transcribe`.

use crate::failure::Failure;
use std::path::PathBuf;
use undertone::ops::DeviceSpec;
use undertone::phases::Transcriber;

#[derive(clap::Args)]
pub struct Args {
    /// whisper-nano-cw, which is bundled; a run's directory, for its best model; or a folder in the Hugging Face layout
    #[arg(long)]
    model: PathBuf,
    /// Language code for multilingual models; the model's own default if not given
    #[arg(long)]
    language: Option<String>,
    /// transcribe or translate, for multilingual models
    #[arg(long)]
    task: Option<String>,
    /// cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// How to print: `text`, or `json` with one object a line
    #[arg(long, default_value = "text")]
    format: Format,
    /// Audio files: WAV, FLAC, MP3 or Ogg Vorbis
    #[arg(required = true)]
    audio: Vec<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(missing) = args.audio.iter().find(|path| !path.is_file()) {
        return Err(Failure::BadInput(format!("there is no audio file `{}`", missing.display())));
    }
    let spec: DeviceSpec = args.device.parse().map_err(Failure::bad_input)?;
    let device = spec.resolve().map_err(Failure::bad_input)?;
    let transcriber = Transcriber::load(&args.model, &device, args.language.as_deref(), args.task.as_deref())
        .map_err(Failure::bad_input)?;
    for path in &args.audio {
        let text = transcriber.file(path).map_err(Failure::bad_input)?;
        match args.format {
            Format::Json => println!("{}", serde_json::json!({"audio": path, "text": text})),
            Format::Text if args.audio.len() > 1 => println!("{}\t{text}", path.display()),
            Format::Text => println!("{text}"),
        }
    }
    Ok(())
}
