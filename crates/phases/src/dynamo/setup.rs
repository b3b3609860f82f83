//! What every phase begins with: backbone, tasks and loaders.

use super::batch::{TaskCollate, TaskDataset};
use super::config::TaskConfig;
use super::evaluate::Judge;
use super::folder::Description;
use super::order::TaskOrder;
use crate::setup::{TEST_SEED, VALID_SEED, speaks};
use crate::{Experiment, RunError, SourceConfig, SpeechDataset, Split, WhisperCollate};
use burn::tensor::Device;
use std::sync::Arc;
use undertone_data::features::LogMel;
use undertone_data::loader::{Loader, LoaderConfig};
use undertone_model::whisper::PretrainedWhisper;
use undertone_ops::set_kernels;

/// An experiment with its device and backbone in place.
pub(super) struct Setup<'a> {
    pub experiment: &'a Experiment,
    pub device: Device,
    pub whisper: PretrainedWhisper,
}

impl<'a> Setup<'a> {
    pub fn new(experiment: &'a Experiment) -> Result<Self, RunError> {
        let device = experiment.device.resolve()?;
        set_kernels(experiment.kernels);
        let mut whisper = experiment.model.load(&device, experiment.seed)?;
        speaks(&mut whisper, &experiment.data);
        Ok(Self { experiment, device, whisper })
    }

    /// The samples of a split of the given tasks.
    pub fn dataset(&self, tasks: &[TaskConfig], split: Split) -> Result<TaskDataset, RunError> {
        let sets = tasks.iter().map(|task| {
            let data = &task.data;
            let seed = seed_of(self.experiment.seed, &task.name);
            let (source, seed): (&SourceConfig, u64) = match split {
                Split::Train => (&data.train, seed),
                Split::Valid => (&data.valid, seed ^ VALID_SEED),
                Split::Test => {
                    let source = data.test.as_ref().or(data.valid.path.is_none().then_some(&data.valid));
                    (source.ok_or(RunError::NoTest)?, seed ^ TEST_SEED)
                }
            };
            Ok(SpeechDataset::new(self.experiment, source, &self.whisper, seed)?)
        });
        Ok(TaskDataset::new(sets.collect::<Result<_, RunError>>()?))
    }

    /// Batches of a dataset: for training in the given order, otherwise one task after the other.
    pub fn loader(
        &self,
        dataset: TaskDataset,
        order: Option<TaskOrder>,
    ) -> Result<Loader<TaskDataset, TaskCollate>, RunError> {
        let data = &self.experiment.data;
        let config = &self.whisper.config;
        let (pad, loader) = match order {
            Some(_) => (data.pad, self.training_loader()),
            None => (data.eval_pad, data.loader(data.eval_batch_size, false, self.experiment.seed)),
        };
        let log_mel = LogMel::new(config.num_mel_bins)?;
        let collate = WhisperCollate::new(log_mel, pad, config.max_frames() * 160, self.whisper.tokenizer.end());
        let loader = Loader::new(Arc::new(dataset), Arc::new(TaskCollate(collate)), loader)?;
        Ok(match order {
            Some(order) => loader.with_order(order),
            None => loader,
        })
    }

    /// How training batches are made.
    pub fn training_loader(&self) -> LoaderConfig {
        let data = &self.experiment.data;
        data.loader(data.batch_size, true, self.experiment.seed)
    }

    /// A judge of the given tasks.
    pub fn judge(&self, tasks: Vec<TaskConfig>) -> Judge {
        Judge {
            tasks,
            whisper: self.whisper.clone(),
            router: self.experiment.router.clone(),
            device: self.device.clone(),
        }
    }

    /// What a folder of these tasks says.
    pub fn description(&self, tasks: &[TaskConfig]) -> Description {
        Description::new(tasks, &self.experiment.router, self.experiment.model.to_string())
    }
}

/// A seed for something that has a name: the same whatever else there is (FNV-1a).
pub(super) fn seed_of(seed: u64, name: &str) -> u64 {
    name.bytes()
        .fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
