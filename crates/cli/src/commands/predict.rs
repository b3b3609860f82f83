//! `undertone predict`.

use crate::commands::choices::Format;
use crate::failure::Failure;
use crate::program::load_run;
use crate::say;
use std::path::PathBuf;
use undertone::phases::run::{Choice, Prediction, Predictor, Routed};

#[derive(clap::Args)]
#[group(id = "input", required = true, multiple = false)]
struct Input {
    /// An audio file: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A or a video
    #[arg(long)]
    audio: Option<PathBuf>,
    /// A text, or a question about --context
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
}

#[derive(clap::Args)]
pub struct Args {
    /// A run with tasks, with `model.trainable: lora` or with a speech backbone other than Whisper; or the directory of
    /// one of its stages, like runs/x/phase1/TASK
    #[arg(long)]
    run: PathBuf,
    /// Task to answer with; the router chooses one of several, like copy,expand, or of all if none is given
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    task: Vec<String>,
    #[command(flatten)]
    input: Input,
    /// Text that contains the answer to the question
    #[arg(long, requires = "text", conflicts_with = "audio", allow_hyphen_values = true)]
    context: Option<String>,
    /// Output format: `text`, or `json` with one object per line
    #[arg(long, default_value = "text")]
    format: Format,
    /// Override one key of the run's configuration, like router.gates=soft
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(audio) = args.input.audio.as_ref().filter(|audio| !audio.is_file()) {
        return Err(Failure::BadInput(format!("there is no audio file `{}`", audio.display())));
    }
    let (predictor, tasks) = load(args)?;
    let answers = match (&args.input.audio, &args.input.text) {
        (Some(audio), _) => predictor.audio(audio),
        (None, text) => {
            let text = text.as_deref().unwrap_or_default();
            predictor.text(text, args.context.as_deref()).map(|answer| vec![answer])
        }
    };
    for prediction in answers.map_err(Failure::of_run)? {
        if args.format == Format::Json {
            say!("{}", prediction.to_json(&tasks))?;
            continue;
        }
        let Prediction { task, text, routing, .. } = prediction;
        if let Some(Routed { own_share: Some(share), is_none: true, .. }) = routing {
            say!("none of the tasks: {:.1} % of their own inputs are as unlike them", 100.0 * share)?;
        } else {
            say!("{text}")?;
        }
        if let Some(Routed { gates, confidence, .. }) = routing {
            let gates: Vec<String> = tasks.iter().zip(gates).map(|(task, gate)| format!("{task} {gate:.2}")).collect();
            say!("  {task} (confidence {confidence:.2}); gates: {}", gates.join(", "))?;
        }
    }
    Ok(())
}

/// Loads the predictor, and returns it with the names of the tasks that the router chooses among.
fn load(args: &Args) -> Result<(Predictor, Vec<String>), Failure> {
    let task = match args.task.as_slice() {
        [task] => Some(task.as_str()),
        _ => None,
    };
    if task.is_none() && args.run.join("config.yaml").is_file() {
        let experiment = load_run(&args.run, &args.settings)?;
        if experiment.tasks.len() > 1 {
            let names = experiment.tasks.iter().map(|task| task.name.clone()).collect();
            let predictor = Predictor::load(&experiment).map_err(Failure::of_run)?;
            let chosen = if args.task.is_empty() { Ok(predictor) } else { predictor.among(&args.task) };
            return Ok((chosen.map_err(Failure::of_run)?, names));
        }
    }
    let choice = Choice::of(&args.run, task, &args.settings).and_then(Choice::for_one_task);
    let choice = choice.map_err(Failure::of_run)?;
    if args.task.len() > 1 {
        return Err(Failure::BadInput(
            "only the router of a run with tasks chooses among several: give one --task, or the directory of such a run".into(),
        ));
    }
    Ok((Predictor::of_choice(&choice).map_err(Failure::of_run)?, Vec::new()))
}
