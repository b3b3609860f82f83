//! Speech: the samples, batches, losses and answers of a speech backbone.

use super::arrays::one_hot;
use super::batch::{HeadInputs, SampleInput, TaskBatch, TaskCollate, TaskSamples, rows_of};
use super::modality::{EncodedBatch, Modality, Opening};
use super::model::task_vectors;
use crate::backbone::{RowGroup, SpeechBackbone, SpeechStates};
use crate::config::TaskConfig;
use crate::{DataConfig, RunError, SourceConfig, SpeechCollate, SpeechDataset, SpeechError, Split};
use burn::tensor::Tensor;
use std::sync::Arc;
use undertone_data::augment::{Augment, AugmentConfig};
use undertone_data::clips::BlockShuffle;
use undertone_data::features::HOP;
use undertone_data::loader::{Dataset, Mixture, MixtureError, Order, SampleError};
use undertone_fit::Footprint;
use undertone_model::backbone::BoxedBackbone;
use undertone_ops::{Distillation, Taught};
use undertone_tasks::Answer;
use undertone_train::BoxError;

/// Number of row groups, or tar files, that are read at the same time and whose samples are shuffled among each other.
const BLOCKS: usize = 8;

impl Modality for SpeechBackbone {
    fn network(&self) -> BoxedBackbone {
        self.network.clone()
    }

    fn samples(&self, opening: &Opening) -> Result<Arc<dyn TaskSamples>, RunError> {
        let Opening { experiment, task, split, seed, interrupt, .. } = *opening;
        let sources: Vec<&SourceConfig> = opening.sources.iter().collect();
        let samples = SpeechDataset::interruptible(experiment, &sources, self, split == Split::Train, seed, interrupt);
        Ok(Arc::new(samples.map_err(|source| RunError::of_speech(task, source))?))
    }

    fn collate(&self, data: &DataConfig, training: bool) -> Result<TaskCollate, RunError> {
        Ok(TaskCollate::Speech(Box::new(collate(data, self, training)?)))
    }

    fn footprint(&self, _: &[TaskConfig]) -> Footprint {
        SpeechBackbone::footprint(self)
    }

    fn losses(
        &self,
        encoded: EncodedBatch,
        _: Option<&HeadInputs>,
        label_smoothing: f64,
    ) -> Result<Vec<Tensor<1>>, BoxError> {
        let (targets, groups) = (encoded.batch.input.speech()?.targets(), rows_by_task(&encoded));
        let tasks = &encoded.batch.tasks;
        self.decoder.losses(states(encoded, tasks), &targets, &groups, label_smoothing)
    }

    fn answers(&self, encoded: EncodedBatch, chosen: &[usize]) -> Result<Vec<Answer>, BoxError> {
        let EncodedBatch { tasks, batch, .. } = encoded;
        // A fine-tuned model decodes with the generation settings of its own folder.
        let generation = tasks.iter().map(|task| task.label().is_some().then_some(&task.generation));
        let groups =
            generation.enumerate().map(|(task, generation)| RowGroup { rows: rows_of(chosen, task), generation });
        let groups: Vec<RowGroup> = groups.collect();
        let prompts = &batch.input.speech()?.prompts;
        let texts = self.decoder.generate(states(encoded, chosen), prompts, &groups)?;
        let mut answers = vec![Answer::text(""); chosen.len()];
        for (row, tokens) in groups.iter().zip(texts).flat_map(|(group, texts)| group.rows.iter().zip(texts)) {
            answers[*row] = Answer::text(self.tokenizer.decode(&tokens).trim());
        }
        Ok(answers)
    }

    fn speech(&self) -> Option<&SpeechBackbone> {
        Some(self)
    }
}

impl SpeechBackbone {
    /// Computes each task's loss with its divergence from a teacher.
    pub(super) fn distilled(
        &self,
        encoded: EncodedBatch,
        taught: Taught,
        label_smoothing: f64,
    ) -> Result<Vec<Distillation>, BoxError> {
        let (targets, groups) = (encoded.batch.input.speech()?.targets(), rows_by_task(&encoded));
        let tasks = &encoded.batch.tasks;
        self.decoder.distilled(states(encoded, tasks), &targets, &groups, taught, label_smoothing)
    }

    /// Computes the last states at every token of the reference texts, and the output layer, for a model that learns from this
    /// one.
    pub(super) fn predictions(&self, encoded: EncodedBatch) -> Result<[Tensor<2>; 2], BoxError> {
        let (targets, tasks) = (encoded.batch.input.speech()?.targets(), &encoded.batch.tasks);
        self.decoder.predictions(states(encoded, tasks), &targets)
    }

    /// Returns a position at which a batch shorter than the window can begin, from its own random number.
    pub(super) fn random_start(&self, batch: &TaskBatch) -> usize {
        let Ok(speech) = batch.input.speech() else { return 0 };
        let room = (self.max_frames / self.frames_per_position.max(1)).saturating_sub(speech.positions);
        (speech.draw % (room as u64 + 1)) as usize
    }
}

/// Returns the rows of each task.
fn rows_by_task(encoded: &EncodedBatch) -> Vec<Vec<usize>> {
    (0..encoded.tasks.len()).map(|task| rows_of(&encoded.batch.tasks, task)).collect()
}

/// Returns the states with the vectors of these tasks, one for each row.
fn states<'a>(encoded: EncodedBatch<'a>, tasks: &[usize]) -> SpeechStates<'a> {
    let EncodedBatch { model, batch, states, gates, .. } = encoded;
    let heads = one_hot(tasks, model.heads.len().max(1), &states.device());
    let task = task_vectors(&model.heads, heads);
    SpeechStates { network: &model.backbone, states, lengths: &batch.lengths, gates, task }
}

/// Returns the collator of batches for a backbone, for training or evaluation.
pub(crate) fn collate(data: &DataConfig, speech: &SpeechBackbone, training: bool) -> Result<SpeechCollate, RunError> {
    let collate = SpeechCollate::new(speech, if training { data.pad } else { data.eval_pad })?;
    if !training {
        return Ok(collate);
    }
    // The audio itself is augmented earlier; only the masks are left.
    let masks = AugmentConfig { spec_augment: data.augment.spec_augment.clone(), ..AugmentConfig::default() };
    Ok(collate.with_augment(Augment::new(&masks, speech.window()).map_err(SpeechError::from)?))
}

impl TaskSamples for SpeechDataset {
    fn count(&self) -> usize {
        Dataset::len(self)
    }

    fn sample(&self, index: usize, epoch: u64) -> Result<SampleInput, SampleError> {
        Ok(SampleInput::Speech(Dataset::get(self, index, epoch)?))
    }

    fn name(&self, index: usize) -> String {
        Dataset::name(self, index)
    }

    fn length(&self, index: usize) -> Option<f64> {
        Dataset::length(self, index)
    }

    fn most_demanding(&self) -> Result<Option<(usize, SampleInput)>, SampleError> {
        let sample = SpeechDataset::most_demanding(self)?;
        // In positions of 20 ms, which are about as many as the tokens of fast speech.
        let length = sample.audio.samples() / (2 * HOP) + sample.tokens.len();
        Ok(Some((length, SampleInput::Speech(sample))))
    }

    /// Returns the order of mixed sources, or of recordings in shards.
    fn order(&self, data: &DataConfig, seed: u64) -> Result<Option<Box<dyn Order>>, MixtureError> {
        Ok(match (data.train.weights(), self.blocks()) {
            (Some(weights), _) => Some(Box::new(Mixture::weighted(self.sizes(), &weights, seed)?)),
            (None, _) if data.source_temperature != 1.0 => {
                Some(Box::new(Mixture::tempered(self.sizes(), data.source_temperature, seed)?))
            }
            (None, Some(blocks)) => Some(Box::new(BlockShuffle::new(&blocks, BLOCKS, seed))),
            (None, None) => None,
        })
    }
}
