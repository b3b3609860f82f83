//! Check that ranks train the same run.

use super::Learner;
use crate::TrainError;
use crate::objective::{Batches, Objective};
use burn::module::Module;
use serde::{Deserialize, Serialize};
use undertone_store::frozen_checksum;

/// Properties of a run that have to be the same on all ranks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    version: String,
    configuration: Option<String>,
    /// Batches of the first epoch, and batches of a step.
    batching: (usize, usize),
    /// Fingerprint of the training samples.
    fingerprint: u64,
    step: u64,
    /// Checksum of all parameters.
    checksum: u32,
}

impl<O: Objective> Learner<O> {
    /// Refuses ranks that would not train the same run.
    pub(super) fn compare_ranks<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<(), TrainError> {
        let process_group = &self.stepper.process_group;
        if process_group.is_alone() {
            return Ok(());
        }
        let own = Run {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: self.options.configuration.clone(),
            batching: self.batching(batches),
            fingerprint: batches.fingerprint(),
            step: self.state.step,
            checksum: frozen_checksum(&self.model().clone().no_grad()),
        };
        let runs = process_group.all_gather(own)?;
        for (rank, run) in runs.iter().enumerate() {
            if let Some(what) = runs[0].differs_from(run) {
                return Err(TrainError::RanksDiffer { rank: process_group.name(rank), what });
            }
        }
        Ok(())
    }
}

impl Run {
    fn differs_from(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            (self.version == other.version, "another version of Undertone"),
            (self.configuration == other.configuration, "another configuration"),
            ((self.batching, self.fingerprint) == (other.batching, other.fingerprint), "other training data"),
            (self.step == other.step, "another checkpoint: do all ranks see the run's directory?"),
            (self.checksum == other.checksum, "other weights"),
        ];
        parts.iter().find(|(same, _)| !same).map(|(_, what)| *what)
    }
}
