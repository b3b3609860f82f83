//! `undertone predict`.

use crate::commands::choices::Format;
use crate::failure::Failure;
use crate::program::load_run;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::data::records::{Column, InputRecord, RecordsConfig};
use undertone::phases::run::{Choice, Prediction, Predictor, Routed};
use undertone::tasks::UserInput;

#[derive(clap::Args)]
#[group(id = "input", required = true, multiple = false)]
struct Input {
    /// An audio file: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A or a video
    #[arg(long)]
    audio: Option<PathBuf>,
    /// A text, or a question about --context
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// A file of texts: the lines of a .txt, or the column `text` of a CSV, TSV, JSON, JSON Lines or Parquet file, and `context` if
    /// there is one. Prints an answer a line, in the order of the file; to an empty text an empty one
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
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
    #[arg(long, requires = "text", conflicts_with_all = ["audio", "texts"], allow_hyphen_values = true)]
    context: Option<String>,
    /// Columns of the file of --texts, like text=tweet or text=question,context=passage: names, or numbers from 0
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', requires = "texts", value_parser = column)]
    columns: Vec<(String, Column)>,
    /// Output format: `text`, or `json` with one object per line
    #[arg(long, default_value = "text")]
    format: Format,
    /// Override one key of the run's configuration, like router.gates=soft
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

fn column(text: &str) -> Result<(String, Column), String> {
    let (field, column) = text.split_once('=').ok_or("it has no `=`: write it like text=tweet")?;
    Ok((field.into(), column.parse().map_or_else(|_| column.into(), Column::Number)))
}

/// Number of texts of a file that are answered before the answers are printed.
const AT_ONCE: usize = 1024;

pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(audio) = args.input.audio.as_ref().filter(|audio| !audio.is_file()) {
        return Err(Failure::BadInput(format!("there is no audio file `{}`", audio.display())));
    }
    let texts = args.input.texts.as_ref().map(|path| read_texts(path, &args.columns)).transpose()?;
    let (predictor, tasks) = load(args)?;
    if let Some(texts) = texts {
        return answer_file(&texts, &predictor, &tasks, args);
    }
    let answers = match (&args.input.audio, &args.input.text) {
        (Some(audio), _) => predictor.audio(audio),
        (None, text) => {
            let text = text.as_deref().unwrap_or_default();
            predictor.text(text, args.context.as_deref()).map(|answer| vec![answer])
        }
    };
    for prediction in answers.map_err(Failure::of_run)? {
        if prediction.cut > 0 {
            tracing::warn!("the text is too long for the task: its last {} tokens are not read", prediction.cut);
        }
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

fn read_texts(path: &Path, columns: &[(String, Column)]) -> Result<Vec<InputRecord>, Failure> {
    let columns = columns.iter().cloned().collect();
    let records = RecordsConfig { path: path.to_owned().into(), columns, ..Default::default() };
    InputRecord::read(&records).map_err(|error| Failure::BadInput(error.to_string()))
}

/// Prints an answer to each text of a file; a router's answer comes after its task.
fn answer_file(texts: &[InputRecord], predictor: &Predictor, tasks: &[String], args: &Args) -> Result<(), Failure> {
    let mut cut = 0;
    for texts in texts.chunks(AT_ONCE) {
        let inputs = texts.iter().filter(|record| !record.text.trim().is_empty());
        let inputs: Vec<_> = inputs
            .map(|record| UserInput {
                text: &record.text,
                context: record.context.as_deref().filter(|context| !context.trim().is_empty()),
                origin: Some(&record.origin),
            })
            .collect();
        let mut answers = predictor.texts(&inputs).map_err(Failure::of_run)?.into_iter();
        for record in texts {
            let is_blank = record.text.trim().is_empty();
            let answer = if is_blank { None } else { answers.next() }.unwrap_or_default();
            cut += usize::from(answer.cut > 0);
            if args.format == Format::Json {
                say!("{}", answer.to_json(tasks))?;
                continue;
            }
            let text = answer.text.replace(['\n', '\r'], " ");
            match answer.routing {
                _ if tasks.is_empty() => say!("{text}")?,
                Some(Routed { is_none: true, .. }) => say!("none\t")?,
                _ => say!("{}\t{text}", answer.task)?,
            }
        }
    }
    if cut > 0 {
        tracing::warn!("{cut} of {} texts are too long for their task: their last tokens are not read", texts.len());
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
