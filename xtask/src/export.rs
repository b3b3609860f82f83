//! `cargo xtask export`.

use crate::data::refuse_to_replace;
use crate::failure::Failure;
use std::path::PathBuf;
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::store::Dtype;

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false)]
struct What {
    /// A run's directory: exports its best model
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
    /// The layout: `hf` is a folder that transformers and this program load
    #[arg(long, default_value = "hf")]
    format: Format,
    /// How weights are stored
    #[arg(long, default_value = "f32")]
    dtype: DtypeName,
    /// The directory to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Hf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum DtypeName {
    F32,
    F16,
    Bf16,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let dtype = match args.dtype {
        DtypeName::F32 => Dtype::F32,
        DtypeName::F16 => Dtype::F16,
        DtypeName::Bf16 => Dtype::Bf16,
    };
    refuse_to_replace(&args.out)?;
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let model = match (&args.what.run, &args.what.model) {
        (Some(run), _) => ModelConfig { path: Some(run.join("best")), ..Default::default() },
        (None, Some(model)) => ModelConfig::named(model),
        (None, None) => return Err(Failure::BadInput("give --run or --model".into())),
    };
    let whisper = model.load(&device, 0).map_err(Failure::bad_input)?;
    match args.format {
        Format::Hf => whisper.save(&args.out, dtype).map_err(|e| Failure::Machine(e.to_string()))?,
    }
    println!("{}", args.out.display());
    Ok(())
}
