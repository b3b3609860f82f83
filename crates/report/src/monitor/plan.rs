use super::recommend::Settings;
use std::path::Path;
use undertone_train::TrainConfig;

/// Configuration of one stage of a run.
#[derive(Clone, Debug)]
pub struct StagePlan {
    /// Settings that recommendations can change.
    pub settings: Settings,
    /// Training configuration.
    pub train: TrainConfig,
    /// Whether `train` determines the number of steps. It does not for a baseline over all tasks, which takes as many
    /// steps as the tasks took together.
    pub counted: bool,
}

/// Reads the plan of a stage from the configuration of its run. Arguments: the run's directory and the stage's, which
/// are the same for a run without stages. Returns `None` if there is no readable configuration. The caller provides
/// this function, because this crate does not know configurations.
pub type ReadPlan = fn(&Path, &Path) -> Option<StagePlan>;
