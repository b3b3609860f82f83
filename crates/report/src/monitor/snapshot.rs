use super::recommend::Recommendation;
use serde::Serialize;
use serde_json::{Map, Value};
use undertone_train::Performance;

/// What a run's files say at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The run's directory.
    pub run: String,
    /// The directory of the stage below it, `phase1/copy` say; nothing for a run without stages.
    pub stage: Option<String>,
    /// Whether it goes on.
    pub state: State,
    /// Seconds since its logs were written to.
    pub seconds_since_update: Option<f64>,
    /// Optimizer steps taken.
    pub step: Option<u64>,
    /// Optimizer steps it is to take, where that is known.
    pub steps: Option<u64>,
    /// Seconds of training to the end at the present speed, evaluations not counted.
    pub eta_seconds: Option<f64>,
    /// The latest line of training: step, loss, learning rate (`lr`) and whatever else is logged.
    pub train: Option<Map<String, Value>>,
    /// The latest evaluation.
    pub valid: Option<Map<String, Value>>,
    /// The latest lines of `performance.jsonl` as one.
    pub performance: Option<Performance>,
    /// What these numbers say should be changed.
    pub recommendations: Vec<Recommendation>,
    /// What is said where nothing should be.
    #[serde(skip)]
    pub(super) all_is_well: Option<String>,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has not said that it ended. One that was killed says nothing: look at `seconds_since_update`.
    Running,
    /// It took all its steps, or stopped early.
    Finished,
    /// It stopped with a checkpoint to resume from.
    Interrupted,
}
