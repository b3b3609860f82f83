//! A stage's model made of the mean of several checkpoints.

use super::choice::Choice;
use super::folder;
use super::model::TaskModel;
use super::setup::Setup;
use super::spec::Layout;
use crate::RunError;
use burn::module::Module;
use burn::tensor::Device;
use std::sync::Arc;
use undertone_store::{StoreError, load_trainable};
use undertone_train::{Average, Averaged, Checkpoints, TrainError};

impl Choice {
    /// Replaces the best model of the stage by the mean of several of its checkpoints. Returns the choice and the steps of the
    /// checkpoints. The model is in a temporary folder, which is gone with the last clone of the choice.
    ///
    /// # Errors
    /// When there are fewer checkpoints, one is damaged, or the model cannot be loaded or written.
    pub fn averaged(mut self, average: Average, device: &Device) -> Result<(Self, Vec<u64>), RunError> {
        let setup = Setup::on_device(&self.backbone(), device)?;
        let checkpoints = Checkpoints::new(self.stage.directory.join("checkpoints"));
        let metric = self.stage.config(&setup)?.checkpoint.metric;
        let Averaged { mut parameters, steps } = average.of(&checkpoints, self.stage.direction(&metric))?;
        let missing = |name: &str| StoreError::Missing {
            name: name.to_owned(),
            origin: format!("the checkpoints of `{}`", self.stage.directory.display()),
        };
        // With what earlier phases have trained: checkpoints hold what this one trains. Only a model in training mode knows
        // which of its parameters those are.
        let model = self.stage.model(&setup)?.train();
        let model = load_trainable(model, |name| parameters.remove(name).ok_or_else(|| missing(name)))?.valid();
        // Beside the run there is room for it; a run that may only be read is averaged in the system's folder.
        let folder = tempfile::tempdir_in(&self.stage.directory).or_else(|_| tempfile::tempdir());
        let folder = folder.map_err(|source| StoreError::Io {
            action: "create a folder in",
            path: std::env::temp_dir(),
            source,
        })?;
        self.write(&model, &setup, folder.path())?;
        self.stage.replaced_by = Some(Arc::new(folder));
        Ok((self, steps))
    }

    fn write(&self, model: &TaskModel, setup: &Setup, folder: &std::path::Path) -> Result<(), RunError> {
        match (self.stage.layout, setup.pretrained.speech()) {
            (Layout::Model, Some(speech)) => Ok(speech.save(&model.backbone, folder).map_err(TrainError::Export)?),
            _ => Ok(folder::save(model, &self.stage.description, folder)?),
        }
    }
}
