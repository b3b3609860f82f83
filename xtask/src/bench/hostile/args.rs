//! What is asked of the harness.

use super::kind::Kind;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Cases of all kinds together
    #[arg(long, default_value_t = 10_000)]
    pub cases: u64,
    /// What all cases follow from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only this kind, with all of the cases
    #[arg(long)]
    pub kind: Option<Kind>,
    /// Only the case of this number
    #[arg(long, requires = "kind")]
    pub only: Option<u64>,
    /// Seconds after which a case hangs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: u64,
    /// MiB that a process may have beyond what it has before its first case
    #[arg(long, default_value_t = 1024)]
    pub memory: u64,
    /// Keep the input of each failure, or of the only case, below this directory
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}
