//! What training and evaluation both begin with: device, model, and loaders for it.

use crate::{
    DataConfig, Experiment, RunError, SourceConfig, SpeechDataset, SpeechError, WhisperCollate, WhisperObjective,
};
use burn::tensor::Device;
use std::sync::Arc;
use undertone_data::features::LogMel;
use undertone_data::loader::Loader;
use undertone_data::manifest::Manifest;
use undertone_model::whisper::PretrainedWhisper;
use undertone_ops::set_kernels;

/// Sets validation and test data apart from training data: fractional parts of the golden ratio and of √2, in 64 bits.
pub(crate) const VALID_SEED: u64 = 0x9E37_79B9_7F4A_7C15;
pub(crate) const TEST_SEED: u64 = 0x6A09_E667_F3BC_C908;

/// A part of an experiment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// What is trained on.
    Train,
    /// What decides which checkpoint is best.
    Valid,
    /// What nothing was decided by.
    Test,
}

/// An experiment with its device and model in place.
pub(crate) struct Setup<'a> {
    pub experiment: &'a Experiment,
    pub device: Device,
    pub whisper: PretrainedWhisper,
}

impl<'a> Setup<'a> {
    pub fn new(experiment: &'a Experiment) -> Result<Self, RunError> {
        let device = experiment.device.resolve()?;
        set_kernels(experiment.kernels);
        // A manifest is read in a moment, a model may have to be fetched first.
        let data = &experiment.data;
        for path in [Some(&data.train), Some(&data.valid), data.test.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|s| s.path.as_ref())
        {
            Manifest::load(path, true).map_err(SpeechError::from)?;
        }
        let mut whisper = experiment.model.load(&device, experiment.seed)?;
        speaks(&mut whisper, data);
        Ok(Self { experiment, device, whisper })
    }

    /// Batches of a split: shuffled and anew every epoch for training, always the same otherwise.
    pub fn loader(&self, split: Split) -> Result<Loader<SpeechDataset, WhisperCollate>, RunError> {
        let data = &self.experiment.data;
        let batch_size = if split == Split::Train { data.batch_size } else { data.eval_batch_size };
        let loader = data.loader(batch_size, split == Split::Train, self.experiment.seed);
        Ok(Loader::new(Arc::new(self.dataset(split)?), Arc::new(self.collate(split)?), loader)?)
    }

    /// The samples of a split.
    pub fn dataset(&self, split: Split) -> Result<SpeechDataset, RunError> {
        let (data, seed) = (&self.experiment.data, self.experiment.seed);
        let (source, seed): (&SourceConfig, _) = match split {
            Split::Train => (&data.train, seed),
            Split::Valid => (&data.valid, seed ^ VALID_SEED),
            Split::Test => {
                // A synthesiser makes other samples from another seed; a manifest would give the ones already used.
                let source = data.test.as_ref().or(data.valid.path.is_none().then_some(&data.valid));
                (source.ok_or(RunError::NoTest)?, seed ^ TEST_SEED)
            }
        };
        Ok(SpeechDataset::new(self.experiment, source, &self.whisper, seed)?)
    }

    /// What makes batches of a split's samples.
    pub fn collate(&self, split: Split) -> Result<WhisperCollate, RunError> {
        let (data, config) = (&self.experiment.data, &self.whisper.config);
        let pad = if split == Split::Train { data.pad } else { data.eval_pad };
        let log_mel = LogMel::new(config.num_mel_bins)?;
        Ok(WhisperCollate::new(log_mel, pad, config.max_frames() * 160, self.whisper.tokenizer.end()))
    }

    /// The objective, judged on a split.
    pub fn objective(&self, judged_on: Split) -> Result<WhisperObjective, RunError> {
        let (loss, normalizer) = (self.experiment.loss.clone(), self.experiment.data.normalizer);
        Ok(WhisperObjective::new(self.whisper.clone(), loss, normalizer, self.loader(judged_on)?, self.device.clone()))
    }
}

/// What comes out of training speaks what it was taught, wherever it is loaded.
pub(crate) fn speaks(whisper: &mut PretrainedWhisper, data: &DataConfig) {
    if whisper.generation.is_multilingual {
        whisper.generation.language = Some(data.language.clone());
        whisper.generation.task = Some(data.task.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_chose_the_best_is_no_test_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let (audio, manifest) = (dir.path().join("a.wav"), dir.path().join("valid.csv"));
        undertone_data::audio::write_wav(&audio, &[0.1; 16_000]).expect("written");
        std::fs::write(&manifest, "audio,text\na.wav,CQ\n").expect("written");
        let mut experiment = Experiment::default();
        experiment.data.valid.path = Some(manifest.clone());
        let refused = Setup::new(&experiment).expect("a setup").loader(Split::Test).err();
        assert!(matches!(refused, Some(RunError::NoTest)), "{refused:?}");
        experiment.data.test = Some(SourceConfig { path: Some(manifest), ..Default::default() });
        assert!(Setup::new(&experiment).expect("a setup").loader(Split::Test).is_ok());
    }
}
