//! `undertone export`.

use crate::commands::choices::one_of;
use crate::commands::data::refuse_to_replace;
use crate::failure::Failure;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::ops::DeviceSpec;
use undertone::phases::run::{Choice, Layout, load_whisper, merged};
use undertone::store::{Dtype, StoreError, write_directory};

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
struct What {
    /// Directory of a run or of one of its stages: exports its best model
    #[arg(long)]
    run: Option<PathBuf>,
    /// A model: whisper-nano-cw, which is bundled, or a folder in the Hugging Face layout
    #[arg(long)]
    model: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// Layout: `hf` is a folder that transformers and this program load, `peft` an adapter by itself
    #[arg(long, default_value = "hf")]
    format: Format,
    /// Merge the run's adapter into the weights
    #[arg(long, requires = "run")]
    merge: bool,
    /// Task whose adapter to export, for a run with several tasks
    #[arg(long, requires = "run")]
    task: Option<String>,
    /// Type of the stored weights
    #[arg(long, default_value = "f32", value_parser = one_of(DTYPES))]
    dtype: Dtype,
    /// Output directory
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Hf,
    Peft,
}

/// Types of stored weights by their names.
const DTYPES: [(&str, Dtype); 3] = [("f32", Dtype::F32), ("f16", Dtype::F16), ("bf16", Dtype::Bf16)];

pub fn run(args: &Args) -> Result<(), Failure> {
    refuse_to_replace(&args.out)?;
    let choice = match &args.what.run {
        Some(run) => Some(Choice::of(run, args.task.as_deref(), &[]).map_err(Failure::of_run)?),
        None => None,
    };
    match args.format {
        Format::Peft => write_adapter(args, choice.as_ref())?,
        Format::Hf => write_model(args, choice.as_ref())?,
    }
    say!("{}", args.out.display())
}

/// Writes a complete model.
fn write_model(args: &Args, choice: Option<&Choice>) -> Result<(), Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let whisper = match (choice, &args.what.model) {
        (Some(choice), _) => {
            check_merge(args.merge, choice)?;
            merged(choice, &device).map_err(Failure::of_run)?
        }
        (None, Some(model)) => load_whisper(model, None, &device).map_err(Failure::of_run)?,
        (None, None) => return Err(Failure::BadInput("give --run or --model".into())),
    };
    whisper.save(&args.out, args.dtype).map_err(|e| Failure::Machine(e.to_string()))
}

/// Refuses to merge where there is no adapter, and refuses to write a model without its adapter.
fn check_merge(merge: bool, choice: &Choice) -> Result<(), Failure> {
    let run = choice.experiment.directory();
    match (merge, choice.stage.layout) {
        (true, Layout::Model) => {
            Err(Failure::BadInput(format!("`{}` has no adapter: leave out --merge", run.display())))
        }
        (false, Layout::Adapters) => Err(Failure::BadInput(format!(
            "`{}` has an adapter on a model, and no whole model: give --merge to fold the one into the other, or \
             --format peft to write the adapter by itself",
            run.display()
        ))),
        _ => Ok(()),
    }
}

/// Writes an adapter by itself in PEFT's layout, and reports what the layout does not contain.
fn write_adapter(args: &Args, choice: Option<&Choice>) -> Result<(), Failure> {
    let adapter = choice.filter(|_| !args.merge).and_then(Choice::adapter);
    let Some((choice, adapter)) = choice.zip(adapter) else {
        let text = "--format peft writes the adapter of a run: give --run of one that has adapters, and no --merge";
        return Err(Failure::BadInput(text.into()));
    };
    if !matches!(args.dtype, Dtype::F32) {
        return Err(Failure::BadInput("adapters are stored in f32: leave out --dtype".into()));
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
    if choice.has_head() {
        tracing::warn!(
            "the folder holds the adapter and not the task's head, which PEFT has no place for: by itself the adapter gives \
             other answers than this run; --merge folds in both"
        );
    }
    Ok(())
}
