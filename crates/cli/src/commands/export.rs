//! `undertone export`.

use crate::commands::places::{refuse_no_place, refuse_to_replace};
use crate::commands::verify;
use crate::failure::Failure;
use crate::program::load_run;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::exchange::ggml::{self, GgmlType};
use undertone::exchange::verify::{Clip, Program};
use undertone::exchange::{ExchangeError, spellings};
use undertone::model::frozen::FrozenDtype;
use undertone::model::whisper::PretrainedWhisper;
use undertone::ops::DeviceSpec;
use undertone::phases::RunError;
use undertone::phases::run::{Blend, Choice, Layout, card, card_of_text, load_whisper, merged, merged_text, package};
use undertone::store::{Dtype, StoreError, write_atomically, write_directory};
use undertone::train::Average;

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
struct What {
    /// Directory of a run or of one of its stages: exports its best model
    #[arg(long)]
    run: Option<PathBuf>,
    /// A model: one that is bundled, such as whisper-nano-cw; a folder in the Hugging Face layout, or of an adapter that PEFT saved;
    /// a file of whisper.cpp or openai-whisper; a folder of CTranslate2; or a name on the hub
    #[arg(long)]
    model: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// Layout: `hf` is a folder that transformers and this program load, `undertone` one that this program loads, `peft` an
    /// adapter by itself, `ggml` a file of whisper.cpp, `dynamo` all tasks of a run with their router and backbone
    #[arg(long, default_value = "hf")]
    format: Format,
    /// Merge the run's adapter into the weights
    #[arg(long)]
    merge: bool,
    /// Average checkpoints of the run instead of its best model: `last:5` are the newest five, `best:3` the three with the
    /// best values of its metric
    #[arg(long, value_name = "WHICH:COUNT")]
    average: Option<Average>,
    /// Mix another model into the weights: `base:0.3` is 0.3 of the model that the training began with, `FOLDER:0.3` of
    /// another one
    #[arg(long, value_name = "MODEL:SHARE")]
    blend: Option<Blend>,
    /// Task whose adapter to export, for a run with several tasks
    #[arg(long)]
    task: Option<String>,
    /// Type of the stored weights, by default f32, and f16 with `--format ggml`
    #[arg(long)]
    dtype: Option<DtypeName>,
    /// Identifier of the license for the model card, like apache-2.0
    #[arg(long)]
    license: Option<String>,
    /// Leave the backbone out of the folder of `--format dynamo`: it is loaded from where the run has it, and its checksum
    /// compared
    #[arg(long)]
    without_backbone: bool,
    /// Output directory; with `--format ggml` the output file
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    verify: verify::Args,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Hf,
    Undertone,
    Peft,
    Ggml,
    Dynamo,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum DtypeName {
    F32,
    F16,
    Bf16,
    /// 8 bits, for `--format ggml`
    #[value(name = "q8_0")]
    Q8_0,
    /// 5 bits, for `--format ggml`
    #[value(name = "q5_0")]
    Q5_0,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match args.format {
        Format::Hf | Format::Undertone | Format::Peft | Format::Dynamo => refuse_to_replace(&args.out)?,
        Format::Ggml => refuse_no_place(&args.out)?,
    }
    check_options(args)?;
    check_license(args.license.as_deref())?;
    let choice = match &args.what.run {
        Some(run) if args.format != Format::Dynamo => Some(choice(args, run)?),
        _ => None,
    };
    if args.verify.is_asked() && choice.as_ref().is_some_and(reads_text) {
        let reason = "--verify compares transcripts of recordings, and the run's model reads text: leave it out";
        return Err(Failure::BadInput(reason.into()));
    }
    let clips = args.verify.clips()?;
    match args.format {
        Format::Peft => write_adapter(args, choice.as_ref())?,
        Format::Hf | Format::Undertone => write_folder(args, choice.as_ref())?,
        Format::Ggml => write_ggml(args, choice.as_ref())?,
        Format::Dynamo => write_tasks(args)?,
    }
    say!("{}", args.out.display())?;
    clips.map_or(Ok(()), |clips| verify(args, choice.as_ref(), clips))
}

/// Returns the model that is exported: the best of a stage, or the mean of some of its checkpoints.
fn choice(args: &Args, run: &Path) -> Result<Choice, Failure> {
    let choice = Choice::of(run, args.task.as_deref(), &[]).map_err(Failure::of_run)?;
    let Some(average) = args.average else { return Ok(choice) };
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let (choice, steps) = choice.averaged(average, &device).map_err(Failure::of_run)?;
    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
    tracing::info!("the mean of the checkpoints of steps {}", steps.join(", "));
    Ok(choice)
}

/// Refuses the name of a license that is none: it becomes a line of the card's settings.
fn check_license(license: Option<&str>) -> Result<(), Failure> {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    match license.filter(|text| !is_name(text)) {
        Some(text) => Err(Failure::BadInput(format!(
            "--license is {text:?}: name a license by letters, digits, `-`, `.` and `_`, like apache-2.0"
        ))),
        None => Ok(()),
    }
}

/// Options that not every format has a use for, whether they are given, and the formats that they affect.
type Use = (&'static str, fn(&Args) -> bool, &'static [Format]);
const USES: [Use; 8] = [
    ("--merge", |args| args.merge, &[Format::Hf, Format::Undertone, Format::Peft, Format::Ggml]),
    ("--average", |args| args.average.is_some(), &[Format::Hf, Format::Undertone, Format::Peft, Format::Ggml]),
    ("--blend", |args| args.blend.is_some(), &[Format::Hf, Format::Undertone, Format::Ggml]),
    ("--task", |args| args.task.is_some(), &[Format::Hf, Format::Undertone, Format::Peft, Format::Ggml]),
    ("--license", |args| args.license.is_some(), &[Format::Hf, Format::Undertone, Format::Dynamo]),
    ("--without-backbone", |args| args.without_backbone, &[Format::Dynamo]),
    ("--dtype", |args| args.dtype.is_some(), &[Format::Hf, Format::Undertone, Format::Peft, Format::Ggml]),
    ("--verify", |args| args.verify.is_asked(), &[Format::Hf, Format::Peft, Format::Ggml]),
];

/// Options of them that are for a model alone as well as for that of a run.
const OF_ANY_MODEL: [&str; 2] = ["--dtype", "--verify"];

/// Refuses options that have no effect on the format.
fn check_options(args: &Args) -> Result<(), Failure> {
    let given = || USES.iter().filter(|(_, is_given, _)| is_given(args));
    if args.what.run.is_none()
        && let Some((option, ..)) = given().find(|(option, ..)| !OF_ANY_MODEL.contains(option))
    {
        return Err(Failure::BadInput(format!("`{option}` is for the model of a run: give --run, or leave it out")));
    }
    let Some((option, ..)) = given().find(|(_, _, formats)| !formats.contains(&args.format)) else { return Ok(()) };
    let reason = match args.format {
        Format::Hf => "writes a whole model",
        Format::Undertone => "writes a whole model, for this program alone",
        Format::Ggml => "writes a whole model, in a file that has no place for it",
        Format::Peft => "writes an adapter by itself, and no whole model",
        Format::Dynamo => "writes all tasks of a run as they were trained",
    };
    Err(Failure::BadInput(format!("`{option}` has no effect: this format {reason}; leave it out")))
}

/// Writes all tasks of a run as one folder.
fn write_tasks(args: &Args) -> Result<(), Failure> {
    let Some(run) = &args.what.run else {
        return Err(Failure::BadInput("--format dynamo writes the tasks of a run: give --run".into()));
    };
    let (experiment, device) = (load_run(run, &[])?, DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?);
    let license = args.license.as_deref();
    package(&experiment, !args.without_backbone, license, &args.out, &device).map_err(Failure::of_run)
}

/// Compares transcripts of what was written with those of the programs that read it. It is read back, so that rounded
/// weights are compared with the same ones.
fn verify(args: &Args, choice: Option<&Choice>, clips: Vec<Clip>) -> Result<(), Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let (whisper, programs) = match (args.format, choice) {
        (Format::Ggml, _) => {
            // The file has no settings for decoding.
            let mut whisper = whole_model(args, choice)?;
            whisper.model = load_whisper(&args.out, None, &device).map_err(Failure::of_run)?.model;
            (whisper, Program::OF_GGML.as_slice())
        }
        (Format::Peft, Some(choice)) => {
            (merged(choice, &device).map_err(Failure::of_run)?, Program::OF_ADAPTERS.as_slice())
        }
        _ => {
            let read = load_whisper(&args.out, None, &device).map_err(Failure::of_run)?;
            let programs = Program::of_folder(&read.config);
            if !programs.contains(&Program::FasterWhisper) {
                tracing::info!(
                    "faster-whisper is left out: it reads windows of 30 s alone, and the model's is another"
                );
            }
            (read, programs)
        }
    };
    args.verify.verify(whisper, &args.out, programs, clips)
}

/// Writes a complete model as a folder.
fn write_folder(args: &Args, choice: Option<&Choice>) -> Result<(), Failure> {
    let dtype = hf_type(args.dtype)?;
    if let Some(choice) = choice.filter(|choice| reads_text(choice)) {
        return write_text(args, choice, dtype);
    }
    let mut whisper = whole_model(args, choice)?;
    if args.format == Format::Hf {
        ExchangeError::check_stock("transformers", &whisper.config).map_err(Failure::bad_input)?;
        // 50 positions are a second.
        if !whisper.config.max_source_positions.is_multiple_of(50) {
            tracing::warn!(
                "transformers prepares windows of whole seconds, and fails on this model's of {} s: this program alone runs it",
                whisper.config.max_source_positions as f64 / 50.0
            );
        }
    }
    // Programs that compare English texts read it. A model with a reader of its own reads no English.
    if whisper.spellings().is_none() && whisper.generation.reader.is_none() {
        whisper.set_spellings(spellings());
    }
    whisper.save(&args.out, dtype).map_err(|e| Failure::Machine(e.to_string()))?;
    let Some(choice) = choice else { return Ok(()) };
    let is_own = whisper.config.own_option().is_some() || whisper.generation.reader.is_some();
    let card = card(choice, is_own, args.license.as_deref(), args.blend.as_ref());
    write_atomically(&args.out.join("README.md"), card.as_bytes()).map_err(|e| Failure::Machine(e.to_string()))
}

/// Writes an encoder of text with a task's head as a folder.
fn write_text(args: &Args, choice: &Choice, dtype: Dtype) -> Result<(), Failure> {
    if args.blend.is_some() {
        return Err(Failure::of_run(RunError::NoBlend));
    }
    let stage = choice.stage.directory.display();
    match (args.merge, choice.adapter().is_some()) {
        (true, false) => return Err(Failure::BadInput(format!("`{stage}` has no adapter: leave out --merge"))),
        (false, true) => return Err(unmerged(choice)),
        _ => {}
    }
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let (text, head) = merged_text(choice, &device).map_err(Failure::of_run)?;
    text.save_with_head(&head, choice.max_tokens(), &args.out, dtype).map_err(|e| Failure::Machine(e.to_string()))?;
    let card = card_of_text(choice, text.config.model_type, &head, args.license.as_deref());
    write_atomically(&args.out.join("README.md"), card.as_bytes()).map_err(|e| Failure::Machine(e.to_string()))
}

/// Whether the model of a run is an encoder of text.
fn reads_text(choice: &Choice) -> bool {
    choice.experiment.model.backbone.is_text()
}

/// Writes a complete model as a file of whisper.cpp.
fn write_ggml(args: &Args, choice: Option<&Choice>) -> Result<(), Failure> {
    if choice.is_some_and(reads_text) {
        return Err(Failure::BadInput(
            "whisper.cpp runs Whisper, and the run's model reads text: give --format hf".into(),
        ));
    }
    let dtype = ggml_type(args.dtype)?;
    if dtype == GgmlType::F32 {
        tracing::warn!(
            "whisper.cpp before 1.9.2 loads a file in f32 and on a CPU stops at its first convolution: give --dtype f16 \
             for such versions"
        );
    }
    ggml::write(&args.out, &whole_model(args, choice)?, dtype).map_err(|error| match error {
        ExchangeError::Store(_) => Failure::Machine(error.to_string()),
        error => Failure::bad_input(error),
    })
}

/// Returns the model with its adapter, if it has one, merged.
fn whole_model(args: &Args, choice: Option<&Choice>) -> Result<PretrainedWhisper, Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let whisper = match (choice, &args.what.model) {
        (Some(choice), _) => {
            check_merge(args.merge, choice)?;
            let whisper = merged(choice, &device).map_err(Failure::of_run)?;
            match &args.blend {
                Some(blend) => blend.of(choice, whisper, &device).map_err(Failure::of_run)?,
                None => whisper,
            }
        }
        (None, Some(model)) => load_whisper(model, None, &device).map_err(Failure::of_run)?,
        (None, None) => return Err(Failure::BadInput("give --run or --model".into())),
    };
    args.verify.check(&whisper)?;
    Ok(whisper)
}

/// Refuses to merge where there is no adapter, and refuses to write a model without its adapter.
fn check_merge(merge: bool, choice: &Choice) -> Result<(), Failure> {
    let stage = choice.stage.directory.display();
    match (merge, choice.stage.layout) {
        (true, Layout::Model) => Err(Failure::BadInput(format!("`{stage}` has no adapter: leave out --merge"))),
        (false, Layout::Adapters) => Err(unmerged(choice)),
        _ => Ok(()),
    }
}

/// Reason why a stage with an adapter is not written as it is.
fn unmerged(choice: &Choice) -> Failure {
    Failure::BadInput(format!(
        "`{}` has an adapter on a model, and no whole model: give --merge to fold the one into the other, or --format peft to write \
         the adapter by itself",
        choice.stage.directory.display()
    ))
}

/// Writes an adapter by itself in PEFT's layout, and reports what the layout does not contain.
fn write_adapter(args: &Args, choice: Option<&Choice>) -> Result<(), Failure> {
    let adapter = choice.filter(|_| !args.merge).and_then(Choice::adapter);
    let Some((choice, adapter)) = choice.zip(adapter) else {
        let text = "--format peft writes the adapter of a run: give --run of one that has adapters, and no --merge";
        return Err(Failure::BadInput(text.into()));
    };
    if !matches!(args.dtype, None | Some(DtypeName::F32)) {
        return Err(Failure::BadInput("adapters are stored in f32: leave out --dtype".into()));
    }
    if choice.has_head() && args.verify.is_asked() {
        let reason = "--verify compares whole models, and the head of a task is not in its adapter: give --merge";
        return Err(Failure::BadInput(reason.into()));
    }
    if let Some(option) = choice.experiment.model.own_option() {
        let reason = format!("in its base {option}, and PEFT loads bases by transformers, which cannot hold that");
        if args.verify.is_asked() {
            return Err(Failure::BadInput(format!("--verify cannot run PEFT on the adapter: {reason}; leave it out")));
        }
        tracing::warn!("{reason}: this program alone merges the adapter");
    }
    let copy = |directory: &Path| {
        for name in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(adapter.join(name), directory.join(name)).map_err(|source| StoreError::Io {
                action: "copy",
                path: adapter.join(name),
                source,
            })?;
        }
        Ok::<(), StoreError>(())
    };
    write_directory(&args.out, copy).map_err(|e| Failure::Machine(e.to_string()))?;
    let dtype = choice.experiment.model.frozen_dtype;
    if dtype != FrozenDtype::F32 {
        tracing::warn!(
            "the run computed with a model whose matrices are rounded (`model.frozen_dtype: {dtype}`): on the model in f32 the adapter \
             gives slightly other values"
        );
    }
    if choice.has_head() {
        tracing::warn!(
            "the folder holds the adapter and not the task's head, which PEFT has no place for: by itself the adapter gives \
             other answers than this run; --merge writes a model with both"
        );
    }
    Ok(())
}

/// Returns the type of the weights of a folder.
fn hf_type(name: Option<DtypeName>) -> Result<Dtype, Failure> {
    match name.unwrap_or(DtypeName::F32) {
        DtypeName::F32 => Ok(Dtype::F32),
        DtypeName::F16 => Ok(Dtype::F16),
        DtypeName::Bf16 => Ok(Dtype::Bf16),
        DtypeName::Q8_0 | DtypeName::Q5_0 => Err(Failure::BadInput(
            "q8_0 and q5_0 are types of whisper.cpp: give --format ggml, or --dtype f32, f16 or bf16".into(),
        )),
    }
}

/// Returns the type of the matrices in a file of whisper.cpp.
fn ggml_type(name: Option<DtypeName>) -> Result<GgmlType, Failure> {
    match name.unwrap_or(DtypeName::F16) {
        DtypeName::F32 => Ok(GgmlType::F32),
        DtypeName::F16 => Ok(GgmlType::F16),
        DtypeName::Q8_0 => Ok(GgmlType::Q8_0),
        DtypeName::Q5_0 => Ok(GgmlType::Q5_0),
        DtypeName::Bf16 => Err(Failure::BadInput(
            "none of whisper.cpp's tools writes or quantises bf16: with --format ggml give --dtype f16, f32, q8_0 or q5_0"
                .into(),
        )),
    }
}
