use std::path::PathBuf;
use undertone_store::StoreError;

/// Why an analysis cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// There is nothing to count.
    #[error("a routing analysis needs at least one {0}: check that the test split is not empty")]
    Empty(&'static str),
    /// A sample is not what a router gives.
    #[error("sample {sample}: {what}")]
    Sample {
        /// Its position in the samples given.
        sample: usize,
        /// What is wrong with it, and the way out.
        what: String,
    },
    /// A table was asked to hold what it has no place for.
    #[error("the metrics table has no {kind} `{name}`: it has {known}")]
    Unknown {
        /// A task or a metric.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A picture could not be drawn.
    #[error("a picture could not be drawn: {0}")]
    Picture(String),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing was trained there.
    #[error("`{}` holds no run: give the directory of one, which has a `metrics.jsonl`, or whose stages have", .0.display())]
    NoRun(PathBuf),
    /// The run's configuration is none.
    #[error(transparent)]
    Config(Box<dyn std::error::Error + Send + Sync>),
    /// The metrics cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
    /// Whether the cause is something the user gave.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoRun(_) | Self::Config(_))
    }
}
