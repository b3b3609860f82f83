//! What every phase begins with: backbone, tasks and loaders.

use super::batch::{TaskCollate, TaskDataset, TaskSamples};
use super::config::TaskConfig;
use super::error::DynamoError;
use super::evaluate::Judge;
use super::order::TaskOrder;
use super::pretrained::Pretrained;
use super::text_data::read_texts;
use crate::footprint::Footprint;
use crate::setup::collate;
use crate::{Experiment, RunError, SpeechDataset, Split};
use burn::tensor::Device;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone_data::loader::{Loader, LoaderConfig};
use undertone_ops::set_kernels;
use undertone_tasks::TextDataset;

/// An experiment with its device and backbone in place.
pub(super) struct Setup<'a> {
    pub experiment: &'a Experiment,
    pub device: Device,
    pub pretrained: Pretrained,
    /// Once set, nobody waits for a batch any longer, and a model that listens to long recordings stops.
    pub interrupt: Arc<AtomicBool>,
    /// Texts by task and split: stages and judges ask for the same again and again, and to read them takes a while.
    texts: RefCell<HashMap<(String, Split), Arc<TextDataset>>>,
}

impl<'a> Setup<'a> {
    pub fn new(experiment: &'a Experiment) -> Result<Self, DynamoError> {
        let device = experiment.device.resolve().map_err(RunError::from)?;
        set_kernels(experiment.kernels);
        let pretrained = Pretrained::load(experiment, &device)?;
        Ok(Self { experiment, device, pretrained, interrupt: Arc::default(), texts: RefCell::default() })
    }

    /// The samples of a split of the given tasks.
    pub fn dataset(&self, tasks: &[TaskConfig], split: Split) -> Result<TaskDataset, DynamoError> {
        let sets = tasks.iter().map(|task| {
            let seed = split.seed(seed_of(self.experiment.seed, &task.name));
            // One, for a task is trained on one.
            let sources = task.data.splits().sources(split).ok_or_else(|| RunError::unsaid(split))?;
            let source = sources.first().ok_or_else(|| RunError::unsaid(split))?;
            match &self.pretrained {
                Pretrained::Whisper(whisper) => {
                    let training = split == Split::Train;
                    let (experiment, interrupt) = (self.experiment, &self.interrupt);
                    let samples =
                        SpeechDataset::interruptible(experiment, &[source], whisper, training, seed, interrupt);
                    let samples = samples
                        .map_err(|source| DynamoError::Speech { task: task.name.clone(), source: Box::new(source) })?;
                    Ok(TaskSamples::Speech(Box::new(samples)))
                }
                Pretrained::Text(backbone) => {
                    let key = (task.name.clone(), split);
                    if let Some(samples) = self.texts.borrow().get(&key) {
                        return Ok(TaskSamples::Text(samples.clone()));
                    }
                    let samples = read_texts(task, source, &backbone.framer)
                        .map_err(|source| DynamoError::Data { task: task.name.clone(), source: Box::new(source) })?;
                    Ok(TaskSamples::Text(self.texts.borrow_mut().entry(key).or_insert(Arc::new(samples)).clone()))
                }
            }
        });
        let heads = tasks.iter().map(|task| task.head.clone()).collect();
        Ok(TaskDataset::new(sets.collect::<Result<_, DynamoError>>()?, heads))
    }

    /// What the backbone takes in memory, on the longest inputs that the heads allow.
    pub fn footprint(&self) -> Footprint {
        match &self.pretrained {
            Pretrained::Whisper(whisper) => Footprint::whisper(&whisper.config),
            Pretrained::Text(backbone) => {
                let tokens = self.experiment.tasks.iter().map(|task| task.head.max_input()).max().unwrap_or_default();
                Footprint::text(&backbone.text.config, tokens)
            }
        }
    }

    /// Batches of a dataset: for training in the given order, otherwise one task after the other.
    pub fn loader(
        &self,
        dataset: TaskDataset,
        order: Option<TaskOrder>,
    ) -> Result<Loader<TaskDataset, TaskCollate>, DynamoError> {
        let data = &self.experiment.data;
        let training = order.is_some();
        let loader = if training { self.training_loader() } else { data.eval_loader(self.experiment.seed) };
        let collate = self.collate(training)?;
        let collate = Arc::new(if training { collate.labelled(&dataset) } else { collate });
        let interrupt = self.interrupt.clone();
        let loader = Loader::new(Arc::new(dataset), collate, loader).map_err(RunError::from)?;
        let loader = loader.until(move || interrupt.load(Ordering::Relaxed));
        Ok(match order {
            Some(order) => loader.with_order(order),
            None => loader,
        })
    }

    /// What makes batches of samples, in training or where a model is judged.
    pub fn collate(&self, training: bool) -> Result<TaskCollate, DynamoError> {
        Ok(match &self.pretrained {
            Pretrained::Whisper(whisper) => {
                TaskCollate::Speech(Box::new(collate(&self.experiment.data, whisper, training)?))
            }
            Pretrained::Text(backbone) => TaskCollate::Text { pad: backbone.tokenizer.pad(), heads: Vec::new() },
        })
    }

    /// How training batches are made.
    pub fn training_loader(&self) -> LoaderConfig {
        self.experiment.data.training_loader(self.experiment.seed)
    }

    /// A judge of the given tasks.
    pub fn judge(&self, tasks: Vec<TaskConfig>) -> Judge {
        Judge {
            tasks,
            pretrained: self.pretrained.clone(),
            router: self.experiment.router.clone(),
            device: self.device.clone(),
        }
    }
}

/// A seed for something that has a name: the same whatever else there is (FNV-1a).
pub(crate) fn seed_of(seed: u64, name: &str) -> u64 {
    name.bytes()
        .fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
