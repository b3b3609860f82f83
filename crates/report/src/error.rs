use std::path::PathBuf;
use undertone_store::StoreError;

/// Reason why an analysis cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// There is nothing to count.
    #[error("a routing analysis needs at least one {0}: check that the test split is not empty")]
    Empty(&'static str),
    /// A sample is not a valid router output.
    #[error("sample {sample}: {what}")]
    Sample {
        /// Index of the sample among those given.
        sample: usize,
        /// The error in the sample, and the remedy.
        what: String,
    },
    /// The table has no such task or metric.
    #[error("the metrics table has no {kind} `{name}`: it has {known}")]
    Unknown {
        /// `task` or `metric`.
        kind: &'static str,
        /// Requested name.
        name: String,
        /// Known names.
        known: String,
    },
    /// A picture could not be drawn.
    #[error("a picture could not be drawn: {0}")]
    Picture(String),
}

/// Reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The directory contains no trained run.
    #[error("`{}` holds no run: give the directory of one, which has a `metrics.jsonl`, or whose stages have", .0.display())]
    NoRun(PathBuf),
    /// The run's configuration is invalid.
    #[error(transparent)]
    Config(Box<dyn std::error::Error + Send + Sync>),
    /// The metrics cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
    /// A picture could not be drawn.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// The page cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReportError {
    /// Whether the cause is an error in the user's input.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoRun(_) | Self::Config(_))
    }
}
