//! Fine-tuning (or training from nothing) of a Whisper, as an experiment says.

use crate::advice::Situation;
use crate::footprint::Footprint;
use crate::report::{ReportError, write_report};
use crate::setup::Setup;
use crate::skipped::SkipRecord;
use crate::{
    Experiment, Session, SourceError, SpeechDataset, SpeechError, SpeechModel, Split, WhisperBatch, WhisperCollate,
};
use burn::module::Module;
use std::path::PathBuf;
use undertone_data::features::FeatureError;
use undertone_data::loader::{Loader, LoaderError, MixtureError};
use undertone_ops::DeviceError;
use undertone_store::{StoreError, is_blank, parameter_infos, write_atomically};
use undertone_train::{
    BatchStream, Batches, BoxError, Checkpoints, Learner, Objective, Summary, TrainError, catch_out_of_memory,
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
    /// There is a run of that name.
    #[error("there is a run in `{}`: continue it with --resume, choose another name with --set run.name=NAME, or replace it with --set run.overwrite=true", .0.display())]
    Exists(PathBuf),
    /// The directory to be replaced was not made by a run.
    #[error("`{}` holds something that is no run: choose another name with --set run.name=NAME, or delete it yourself", .0.display())]
    NotARun(PathBuf),
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

impl RunError {
    /// Whether the cause is something the user gave: configuration, model or data.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Store(error) | Self::Train(TrainError::Store(error)) => {
                matches!(error, StoreError::Missing { .. } | StoreError::Shape { .. })
            }
            Self::Report(error) => error.is_bad_input(),
            Self::OutOfMemory(_)
            | Self::Train(TrainError::Io { .. } | TrainError::Export(_) | TrainError::Guard { .. }) => false,
            _ => true,
        }
    }
}

/// Trains what `experiment` says, from its start or, where the session resumes, from its newest checkpoint, until it is
/// done or interrupted.
///
/// # Errors
/// Whatever is wrong with device, model or data is found before the run's directory is made.
pub fn finetune(experiment: &Experiment, session: &Session) -> Result<Finetuned, RunError> {
    let resume = session.resume;
    let directory = experiment.directory();
    if !resume && directory.exists() && !is_blank(&directory) && !experiment.run.overwrite {
        return Err(RunError::Exists(directory));
    }
    let mut setup = Setup::new(experiment)?;
    setup.interrupt = session.interrupt.clone();
    let alignment = &experiment.loss.alignment;
    let layers = setup.whisper.config.encoder_layers;
    if alignment.elements > 0.0 && alignment.elements_layer > layers {
        return Err(RunError::Layer { layer: alignment.elements_layer, layers });
    }
    let batches = Epochs { loader: setup.loader(Split::Train)?, skipped: SkipRecord::new(&directory) };
    let objective = setup.objective(setup.loader(Split::Valid)?);
    let model = SpeechModel::new(&setup.whisper, &experiment.loss, &setup.device)
        .with_gradient_checkpointing(experiment.train.gradient_checkpointing.every());
    let mut config = experiment.train.clone();
    let (optimizer, scaled) = config.optimizer.for_batch(experiment.data.batch_size * config.accumulation);
    optimizer.check(&parameter_infos(&model.clone().train())).map_err(TrainError::from)?;
    config.optimizer = optimizer;
    let situation = Situation::new(experiment, Footprint::whisper(&setup.whisper.config), &model, &setup.device);
    situation.warning(&setup.device).inspect(|warning| eprintln!("{warning}"));
    if !resume && directory.exists() {
        if !directory.join("config.yaml").exists() && !is_blank(&directory) {
            return Err(RunError::NotARun(directory));
        }
        std::fs::remove_dir_all(&directory).map_err(|source| StoreError::Io {
            action: "delete",
            path: directory.clone(),
            source,
        })?;
    }
    let mut learner = Learner::new(config, objective, model, setup.device, &directory, experiment.seed)
        .with_configuration(experiment.to_yaml())
        .with_display(session.display)
        .with_interrupt(session.interrupt.clone());
    if resume {
        if !learner.resume()? {
            return Err(RunError::NothingToResume(directory));
        }
        batches.skipped.resume();
    }
    std::fs::create_dir_all(&directory).map_err(|source| StoreError::Io {
        action: "create",
        path: directory.clone(),
        source,
    })?;
    write_atomically(&directory.join("config.yaml"), experiment.to_yaml().as_bytes())?;
    scaled.iter().for_each(|sentence| eprintln!("{sentence}"));
    let summary = train(&mut learner, &batches, &situation).inspect_err(|_| {
        // A run that failed before its first checkpoint has nothing to go on with and should not be in the way.
        if !resume && Checkpoints::new(directory.join("checkpoints")).is_empty() {
            let _ = std::fs::remove_dir_all(&directory);
        }
    })?;
    batches.skipped.finish(&batches.loader)?.inspect(|sentence| eprintln!("{sentence}"));
    write_report(&directory)?;
    Ok(Finetuned { summary, directory })
}

/// Trains; where memory runs out, the error says what helps.
pub(crate) fn train<O: Objective, B: Batches<Batch = O::Batch>>(
    learner: &mut Learner<O>,
    batches: &B,
    situation: &Situation,
) -> Result<Summary, RunError> {
    match catch_out_of_memory(|| learner.train(batches)) {
        Ok(trained) => Ok(trained?),
        Err(reason) => Err(RunError::OutOfMemory(situation.out_of_memory(&reason))),
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
            let batch = batches.next()?.map_err(BoxError::from);
            let recorded = self.skipped.update(&self.loader).map_err(BoxError::from);
            Some(recorded.and(batch).map(|batch| (batches.cursor(), batch)))
        }))
    }
}
