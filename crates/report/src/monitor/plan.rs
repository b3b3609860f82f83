use super::recommend::Settings;
use std::path::Path;
use undertone_train::TrainConfig;

/// What the configuration of a run asks of one of its stages.
#[derive(Clone, Debug)]
pub struct StagePlan {
    /// What advice can change.
    pub settings: Settings,
    /// How it trains.
    pub train: TrainConfig,
    /// Whether `train` tells how many steps it takes: a baseline over all tasks takes as many as they took together.
    pub counted: bool,
}

/// Reads the plan of a stage from the configuration of its run: given the run's directory and the stage's, which are the
/// same for a run without stages. It gives nothing where there is no configuration that it understands. Whoever knows
/// configurations provides it; this crate does not.
pub type ReadPlan = fn(&Path, &Path) -> Option<StagePlan>;
