//! Prerequisites of every stage of a run: device, backbone, and the data of its tasks.

use super::batch::{TaskCollate, TaskDataset, TaskLoader, TaskSamples};
use super::checksum::BackboneChecksum;
use super::evaluator::Evaluator;
use super::modality::Opening;
use super::pretrained::Pretrained;
use super::teacher::WhisperTeacher;
use crate::backbone::SpeechBackbone;
use crate::config::TaskConfig;
use crate::speech::StateCache;
use crate::{Experiment, Interrupt, ModelConfig, RunError, Split, TextNormalizer};
use burn::tensor::Device;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use undertone_data::loader::{Loader, LoaderConfig, Order};
use undertone_fit::Footprint;
use undertone_model::frozen::FrozenDtype;
use undertone_ops::set_kernels;
use undertone_train::ProcessGroup;

/// Experiment with its device and backbone.
pub struct Setup {
    /// Configuration.
    pub experiment: Arc<Experiment>,
    /// Device of all computations.
    pub device: Device,
    /// Backbone of the tasks.
    pub pretrained: Pretrained,
    /// Interruption. It ends the waiting for batches, and the transcription of long recordings for their alignment.
    pub interrupt: Interrupt,
    /// Process group that trains together.
    pub process_group: ProcessGroup,
    /// Whether the stages go on from their checkpoints.
    pub resumes: bool,
    /// Samples by task and split, kept because stages and evaluations use the same ones repeatedly and finding them is
    /// slow.
    samples: RefCell<HashMap<(String, Split), Arc<dyn TaskSamples>>>,
    checksum: OnceCell<BackboneChecksum>,
    teacher: OnceCell<Option<Arc<WhisperTeacher>>>,
}

impl Setup {
    /// Opens the device and loads the backbone.
    ///
    /// # Errors
    /// When the device or the backbone is not available.
    pub fn new(experiment: &Experiment) -> Result<Self, RunError> {
        Self::on_device(experiment, &experiment.open_device()?)
    }

    /// As [`new`](Self::new), on an open device.
    pub(super) fn on_device(experiment: &Experiment, device: &Device) -> Result<Self, RunError> {
        set_kernels(experiment.kernels);
        Ok(Self::of(experiment, device.clone(), Pretrained::load(experiment, device)?))
    }

    /// As [`new`](Self::new), with all of the backbone in f32, whatever `model.frozen_dtype` is: for stages that train it.
    pub(super) fn in_f32(experiment: &Experiment) -> Result<Self, RunError> {
        let model = ModelConfig { frozen_dtype: FrozenDtype::F32, ..experiment.model.clone() };
        Self::on(model, experiment)
    }

    /// As [`new`](Self::new), with the backbone of another section `model`.
    pub(super) fn on(model: ModelConfig, experiment: &Experiment) -> Result<Self, RunError> {
        let Self { device, pretrained, .. } = Self::new(&Experiment { model, ..experiment.clone() })?;
        Ok(Self::of(experiment, device, pretrained))
    }

    /// Returns a setup with a backbone that is already loaded.
    pub fn of(experiment: &Experiment, device: Device, pretrained: Pretrained) -> Self {
        let experiment = Arc::new(experiment.clone());
        Self {
            experiment,
            device,
            pretrained,
            interrupt: Interrupt::default(),
            process_group: ProcessGroup::default(),
            resumes: false,
            samples: RefCell::default(),
            checksum: OnceCell::new(),
            teacher: OnceCell::new(),
        }
    }

    /// Returns the checksum of the backbone, which is computed once.
    pub(super) fn backbone_checksum(&self) -> BackboneChecksum {
        *self.checksum.get_or_init(|| BackboneChecksum::of(&self.experiment, self.pretrained.network()))
    }

    /// Returns the model that the experiment's learns from, which is loaded once; `None` if there is none.
    pub(super) fn teacher(&self) -> Result<Option<Arc<WhisperTeacher>>, RunError> {
        if let Some(teacher) = self.teacher.get() {
            return Ok(teacher.clone());
        }
        let student = self.pretrained.speech().and_then(SpeechBackbone::whisper);
        let teacher = WhisperTeacher::load(&self.experiment, student, &self.device)?.map(Arc::new);
        Ok(self.teacher.get_or_init(|| teacher).clone())
    }

    /// Returns the samples of a split of the given tasks.
    ///
    /// # Errors
    /// When the split has no configured data and no default, or its samples cannot be used.
    pub fn dataset(&self, tasks: &[TaskConfig], split: Split) -> Result<TaskDataset, RunError> {
        let sets = tasks.iter().map(|task| {
            let key = (task.name.clone(), split);
            if let Some(samples) = self.samples.borrow().get(&key) {
                return Ok(samples.clone());
            }
            let samples = self.samples(task, split)?;
            self.samples.borrow_mut().insert(key, samples.clone());
            Ok(samples)
        });
        let heads = tasks.iter().map(|task| task.head.clone()).collect();
        Ok(TaskDataset::new(sets.collect::<Result<_, RunError>>()?, heads))
    }

    fn samples(&self, task: &TaskConfig, split: Split) -> Result<Arc<dyn TaskSamples>, RunError> {
        let seed = split.seed(task.seed(self.experiment.seed));
        let sources = task.data.splits().sources(split).filter(|sources| !sources.is_empty());
        let sources = sources.ok_or_else(|| RunError::unsaid(split))?;
        let (experiment, interrupt) = (&*self.experiment, &self.interrupt);
        self.pretrained.samples(&Opening { experiment, task, split, sources: &sources, seed, interrupt })
    }

    /// Returns the memory footprint of the backbone, for the longest inputs that the heads allow, beside a teacher that is
    /// loaded.
    pub(crate) fn footprint(&self) -> Footprint {
        let teacher = self.teacher.get().and_then(Option::as_ref);
        let own = self.pretrained.footprint(&self.experiment.tasks).holding(self.experiment.model.frozen_dtype);
        let own = own.with_optimizer_state(self.experiment.train.optimizer.algorithm.state_bytes());
        own.beside(teacher.map_or(0, |teacher| teacher.bytes()))
    }

    /// Returns the training batches of a dataset, in a different order every epoch: `order`, or that of the seed.
    ///
    /// # Errors
    /// When the loader cannot be started.
    pub fn training_batches(
        &self,
        dataset: TaskDataset,
        order: Option<Box<dyn Order>>,
    ) -> Result<TaskLoader, RunError> {
        let loader = self.loader(dataset, self.training_loader(), true)?;
        Ok(match order {
            Some(order) => loader.with_order(order),
            None => loader,
        })
    }

    /// Returns the evaluation batches of a split of tasks: always the same ones, one task after the other.
    ///
    /// # Errors
    /// When the split has no data, or the loader cannot be started.
    pub fn evaluation_batches(&self, tasks: &[TaskConfig], split: Split) -> Result<TaskLoader, RunError> {
        self.loader(self.dataset(tasks, split)?, self.experiment.data.eval_loader(self.experiment.seed), false)
    }

    fn loader(&self, dataset: TaskDataset, config: LoaderConfig, training: bool) -> Result<TaskLoader, RunError> {
        let collate = self.collate(training)?.labelled(&dataset);
        let loader = Loader::new(Arc::new(dataset), Arc::new(collate), config)?;
        let interrupt = self.interrupt.clone();
        Ok(loader.until(move || interrupt.is_asked()))
    }

    /// Returns the collator of samples into batches, for training or evaluation.
    ///
    /// # Errors
    /// When Whisper has no features with the model's number of mel bins, or recordings for augmentation cannot be read.
    pub fn collate(&self, training: bool) -> Result<TaskCollate, RunError> {
        self.pretrained.collate(&self.experiment.data, training)
    }

    /// Returns the configuration of the training data loader.
    pub(crate) fn training_loader(&self) -> LoaderConfig {
        self.experiment.data.training_loader(self.experiment.seed)
    }

    /// Returns an evaluator of the given tasks.
    ///
    /// # Errors
    /// When the spelling map of the normaliser cannot be read.
    pub fn evaluator(&self, tasks: Vec<TaskConfig>) -> Result<Evaluator, RunError> {
        let normalizer = match self.pretrained.speech() {
            Some(speech) => TextNormalizer::new(self.experiment.data.normalizer, speech.spellings.as_deref())?,
            None => TextNormalizer::None,
        };
        let (pretrained, router) = (self.pretrained.clone(), self.experiment.router.clone());
        let (device, process_group) = (self.device.clone(), self.process_group.clone());
        let states =
            pretrained.speech().map(|speech| StateCache::open(&self.experiment, speech)).transpose()?.flatten();
        let states = states.map(Arc::new);
        let interrupt = self.interrupt.clone();
        let in_training = false;
        Ok(Evaluator { tasks, pretrained, router, normalizer, device, process_group, states, interrupt, in_training })
    }
}
