//! Options of a child process of `bench ranks`.

use super::super::step::Size;

/// What one of the processes does.
#[derive(clap::Args)]
pub struct ChildArgs {
    /// Time sums of so many megabytes instead of steps
    #[arg(long, value_delimiter = ',')]
    pub megabytes: Vec<f64>,
    #[arg(long, default_value = "tiny")]
    pub size: Size,
    #[arg(long, default_value = "1")]
    pub batch: usize,
    #[arg(long, default_value = "8")]
    pub steps: usize,
    #[arg(long, default_value = "0")]
    pub latency: f64,
}
