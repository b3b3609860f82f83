//! Fine-tuning (or training from nothing) of a Whisper, as an experiment says.

use crate::changes::{changes, listed};
use crate::memory::run_settings;
use crate::run_directory::{CONFIG, RunDirectory, has_learned, record, recorded};
use crate::setup::Setup;
use crate::skipped::SkipRecord;
use crate::splits::NONE;
use crate::{
    Experiment, Session, SourceError, SpeechDataset, SpeechError, SpeechModel, Split, WhisperBatch, WhisperCollate,
};
use std::path::{Path, PathBuf};
use undertone_data::features::FeatureError;
use undertone_data::loader::{Loader, LoaderError, MixtureError};
use undertone_data::text::NormalizerError;
use undertone_fit::{Footprint, MemoryAdvice};
use undertone_ops::DeviceError;
use undertone_report::{ReportError, write_report};
use undertone_store::{LockError, StoreError};
use undertone_train::{
    BackendFailure, BatchStream, Batches, BoxError, Learner, Objective, Summary, TrainError, catch_backend_failure,
};

/// What a finished or interrupted run left.
#[derive(Clone, Debug)]
pub struct Finetuned {
    /// What `summary.json` says.
    pub summary: Summary,
    /// The run's directory.
    pub directory: PathBuf,
}

/// Why a run did not come about, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model cannot be had.
    #[error(transparent)]
    Model(#[from] SourceError),
    /// The model's mel bins are none that Whisper has.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The data is unusable.
    #[error(transparent)]
    Data(#[from] SpeechError),
    /// Spellings cannot be had.
    #[error(transparent)]
    Spellings(#[from] NormalizerError),
    /// The loader cannot be started.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// Sources cannot be mixed.
    #[error("the data cannot be mixed: {0}")]
    Mixture(#[from] MixtureError),
    /// There is no data that nothing was decided by.
    #[error(
        "there is no `data.test`, and `data.valid` are recordings that chose the best checkpoint: name others with --set data.test.path=FILE"
    )]
    NoTest,
    /// Nothing says what the model is to be judged by.
    #[error("`data.valid`: {NONE}")]
    NoValid,
    /// There is a run of that name.
    #[error("there is a run in `{}`: continue it with --resume, choose another name with --set run.name=NAME, or replace it with --set run.overwrite=true", .0.display())]
    Exists(PathBuf),
    /// The directory to be replaced was not made by a run.
    #[error("`{}` holds something that is no run: choose another name with --set run.name=NAME, or delete it yourself", .0.display())]
    NotARun(PathBuf),
    /// Another process trains there.
    #[error("{0}: wait until it has ended, or choose another name with --set run.name=NAME")]
    Owned(LockError),
    /// The run to go on with was begun with a configuration that means something else.
    #[error(
        "`{}` cannot go on with another configuration than it was begun with: {changes}; set it back, begin a run of its own with --set run.name=NAME, or write the new value into that file if it means the same (data that was moved, say)",
        path.display()
    )]
    Changed {
        /// The configuration it was begun with.
        path: PathBuf,
        /// The keys with both values.
        changes: String,
    },
    /// What the run was begun with is unknown.
    #[error("`{}` cannot be read ({reason}): it says what the run was begun with, so repair it before you go on with --resume", path.display())]
    Recorded {
        /// The configuration.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no run to go on with.
    #[error("there is no checkpoint to resume from in `{}`: start without --resume, and with --set run.overwrite=true if the directory exists", .0.display())]
    NothingToResume(PathBuf),
    /// The alignment terms ask for a layer the encoder does not have.
    #[error("`loss.alignment.elements_layer` is {layer}: the encoder has {layers} blocks")]
    Layer {
        /// The layer asked for.
        layer: usize,
        /// The encoder's blocks.
        layers: usize,
    },
    /// An allocation failed: what was computed, and what helps.
    #[error("{0}")]
    OutOfMemory(String),
    /// The device or its driver failed, and took with it what was not saved.
    #[error("the device failed: {reason}; {}", kept(*.saved))]
    DeviceFailed {
        /// What the backend said.
        reason: String,
        /// The step of the newest checkpoint.
        saved: Option<u64>,
    },
    /// Training stopped.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run's directory cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was trained cannot be shown.
    #[error("the report cannot be made: {0}")]
    Report(#[from] ReportError),
}

fn kept(saved: Option<u64>) -> String {
    match saved {
        Some(step) => format!("what was learned in {step} steps is saved: go on with --resume, also on another device"),
        None => "there is no checkpoint yet: begin anew, if need be on another device".to_owned(),
    }
}

impl From<LockError> for RunError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Store(error) => Self::Store(error),
            owned => Self::Owned(owned),
        }
    }
}

impl RunError {
    /// Of a split that nothing says the data of.
    pub(crate) fn unsaid(split: Split) -> Self {
        if split == Split::Test { Self::NoTest } else { Self::NoValid }
    }

    /// Whether the cause is something the user gave: configuration, model or data.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Store(error) | Self::Train(TrainError::Store(error) | TrainError::Lock(LockError::Store(error))) => {
                matches!(error, StoreError::Missing { .. } | StoreError::Shape { .. })
            }
            Self::Report(error) => error.is_bad_input(),
            Self::OutOfMemory(_)
            | Self::DeviceFailed { .. }
            | Self::Train(TrainError::Io { .. } | TrainError::Export(_) | TrainError::Guard { .. }) => false,
            _ => true,
        }
    }
}

/// Trains what `experiment` says, from its start or, where the session resumes, from its newest checkpoint, until it is
/// done or interrupted. The run's directory is this process's own from the first moment on. A run that fails keeps what it
/// has learned; one that learned nothing leaves nothing.
///
/// # Errors
/// Whatever is wrong with device, model or data, and with the configuration of a run that is resumed, is found before
/// anything is written.
pub fn finetune(experiment: &Experiment, session: &Session) -> Result<Finetuned, RunError> {
    let directory = RunDirectory::own(experiment.directory())?;
    let resume = goes_on(experiment, session, &directory)?;
    let mut setup = Setup::new(experiment)?;
    setup.interrupt = session.interrupt.clone();
    let alignment = &experiment.loss.alignment;
    let layers = setup.whisper.config.encoder_layers;
    if alignment.elements > 0.0 && alignment.elements_layer > layers {
        return Err(RunError::Layer { layer: alignment.elements_layer, layers });
    }
    let batches = Epochs { loader: setup.loader(Split::Train)?, skipped: SkipRecord::new(directory.path()) };
    let objective = setup.objective(setup.loader(Split::Valid)?)?;
    let model = SpeechModel::new(&setup.whisper, &experiment.loss, &setup.device)
        .with_gradient_checkpointing(experiment.train.gradient_checkpointing.every());
    let mut config = experiment.train.clone();
    let (optimizer, scaled) = config.optimizer.for_batch(batches.loader.samples_per_step(0, config.accumulation));
    config.optimizer = optimizer;
    let advice =
        MemoryAdvice::new(run_settings(experiment), Footprint::whisper(&setup.whisper.config), &model, &setup.device);
    advice.warning(&setup.device).inspect(|warning| eprintln!("{warning}"));
    let mut learner = Learner::new(config, objective, model, setup.device, directory.path(), experiment.seed)
        .with_lock(directory.lock())
        .with_configuration(experiment.to_yaml())
        .with_display(session.display)
        .with_interrupt(session.interrupt.clone());
    if resume {
        if !learner.resume()? {
            return Err(RunError::NothingToResume(directory.path().to_owned()));
        }
        batches.skipped.resume();
    }
    learner.check(&batches)?;
    if !resume {
        directory.clear()?;
    }
    record_changes(experiment, &directory.path().join(CONFIG), learner.steps())?;
    scaled.iter().for_each(|sentence| eprintln!("{sentence}"));
    let summary = train(&mut learner, &batches, &advice).inspect_err(|_| {
        // A run that failed before its first step has nothing to go on with and should not be in the way.
        if !session.resume && learner.steps() == 0 && !has_learned(directory.path()) {
            let _ = directory.clear();
        }
    })?;
    batches.skipped.finish(&batches.loader)?.inspect(|sentence| eprintln!("{sentence}"));
    write_report(directory.path())?;
    Ok(Finetuned { summary, directory: directory.path().to_owned() })
}

/// Whether the run goes on from a checkpoint; one that has learned nothing yet begins again.
fn goes_on(experiment: &Experiment, session: &Session, directory: &RunDirectory) -> Result<bool, RunError> {
    let path = directory.path();
    match (session.resume, directory.is_blank()) {
        (true, true) => Err(RunError::NothingToResume(path.to_owned())),
        (true, false) if has_learned(path) => {
            check_changes(experiment, &path.join(CONFIG), |_| true)?;
            Ok(true)
        }
        (true, false) => {
            eprintln!("`{}` has learned nothing yet: it begins again", path.display());
            Ok(false)
        }
        (false, false) if !experiment.run.overwrite => Err(RunError::Exists(path.to_owned())),
        (false, _) => Ok(false),
    }
}

/// Refuses a configuration that means something else than the one in the file, as far as `concerns` is true of its keys.
pub(crate) fn check_changes(
    experiment: &Experiment,
    path: &Path,
    concerns: impl Fn(&str) -> bool,
) -> Result<(), RunError> {
    let Some(begun) = recorded(path)? else { return Ok(()) };
    let mut changes = changes(&begun, experiment);
    changes.retain(|change| !change.is_harmless() && concerns(&change.key));
    if changes.is_empty() {
        return Ok(());
    }
    Err(RunError::Changed { path: path.to_owned(), changes: listed(&changes) })
}

/// Writes the configuration to the file, and says what is another than in the session before, which ended after `step`.
pub(crate) fn record_changes(experiment: &Experiment, path: &Path, step: u64) -> Result<(), RunError> {
    let before = recorded(path)?;
    let kept = record(experiment, path)?;
    let changes = before.map(|before| changes(&before, experiment)).unwrap_or_default();
    if let (Some(kept), false) = (kept, changes.is_empty()) {
        eprintln!("from step {} on: {} (before: `{}`)", step + 1, listed(&changes), kept.display());
    }
    Ok(())
}

/// Trains; where memory runs out or the device fails, the error says what helps.
pub(crate) fn train<O: Objective, B: Batches<Batch = O::Batch>>(
    learner: &mut Learner<O>,
    batches: &B,
    advice: &MemoryAdvice,
) -> Result<Summary, RunError> {
    match catch_backend_failure(|| learner.train(batches)) {
        Ok(trained) => Ok(trained?),
        Err(BackendFailure::OutOfMemory(reason)) => {
            learner.rescue();
            Err(RunError::OutOfMemory(advice.out_of_memory(&reason)))
        }
        Err(BackendFailure::Device(reason)) => Err(RunError::DeviceFailed { reason, saved: learner.saved() }),
    }
}

/// The loader as the Learner wants it.
struct Epochs {
    loader: Loader<SpeechDataset, WhisperCollate>,
    skipped: SkipRecord,
}

impl Batches for Epochs {
    type Batch = WhisperBatch;

    fn per_epoch(&self) -> usize {
        self.loader.batches(0)
    }

    fn in_epoch(&self, epoch: u64) -> usize {
        self.loader.batches(epoch)
    }

    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, WhisperBatch> {
        let mut batches = self.loader.epoch(epoch, start);
        Box::new(std::iter::from_fn(move || {
            let batch = batches.next()?.map_err(|error| self.skipped.explained(error));
            let recorded = self.skipped.update(&self.loader).map_err(BoxError::from);
            Some(recorded.and(batch).map(|batch| (batches.cursor(), batch)))
        }))
    }
}
