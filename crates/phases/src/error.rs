//! Errors of a run.

use crate::config::{NONE, TaskConfig};
use crate::{ConfigError, SourceError, SpeechError, Split};
use std::path::{Path, PathBuf};
use undertone_data::features::FeatureError;
use undertone_data::loader::{LoaderError, MixtureError};
use undertone_data::text::NormalizerError;
use undertone_model::adaptable::AdaptError;
use undertone_ops::DeviceError;
use undertone_report::{AnalysisError, ReportError};
use undertone_store::{LockError, StoreError};
use undertone_tasks::TextError;
use undertone_train::{AverageError, BoxError, TrainError};
use undertone_transcribe::TranscribeError;

/// Reason why a run cannot start, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A key of the configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The backbone cannot be loaded.
    #[error(transparent)]
    Backbone(#[from] SourceError),
    /// A setting has no effect on the backbone.
    #[error("{0}")]
    Setting(String),
    /// Whisper has no features with the model's number of mel bins.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The data is unusable.
    #[error(transparent)]
    Data(#[from] SpeechError),
    /// The spelling map cannot be read.
    #[error(transparent)]
    Spellings(#[from] NormalizerError),
    /// Checkpoints are not averaged.
    #[error(transparent)]
    Average(#[from] AverageError),
    /// There is no model to blend.
    #[error(
        "a blend is of a Whisper that a run without tasks has trained, and the one that its training began with: give --run of such a run"
    )]
    NoBlend,
    /// Two models have no model between them.
    #[error("the model cannot be blended with `{with}`, which has another architecture: {source}")]
    Blend {
        /// The other model.
        with: String,
        /// Cause.
        source: StoreError,
    },
    /// The loader cannot be started.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// Sources cannot be mixed.
    #[error("the data cannot be mixed: {0}")]
    Mixture(#[from] MixtureError),
    /// There is no test data, and the validation data has selected the best checkpoint.
    #[error(
        "there is no `data.test`, and the samples of `data.valid` have selected the best checkpoint: give others with --set data.test.path=FILE, or tasks.NAME.data.test.path=FILE in a run with tasks"
    )]
    NoTest,
    /// There is no validation data.
    #[error("`data.valid`: {NONE}")]
    NoValid,
    /// A run of that name exists.
    #[error(
        "there is a run in {0}: continue it with --resume, choose another name with --set run.name=NAME, or replace it with --set run.overwrite=true, which deletes what was trained there"
    )]
    Exists(String),
    /// The directory to be replaced was not created by a run.
    #[error("`{}` has content and is not a run: choose another name with --set run.name=NAME, or an empty directory", .0.display())]
    NotARun(PathBuf),
    /// The directory of a run that is to be replaced contains other files.
    #[error("`{}` has files that were not written by a run ({files}): move them elsewhere before the run is replaced, or choose another name with --set run.name=NAME", directory.display())]
    Foreign {
        /// Directory that would be cleared.
        directory: PathBuf,
        /// First few files.
        files: String,
    },
    /// A rank does not share the run's directory.
    #[error("`{}` is another directory for {rank} than for rank 0: processes that train together need one that all of them see, on a file system that their hosts share (--set run.dir=DIR)", directory.display())]
    NotShared {
        /// Rank.
        rank: String,
        /// Directory.
        directory: PathBuf,
    },
    /// Another process is training in the run's directory.
    #[error("{0}: wait until it has ended, or choose another name with --set run.name=NAME")]
    Owned(LockError),
    /// Something other than a lock file has the name of the directory's lock file.
    #[error("{0}, like --set run.name=NAME")]
    NoLock(LockError),
    /// The run to be resumed was started with an incompatible configuration.
    #[error(
        "`{}` cannot be resumed with another configuration: {changes}; restore the value, start a new run with --set run.name=NAME, or write the new value into that file if it means the same (data that was moved, say)",
        path.display()
    )]
    Changed {
        /// Configuration file that it was started with.
        path: PathBuf,
        /// Changed keys with both values.
        changes: String,
    },
    /// The configuration that the run was started with cannot be read.
    #[error("`{}` cannot be read ({reason}): it is the configuration that the run was started with, so repair it before you continue with --resume", path.display())]
    Recorded {
        /// Configuration file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// There is no run to resume.
    #[error("there is no checkpoint to resume from in `{}`: start without --resume, and with --set run.overwrite=true if the directory exists", .0.display())]
    NothingToResume(PathBuf),
    /// A stage of a run is to be resumed that has no checkpoint.
    #[error("there is no checkpoint to resume from in `{}`: delete that folder, and --resume trains it anew", .0.display())]
    NoCheckpoint(PathBuf),
    /// The encoder lacks the layer of the alignment terms.
    #[error("`loss.alignment.elements_layer` is {layer}: the encoder has {layers} blocks")]
    Layer {
        /// Configured layer.
        layer: usize,
        /// Number of encoder blocks.
        layers: usize,
    },
    /// An allocation failed. The message says what was computed, and what helps.
    #[error("{0}")]
    OutOfMemory(String),
    /// The device or its driver failed. Training since the last checkpoint is lost.
    #[error("the device failed{}: {reason}; {}", at(*.step), kept(*.saved))]
    DeviceFailed {
        /// Step in progress. Devices report failures late, so the step before it may have failed.
        step: Option<u64>,
        /// Message of the backend.
        reason: String,
        /// Step of the newest checkpoint.
        saved: Option<u64>,
    },
    /// Training stopped.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run's directory cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The report cannot be created.
    #[error("the report cannot be made: {0}")]
    Report(#[from] ReportError),
    /// The configuration has no tasks, so it has no phases.
    #[error("the configuration has no `tasks`: phases and baselines are for those; train without --phase")]
    NoTasks,
    /// A task's records cannot be used.
    #[error("task `{task}`: {source}")]
    Records {
        /// The task.
        task: String,
        /// Reason.
        source: BoxError,
    },
    /// A task's recordings cannot be used.
    #[error("task `{task}`: {source}")]
    Speech {
        /// The task.
        task: String,
        /// Reason.
        source: Box<SpeechError>,
    },
    /// A head does not fit the backbone.
    #[error("task `{task}`: `head`: {reason}")]
    Head {
        /// The task.
        task: String,
        /// Reason.
        reason: String,
    },
    /// Adapters do not fit the backbone.
    #[error("{task}: {source}")]
    Adapt {
        /// The task, or the stage.
        task: String,
        /// Reason.
        source: AdaptError,
    },
    /// The router's tap is above the last block.
    #[error("`router.tap` is {tap}: the encoder has {blocks} blocks, and adapters need at least one above the tap")]
    Tap {
        /// The tap.
        tap: usize,
        /// Number of encoder blocks.
        blocks: usize,
    },
    /// A router needs at least two tasks.
    #[error("phase {0} needs at least two `tasks`: a router has to choose between tasks")]
    OneTask(usize),
    /// The phase that a phase starts from has not finished.
    #[error("phase {phase} starts from the result of phase {needs}, and `{}` has not finished: train the same configuration with `--phase {needs}` first (and --resume if it was interrupted)", directory.display())]
    Predecessor {
        /// The phase.
        phase: usize,
        /// The one before.
        needs: usize,
        /// The unfinished stage.
        directory: PathBuf,
    },
    /// The phase whose adapters teach a baseline has not finished.
    #[error("the baseline `distilled` learns from the adapters of phase {phase}, and `{}` has not finished: train the same configuration with `--phase {phase}` first, or choose another phase in `phases.baselines.teacher.phase`", directory.display())]
    NoTeacher {
        /// The phase.
        phase: u8,
        /// The unfinished stage.
        directory: PathBuf,
    },
    /// An earlier phase would be trained further or again, and a later one has started from it.
    #[error("`{}` started from the result of an earlier phase, which would be trained again or for more steps: delete it, or train it again with --set run.overwrite=true", .0.display())]
    Outdated(PathBuf),
    /// The description of a folder of adapters is missing or invalid.
    #[error("`{}` cannot be read ({reason}): it is written by a finished phase", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A folder of adapters has an adapter or a head with another configuration.
    #[error("`{}` holds {part} for task `{task}` with {found}, the configuration says {expected}: train phase 1 again, or set the configuration back", path.display())]
    OtherPart {
        /// The folder.
        path: PathBuf,
        /// What it holds: an adapter or a head.
        part: &'static str,
        /// The task.
        task: String,
        /// Its configuration in the folder.
        found: String,
        /// Its configuration in the experiment.
        expected: String,
    },
    /// A folder of adapters has no adapter or head for the task.
    #[error("`{}` holds no adapter for task `{}`: train phase 1 for it", .0.display(), .1)]
    NoPart(PathBuf, String),
    /// The adapters in a folder were trained with another tap or backbone.
    #[error("`{}` was trained on {found}, the configuration says {expected}: train phase 1 again, or set the configuration back", path.display())]
    OtherGround {
        /// The folder.
        path: PathBuf,
        /// Backbone and tap in the folder.
        found: String,
        /// Backbone and tap in the configuration.
        expected: String,
    },
    /// The backbone has other weights than the one that adapters were trained on.
    #[error(
        "`{backbone}` has other weights than it had when the adapters in `{}` were trained on it: give the model with those \
         weights as `model.path`",
        path.display()
    )]
    OtherBackbone {
        /// Folder of the adapters.
        path: PathBuf,
        /// Backbone that was loaded.
        backbone: String,
    },
    /// The run has no tasks to put into one folder.
    #[error("`{}` is a run without tasks: export it as a model or, with --format peft, as an adapter", .0.display())]
    WithoutTasks(PathBuf),
    /// A folder of adapters has a router of another shape, or for other tasks.
    #[error("`{}` holds another router than the configuration describes: train phase 2 again, or set the configuration back", .0.display())]
    OtherRouter(PathBuf),
    /// There is no run.
    #[error("`{}` is not a run: there is no `config.yaml` in it", .0.display())]
    NoRun(PathBuf),
    /// The directory is in a run, but is not that of a stage.
    #[error("`{}` is not a stage of its run: name the run, or a stage like phase1/TASK or phase3 in it", .0.display())]
    NoStage(PathBuf),
    /// The run did not record what its inputs are like.
    #[error(
        "`{key}` needs to know what the inputs of the tasks are like, and `{}` was trained by an earlier version: \
         `train --phase all --resume` records it", .stage.display()
    )]
    NotRecorded {
        /// Key of the configuration.
        key: &'static str,
        /// Directory of the stage.
        stage: PathBuf,
    },
    /// `router.reject` is too low for the number of inputs that are compared.
    #[error(
        "`router.reject` is {0}, which rejects nothing: with so few validation inputs to compare with, it must be above {1:.4}"
    )]
    Reject(f64, f64),
    /// There are no inputs of none of the tasks.
    #[error("`{}` has no input: give a file with a text on each line, or for speech a recording or a folder of recordings", .0.display())]
    NoOthers(PathBuf),
    /// The run has no task of this name.
    #[error("there is no task `{task}`: there is {known}")]
    NoSuchTask {
        /// The name.
        task: String,
        /// Names of the tasks.
        known: String,
    },
    /// The run has several tasks, and none was named.
    #[error("the run has several tasks: name one with --task: {0}")]
    WhichTask(String),
    /// No model has been exported yet.
    #[error("`{}` has no model yet: there is no `best` in it", .0.display())]
    NoModel(PathBuf),
    /// A command for runs with tasks was given a run without tasks.
    #[error("`{}` has no `tasks`: {instead}", directory.display())]
    OtherKind {
        /// The run.
        directory: PathBuf,
        /// Command to use instead.
        instead: String,
    },
    /// A run with tasks was to go on as one without, or the other way round.
    #[error("`{}` is another run, with `tasks` where this one has none, or without: choose another name with --set run.name=NAME", .0.display())]
    OtherRun(PathBuf),
    /// No phase has finished.
    #[error("`{}` has no finished phase: train its configuration with `--phase 1` first", .0.display())]
    NothingTrained(PathBuf),
    /// There is no router yet.
    #[error("`{}` has no router over its tasks, which would select the task of an input: train its configuration with `--phase 2` (and `--set run.overwrite=true`, if a task was added after it), or name the task with --task", .0.display())]
    NoRouter(PathBuf),
    /// The backbone takes another kind of input.
    #[error("the run's backbone takes {0}")]
    Modality(&'static str),
    /// A task's vector is wider than the token embeddings.
    #[error(
        "the vector of a task cannot be merged into token embeddings of `embedding_size`, which are narrower: export all tasks with --format dynamo"
    )]
    NarrowEmbeddings,
    /// The task of a text, named or chosen by the router, needs a context, and there is none.
    #[error("the task `{0}` finds answers in a context: give one with --context, or in a column `context`")]
    NoContext(String),
    /// A text cannot be tokenised.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Audio cannot be read, or a prompt cannot be created.
    #[error(transparent)]
    Input(#[from] TranscribeError),
    /// No sample has what results are to be grouped by.
    #[error("no sample has `{by}` to group by: {known}")]
    NoGroup {
        /// What was asked for.
        by: String,
        /// What can be asked for.
        known: String,
    },
    /// Two models that are compared answered different samples.
    #[error(
        "the models cannot be compared, because the samples of `{with}` are others ({reason}): compare models that read the same windows and normalise texts in the same way"
    )]
    OtherSamples {
        /// The other model.
        with: String,
        /// First difference.
        reason: String,
    },
    /// A model cannot be compared with this one.
    #[error("the model cannot be compared with `{with}`: {reason}")]
    NoRival {
        /// The other model.
        with: String,
        /// Reason, and the remedy.
        reason: String,
    },
    /// A source cannot be evaluated on.
    #[error("`{data}` cannot be evaluated on: {reason}")]
    EvaluationData {
        /// The source.
        data: String,
        /// Reason, and the remedy.
        reason: String,
    },
    /// A model could not be evaluated.
    #[error("the model cannot be evaluated: {0}")]
    Evaluate(BoxError),
    /// The user interrupted the reading of inputs that a finished router is described by.
    #[error("interrupted before the inputs of the router were described: train with --resume does so")]
    Interrupted,
    /// There is no cache to fill, because it is off.
    #[error("`data.cache.what` is off, so there is no cache: set it to `audio` or `features`")]
    CacheOff,
    /// The cache is filled by training.
    #[error(
        "`data.cache.what: encoder` keeps what the encoder makes of recordings, which the first epoch of training computes \
         anyway: start the training"
    )]
    FilledByTraining,
    /// There are no recordings to cache.
    #[error("`data.cache` keeps what is read of recordings, and all training and validation data is synthesised")]
    NothingToCache,
    /// There are no recordings to label.
    #[error("there is nothing to label: all training data is synthesised, and has its texts")]
    NothingToLabel,
    /// A recording is in a file with others, and a list cannot name it.
    #[error(
        "the recording `{0}` is not in a file of its own, so a list cannot name it: label recordings that are files, or write those of Parquet and tar shards into files first"
    )]
    NotInFiles(String),
    /// The analysis of the results failed.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
}

fn at(step: Option<u64>) -> String {
    match step {
        None => String::new(),
        Some(1) => " in step 1".into(),
        Some(step) => format!(" in step {step} or the one before it"),
    }
}

fn kept(saved: Option<u64>) -> String {
    match saved {
        Some(step) => format!("the checkpoint of step {step} is saved: continue with --resume, also on another device"),
        None => "there is no checkpoint yet: start again, if need be on another device".to_owned(),
    }
}

impl From<LockError> for RunError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Store(error) => Self::Store(error),
            owned @ LockError::Owned { .. } => Self::Owned(owned),
            foreign @ LockError::Foreign { .. } => Self::NoLock(foreign),
        }
    }
}

impl RunError {
    /// Returns the error for a task's recordings.
    pub(crate) fn of_speech(task: &TaskConfig, source: SpeechError) -> Self {
        match task.label() {
            None => Self::Data(source),
            Some(task) => Self::Speech { task: task.to_owned(), source: Box::new(source) },
        }
    }

    /// Returns the error for a failed operation on a file or folder.
    pub(crate) fn of_file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| StoreError::Io { action, path, source }.into()
    }

    /// Whether the user interrupted the run before there was anything to save.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Interrupted | Self::Data(SpeechError::Interrupted { .. }) => true,
            Self::Speech { source, .. } => matches!(**source, SpeechError::Interrupted { .. }),
            _ => false,
        }
    }

    /// Returns the error for a split without configured data.
    pub(crate) fn unsaid(split: Split) -> Self {
        if split == Split::Test { Self::NoTest } else { Self::NoValid }
    }

    /// Whether the cause is an input of the user: configuration, model or data.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Store(error) | Self::Train(TrainError::Store(error) | TrainError::Lock(LockError::Store(error))) => {
                matches!(error, StoreError::Missing { .. } | StoreError::Shape { .. })
            }
            Self::Report(error) => error.is_bad_input(),
            Self::OutOfMemory(_)
            | Self::DeviceFailed { .. }
            | Self::Train(
                TrainError::Io { .. }
                | TrainError::Export(_)
                | TrainError::Guard { .. }
                | TrainError::Ranks(_)
                | TrainError::Rank { .. }
                | TrainError::Diverged { .. },
            ) => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_ranks_do_is_no_bad_input() {
        let failed = TrainError::Rank { rank: "rank 1".into(), message: "no memory".into() };
        assert!(!RunError::Train(failed).is_bad_input());
        assert!(RunError::Train(TrainError::IdleRanks { ranks: 3, batches: 2 }).is_bad_input());
    }
}
