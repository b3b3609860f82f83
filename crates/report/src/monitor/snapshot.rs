use super::recommend::Recommendation;
use serde::Serialize;
use serde_json::{Map, Value};
use undertone_train::Performance;

/// State of a run at one moment, as read from its files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The run's directory.
    pub run: String,
    /// Directory of the stage below it, such as `phase1/copy`; `None` for a run without stages.
    pub stage: Option<String>,
    /// Whether the run is still training.
    pub state: State,
    /// Seconds since the last write to its logs.
    pub seconds_since_update: Option<f64>,
    /// Optimizer steps taken.
    pub step: Option<u64>,
    /// Total number of optimizer steps, if known.
    pub steps: Option<u64>,
    /// Estimated seconds of training left at the present speed, without evaluations.
    pub eta_seconds: Option<f64>,
    /// Latest training line: step, loss, learning rate (`lr`) and the other logged values.
    pub train: Option<Map<String, Value>>,
    /// The latest evaluation.
    pub valid: Option<Map<String, Value>>,
    /// Latest lines of `performance.jsonl`, combined.
    pub performance: Option<Performance>,
    /// Recommendations from these measurements.
    pub recommendations: Vec<Recommendation>,
    /// Text if there are no recommendations.
    #[serde(skip)]
    pub(super) all_is_well: Option<String>,
}

/// Age of the last write to the logs, in seconds, from which it is shown, and from which the run may have been killed.
pub(super) const STALE_SECONDS: f64 = 60.0;

/// Whether a run is still training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its end was not logged.
    Running,
    /// Its end was not logged, nothing was written for a minute, and no process holds its directory: it was killed, or ended
    /// with an error.
    Stopped,
    /// It took all its steps, or stopped early.
    Finished,
    /// It stopped with a checkpoint to resume from.
    Interrupted,
}
