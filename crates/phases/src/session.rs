//! How a session of training begins, ends and is watched.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use undertone_train::{Display, Team};

/// What is a matter of one session and no part of the experiment.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Whether it goes on from the newest checkpoint.
    pub resume: bool,
    /// Once set, training ends with a checkpoint: after the current step, or at once where it waits for a batch.
    pub interrupt: Arc<AtomicBool>,
    /// What it is watched by.
    pub display: Display,
    /// The processes that train it together, of which all do the same and the first one writes.
    pub team: Team,
}
