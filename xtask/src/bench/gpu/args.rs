//! What is measured.

use crate::bench::step::Size;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// cuda:0, wgpu:0, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// What all of it may take; what does not fit is left out and said
    #[arg(long, default_value = "9", value_parser = minutes)]
    pub minutes: f64,
    /// Whispers whose steps are timed
    #[arg(long, value_delimiter = ',', default_value = "small,tiny,medium,large-v3")]
    pub sizes: Vec<Size>,
    /// Clips of a step, of 30 s each; by the size if not given
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub batch: Option<usize>,
    /// Steps that count, after two that warm up
    #[arg(long, default_value = "10", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub steps: usize,
    /// What the runs of the guides train: the models that the guides are about, or whisper-nano and a small encoder, for drivers
    /// that compute on the CPU
    #[arg(long, default_value = "full")]
    pub guides: Scale,
    /// Optimizer steps of each of those runs
    #[arg(long, default_value = "60", value_parser = RangedU64ValueParser::<u64>::new().range(6..))]
    pub guide_steps: u64,
    /// A Python with torch and transformers, for the same steps in PyTorch, eager and compiled
    #[arg(long, value_name = "PATH", requires = "peer")]
    pub peer_python: Option<PathBuf>,
    /// The peer's script: xtask/peers/step.py
    #[arg(long, value_name = "PATH", requires = "peer_python")]
    pub peer: Option<PathBuf>,
    /// What tuning chose on this card before, and where it is kept; it may be carried to another machine with such a card
    #[arg(long, value_name = "DIR", default_value = "target/gpu-caches")]
    pub caches: PathBuf,
    /// Where the page is written
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    pub output: PathBuf,
}

/// How large the models of the guides' runs are.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// As the guides have them
    Full,
    /// So small that a CPU trains them
    Small,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is a number of minutes".to_owned())?;
    if minutes.is_finite() && minutes > 0.0 { Ok(minutes) } else { Err("it is a number of minutes above 0".to_owned()) }
}
