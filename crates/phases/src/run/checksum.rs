//! Checksum of the backbone that adapters were trained on.

use crate::Experiment;
use burn::module::Module;
use serde::{Deserialize, Serialize};
use undertone_model::backbone::BoxedBackbone;
use undertone_model::frozen::FrozenDtype;
use undertone_store::frozen_checksum;

/// Checksum of a backbone. With other weights an adapter gives other answers, and a name or path does not show that a
/// folder's content has changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackboneChecksum {
    /// CRC-32 of its weights as f32, names and shapes included.
    crc32: u32,
    /// Type that its frozen matrices were rounded to.
    dtype: FrozenDtype,
}

impl BackboneChecksum {
    /// Computes the checksum of an experiment's backbone.
    pub fn of(experiment: &Experiment, network: BoxedBackbone) -> Self {
        Self { crc32: frozen_checksum(&network.no_grad()), dtype: experiment.model.frozen_dtype }
    }

    /// Whether the weights differ. Those that were rounded to different types cannot be compared, and do not.
    pub fn differs(self, other: Self) -> bool {
        self.dtype == other.dtype && self.crc32 != other.crc32
    }
}
