//! Preparation and training of a stage.

use super::model::TaskModel;
use super::objective::{RoutingPolicy, StageBatches, TaskObjective};
use super::setup::Setup;
use super::spec::StageSpec;
use super::words;
use crate::config::CONFIG;
use crate::memory::run_settings;
use crate::run_directory::{RunDirectory, STAGE, has_learned, is_occupied, record_changes};
use crate::{Experiment, RunError, Session, SpeechError};
use burn::tensor::Device;
use undertone_data::cache::CacheWhat;
use undertone_fit::MemoryAdvice;
use undertone_report::write_report;
use undertone_train::{BackendFailure, Learner, Summary, TrainConfig, catch_backend_failure};

/// Everything a stage is trained with, for your own training loop.
pub struct Run {
    /// Device, without autodiff.
    pub device: Device,
    /// Training configuration.
    pub config: TrainConfig,
    /// Initial model, with trained parameters marked.
    pub model: TaskModel,
    /// Training batches.
    pub batches: StageBatches,
    /// Objective: loss and evaluation.
    pub objective: TaskObjective,
    /// Seed of everything random in training.
    pub seed: u64,
    /// Message on the scaling of the learning rate, if it depends on the batch size.
    pub scaled: Option<String>,
}

const CTC_WITHOUT_ENCODER: &str = "`loss.ctc` trains the encoder, and all targets of the adapter are in the decoder: add some in the encoder, or leave it out";

/// Minimum number of samples in a batch whose router inputs, less their mean, can be similar: two point in opposite directions.
const FEWEST_COMPARED: usize = 3;

impl Setup {
    /// Prepares a stage for training, without writing anything.
    ///
    /// # Errors
    /// When the data cannot be used, or the results of an earlier stage are missing.
    pub fn run(&self, stage: &StageSpec) -> Result<Run, RunError> {
        let (mut config, seed) = (stage.config(self)?, stage.seed);
        // A newly initialised backbone was drawn from the seed of the experiment, and random numbers go on after it.
        if seed != self.experiment.seed {
            undertone_ops::seed(seed);
        }
        // Heads of registered kinds may use Burn's own initializers.
        self.device.seed(seed);
        let mut model = stage.model(self)?.with_gradient_checkpointing(config.gradient_checkpointing.every());
        let weight = self.experiment.router.words;
        if weight > 0.0
            && let Some(words) = words::count(stage, self)?
        {
            model = model.with_words(words, weight);
        }
        if self.experiment.data.cache.what() == CacheWhat::Encoder
            && let Some(adapted) = model.adapted_block()
        {
            return Err(SpeechError::TrainedEncoder(adapted).into());
        }
        if stage.loss.ctc > 0.0 && !stage.description.adapters.is_empty() && model.adapted_block().is_none() {
            return Err(RunError::Setting(CTC_WITHOUT_ENCODER.into()));
        }
        if let RoutingPolicy::Router { weights, .. } = &stage.policy
            && weights.consistency > 0.0
            && self.experiment.data.batch_size < FEWEST_COMPARED
        {
            tracing::warn!(
                "the router's loss `consistency` compares the samples of a batch, and {} are too few: set `data.batch_size` to \
                 {FEWEST_COMPARED} or more, or the loss to 0",
                self.experiment.data.batch_size
            );
        }
        let batches = stage.batches(self, &config)?;
        let samples = batches.loader.samples_per_step(0, stage.window(self, &config));
        let (optimizer, scaled) = stage.optimizer(&config).for_batch(samples);
        config.optimizer = optimizer;
        let objective = stage.objective(self)?;
        Ok(Run { device: self.device.clone(), config, model, batches, objective, seed, scaled })
    }
}

impl Experiment {
    /// Opens the device, loads the model, opens the data, and prepares the first stage: the only one without `tasks`,
    /// otherwise phase 1 of the first task. Nothing is written.
    ///
    /// # Errors
    /// When device, model or data are not available.
    pub fn build(&self) -> Result<Run, RunError> {
        Setup::new(self)?.run(&StageSpec::first(self))
    }
}

/// Stage that is ready for training.
pub(super) struct Prepared<'a> {
    stage: &'a StageSpec,
    learner: Learner<TaskObjective>,
    batches: StageBatches,
    experiment: &'a Experiment,
    advice: MemoryAdvice,
    scaled: Option<String>,
    run: &'a RunDirectory,
    /// Whether it resumes from a checkpoint.
    goes_on: bool,
    session: &'a Session,
}

impl<'a> Prepared<'a> {
    /// Prepares the training of `stage`, from the start or, if the session resumes, from its checkpoint. Nothing is
    /// written.
    ///
    /// # Errors
    /// As for [`Setup::run`], and when there is no checkpoint to resume from, or it does not fit.
    pub fn new(
        stage: &'a StageSpec,
        setup: &'a Setup,
        run: &'a RunDirectory,
        session: &'a Session,
    ) -> Result<Self, RunError> {
        let (experiment, directory) = (&*setup.experiment, &stage.directory);
        let goes_on = session.resume && has_learned(directory);
        if session.resume && !goes_on && is_occupied(directory) {
            tracing::warn!("`{}` has no checkpoint yet: it begins again", directory.display());
        }
        let Run { device, config, model, batches, objective, seed, scaled } = setup.run(stage)?;
        objective.evaluator.remark().inspect(|remark| tracing::info!("{remark}"));
        let compute = experiment.train.compute.number_type();
        let footprint = match &model.alignment.ctc_head {
            Some(head) => setup.footprint().with_ctc(head.weight.dims()[0]),
            None => setup.footprint(),
        };
        let advice = MemoryAdvice::new(run_settings(experiment), footprint, &model, &setup.device, compute);
        advice.warning(&setup.device).inspect(|warning| tracing::warn!("{warning}"));
        let mut learner = Learner::builder(config, objective, model, directory)
            .with_device(device)
            .with_seed(seed)
            .with_configuration(experiment.to_yaml())
            .with_display(session.display)
            .with_interrupt(session.interrupt.flag())
            .with_process_group(session.process_group.clone());
        if let Some(lock) = run.lock.clone().filter(|_| *directory == run.path) {
            learner = learner.with_lock(lock);
        }
        let mut learner = learner.build();
        if goes_on {
            if !learner.resume()? {
                return Err(match *directory == run.path {
                    true => RunError::NothingToResume(directory.clone()),
                    false => RunError::NoCheckpoint(directory.clone()),
                });
            }
            batches.skipped.resume();
        }
        learner.check(&batches)?;
        Ok(Self { stage, experiment, learner, batches, advice, scaled, run, goes_on, session })
    }

    /// Trains the stage to its end, or until an interruption.
    ///
    /// # Errors
    /// When data, device or file system fail.
    pub fn train(mut self) -> Result<Summary, RunError> {
        let Session { interrupt, process_group, .. } = self.session;
        let (_heeding, writes) = (interrupt.heed(), process_group.is_main_process());
        if writes {
            self.begin_directory()?;
        }
        let (directory, batches) = (&self.stage.directory, &self.batches);
        self.scaled.iter().for_each(|sentence| tracing::info!("{sentence}"));
        let summary = train(&mut self.learner, batches, &self.advice).inspect_err(|_| {
            // A stage that failed before its first step has nothing to resume, so its directory is removed.
            if writes && self.learner.steps() == 0 && !has_learned(directory) {
                let _ = self.run.clear(directory);
            }
        })?;
        let skipped = batches.skipped.finish(&batches.loader, process_group)?;
        skipped.inspect(|sentence| tracing::warn!("{sentence}"));
        if writes {
            write_report(directory)?;
        }
        Ok(summary)
    }

    /// Creates the stage's directory, empty unless the stage resumes, and records the configuration there.
    fn begin_directory(&self) -> Result<(), RunError> {
        let directory = &self.stage.directory;
        if !self.goes_on {
            self.run.clear(directory)?;
        }
        std::fs::create_dir_all(directory).map_err(RunError::of_file("create", directory))?;
        let name = if *directory == self.run.path { CONFIG } else { STAGE };
        record_changes(self.experiment, &directory.join(name), self.learner.steps())
    }
}

/// Trains the learner. If memory runs out or the device fails, the error says what helps.
fn train(
    learner: &mut Learner<TaskObjective>,
    batches: &StageBatches,
    advice: &MemoryAdvice,
) -> Result<Summary, RunError> {
    match catch_backend_failure(|| learner.train(batches)) {
        Ok(trained) => Ok(trained?),
        Err(BackendFailure::OutOfMemory(reason)) => {
            learner.rescue();
            Err(RunError::OutOfMemory(advice.out_of_memory(&reason)))
        }
        Err(BackendFailure::Device(reason)) => {
            let step = Some(learner.steps() + 1);
            Err(RunError::DeviceFailed { step, reason, saved: learner.saved() })
        }
    }
}
