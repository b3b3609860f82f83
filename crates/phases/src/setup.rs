//! What training and evaluation both begin with: device, model, and loaders for it.

use crate::normalize::spells;
use crate::{
    DataConfig, Experiment, RunError, SpeechDataset, SpeechError, Split, TextNormalizer, WhisperCollate,
    WhisperObjective,
};
use burn::tensor::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone_data::augment::{Augment, AugmentConfig};
use undertone_data::clips::BlockShuffle;
use undertone_data::features::LogMel;
use undertone_data::loader::{Loader, Mixture};
use undertone_data::text::NormalizerError;
use undertone_model::whisper::PretrainedWhisper;
use undertone_ops::set_kernels;

/// Row groups, or tar files, whose samples are shuffled among each other: what of shards is read at the same time.
const BLOCKS: usize = 8;

/// An experiment with its device and model in place.
pub(crate) struct Setup<'a> {
    pub experiment: &'a Experiment,
    pub device: Device,
    pub whisper: PretrainedWhisper,
    /// Once set, nobody waits for a batch any longer, and a model that listens to long recordings stops.
    pub interrupt: Arc<AtomicBool>,
}

impl<'a> Setup<'a> {
    pub fn new(experiment: &'a Experiment) -> Result<Self, RunError> {
        let device = experiment.device.resolve()?;
        set_kernels(experiment.kernels);
        let mut whisper = experiment.model.load(&device, experiment.seed)?;
        speaks(&mut whisper, &experiment.data);
        spells(&mut whisper, &experiment.data)?;
        Ok(Self { experiment, device, whisper, interrupt: Arc::default() })
    }

    /// Batches of a split: shuffled and anew every epoch for training, always the same otherwise.
    pub fn loader(&self, split: Split) -> Result<Loader<SpeechDataset, WhisperCollate>, RunError> {
        let (data, seed) = (&self.experiment.data, self.experiment.seed);
        let training = split == Split::Train;
        let config = if training { data.training_loader(seed) } else { data.eval_loader(seed) };
        let dataset = self.dataset(split)?;
        let (sizes, blocks) = (dataset.sizes(), dataset.blocks());
        let interrupt = self.interrupt.clone();
        let loader = Loader::new(Arc::new(dataset), Arc::new(self.collate(split)?), config)?;
        let loader = loader.until(move || interrupt.load(Ordering::Relaxed));
        if !training {
            return Ok(loader);
        }
        Ok(match (data.train.weights(), blocks) {
            (Some(weights), _) => loader.with_order(Mixture::weighted(sizes, &weights, seed)?),
            (None, _) if data.source_temperature != 1.0 => {
                loader.with_order(Mixture::tempered(sizes, data.source_temperature, seed)?)
            }
            (None, Some(blocks)) => loader.with_order(BlockShuffle::new(&blocks, BLOCKS, seed)),
            (None, None) => loader,
        })
    }

    /// The samples of a split.
    pub fn dataset(&self, split: Split) -> Result<SpeechDataset, RunError> {
        let (data, seed) = (&self.experiment.data, self.experiment.seed);
        let sources = data.splits().sources(split).ok_or_else(|| RunError::unsaid(split))?;
        let (sources, seed) = (sources.iter().collect::<Vec<_>>(), split.seed(seed));
        let training = split == Split::Train;
        let samples =
            SpeechDataset::interruptible(self.experiment, &sources, &self.whisper, training, seed, &self.interrupt);
        Ok(samples?)
    }

    /// What makes batches of a split's samples.
    pub fn collate(&self, split: Split) -> Result<WhisperCollate, RunError> {
        collate(&self.experiment.data, &self.whisper, split == Split::Train)
    }

    /// The objective, judged on these batches. What is to be known of its judgement is said.
    pub fn objective(
        &self,
        judged_on: Loader<SpeechDataset, WhisperCollate>,
    ) -> Result<WhisperObjective, NormalizerError> {
        let loss = self.experiment.loss.clone();
        let normalizer = TextNormalizer::new(self.experiment.data.normalizer, &self.whisper)?;
        normalizer.remark().inspect(|remark| eprintln!("{remark}"));
        Ok(WhisperObjective::new(self.whisper.clone(), loss, normalizer, judged_on, self.device.clone()))
    }
}

/// What makes batches for a Whisper, in training or where it is judged.
pub(crate) fn collate(
    data: &DataConfig,
    whisper: &PretrainedWhisper,
    training: bool,
) -> Result<WhisperCollate, RunError> {
    let pad = if training { data.pad } else { data.eval_pad };
    let (log_mel, window) = (LogMel::new(whisper.config.num_mel_bins)?, whisper.config.max_frames() * 160);
    let collate = WhisperCollate::new(log_mel, pad, window, whisper.tokenizer.end());
    if !training {
        return Ok(collate);
    }
    // Audio has been changed by then; what is left are the masks.
    let masks = AugmentConfig { spec_augment: data.augment.spec_augment.clone(), ..AugmentConfig::default() };
    Ok(collate.with_augment(Augment::new(&masks, window).map_err(SpeechError::from)?))
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
    use crate::SourceConfig;

    #[test]
    fn a_manifest_that_chose_the_best_is_no_test_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let (audio, manifest) = (dir.path().join("a.wav"), dir.path().join("valid.csv"));
        undertone_data::audio::write_wav(&audio, &[0.1; 16_000]).expect("written");
        std::fs::write(&manifest, "audio,text\na.wav,CQ\n").expect("written");
        let mut experiment = Experiment::default();
        let recorded = SourceConfig { path: Some(manifest.into()), ..Default::default() };
        experiment.data.valid = Some(recorded.clone());
        let refused = Setup::new(&experiment).expect("a setup").loader(Split::Test).err();
        assert!(matches!(refused, Some(RunError::NoTest)), "{refused:?}");
        experiment.data.test = Some(recorded);
        assert!(Setup::new(&experiment).expect("a setup").loader(Split::Test).is_ok());
    }
}
