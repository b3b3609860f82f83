//! The identity of a backbone that is not in the folder of what was trained on it.

use crate::{Experiment, RunError};
use burn::module::Module;
use serde::{Deserialize, Serialize};
use std::path::Path;
use undertone_model::backbone::BoxedBackbone;
use undertone_store::{StoreError, frozen_checksum, write_atomically};

/// Identity of a backbone: the content of `backbone.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reference {
    /// Folder, or name on the hub, for messages. The configuration names it, too.
    model: String,
    /// CRC-32 of its weights as f32, names and shapes included.
    crc32: u32,
}

const FILE: &str = "backbone.json";

impl Reference {
    /// Returns the identity of the experiment's backbone.
    pub fn of(experiment: &Experiment, network: BoxedBackbone) -> Self {
        Self { model: experiment.model.to_string(), crc32: frozen_checksum(&network.no_grad()) }
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        write_atomically(&folder.join(FILE), serde_json::to_string_pretty(self).unwrap_or_default().as_bytes())
    }

    /// Checks that the experiment's backbone is the one that its directory was made with, if that is recorded there.
    ///
    /// # Errors
    /// When the weights differ, or the file that identifies them is damaged.
    pub fn check(experiment: &Experiment, network: impl FnOnce() -> BoxedBackbone) -> Result<(), RunError> {
        let path = experiment.directory().join(FILE);
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        let expected: Self = serde_json::from_str(&text)
            .map_err(|error| RunError::Description { path: path.clone(), reason: error.to_string() })?;
        let found = Self::of(experiment, network());
        match found.crc32 == expected.crc32 {
            true => Ok(()),
            false => Err(RunError::OtherBackbone { path, expected: expected.model, found: found.model }),
        }
    }
}
