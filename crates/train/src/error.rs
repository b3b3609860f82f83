//! Why training stops.

use crate::Amount;
use crate::config_error::TrainConfigError;
use crate::guard::Trouble;
use crate::objective::BoxError;
use std::path::{Path, PathBuf};
use undertone_ops::{DeviceError, NcclError};
use undertone_ranks::RankError;
use undertone_store::{LockError, StoreError};

/// Why training stopped short.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A batch could not be loaded, or did not fit the model.
    #[error("{0}")]
    Data(BoxError),
    /// The best model could not be written.
    #[error("the best model cannot be written: {0}")]
    Export(BoxError),
    /// The schedule has nothing after its warm-up.
    #[error("`train.optimizer.warmup_steps` is {warmup} and the run has {steps} steps: it must be below that")]
    Warmup {
        /// Steps of warm-up.
        warmup: u64,
        /// Steps of the run.
        steps: u64,
    },
    /// What the configuration says does not fit the model.
    #[error(transparent)]
    Config(#[from] TrainConfigError),
    /// Batches of one optimizer step have different loss terms.
    #[error(
        "batches of one optimizer step have {0} and {1} loss terms: an objective gives the same terms for every batch"
    )]
    Terms(usize, usize),
    /// There are more loss terms than counts.
    #[error(
        "the objective counts {counts} loss terms and gives {terms}: {uncounted} would be left out, so let `Objective::counts` say what each is divided by"
    )]
    Uncounted {
        /// How many it counts.
        counts: usize,
        /// The terms' names.
        terms: String,
        /// Those of them that have no count.
        uncounted: String,
    },
    /// There are fewer loss terms than counts.
    #[error(
        "the objective counts {counts} loss terms and gives only {number} ({terms}): one that has nothing to say in a batch is a sum of 0 there"
    )]
    Unheard {
        /// How many it counts.
        counts: usize,
        /// The terms' names.
        terms: String,
        /// How many there are.
        number: usize,
    },
    /// Two loss terms have one name.
    #[error("two loss terms of the objective are called `{0}`: logs tell them apart by their names")]
    SameName(String),
    /// The loss terms change their names within an optimizer step.
    #[error(
        "batches of one optimizer step have the loss terms {0} and {1}: an objective gives the same terms for every batch"
    )]
    Renamed(String, String),
    /// The loss is no number any more, or far above the ones before it, and it was asked for or came too often to go on.
    #[error("{trouble}: lower `train.optimizer.lr` or look at those samples{}{}", after(*.incidents), from(.checkpoint.as_deref()))]
    Guard {
        /// What happened, at which step and to which samples.
        trouble: Trouble,
        /// How often it was skipped or rolled back before.
        incidents: u64,
        /// The checkpoint that a run goes on from.
        checkpoint: Option<PathBuf>,
    },
    /// Early stopping watches a metric that is not there.
    #[error("`train.early_stopping.metric` is `{metric}`, and an evaluation has {found}")]
    NoMetric {
        /// The metric.
        metric: String,
        /// Those there are.
        found: String,
    },
    /// Parameters that should be trained take no part in the loss.
    #[error(
        "after {steps} steps these trainable parameters have never received a gradient: {names}; freeze them or use them in the loss"
    )]
    NoGradient {
        /// Steps taken.
        steps: u64,
        /// The first few names.
        names: String,
    },
    /// A parameter is larger than the device takes in one piece.
    #[error(
        "`{name}` of the model takes {needed} in one piece, and the device takes no more than {most}: train it on another device, or a smaller model"
    )]
    TooLarge {
        /// The parameter.
        name: String,
        /// Its size.
        needed: Amount,
        /// The largest there can be.
        most: Amount,
    },
    /// There is nothing to train on.
    #[error("the training data has no batch: give it samples, or a smaller `data.batch_size` where `drop_last` is set")]
    NoData,
    /// A checkpoint belongs to another run.
    #[error("checkpoint `{}` was made with seed {found}, this run has seed {expected}: resume with the seed it was made with", path.display())]
    Seed {
        /// The checkpoint.
        path: PathBuf,
        /// Its seed.
        found: u64,
        /// The run's.
        expected: u64,
    },
    /// What a checkpoint leaves out has changed since.
    #[error("checkpoint `{}` was made with other frozen weights than this run has: resume with the model (and what earlier stages trained) that it was made with, or start anew without --resume", .0.display())]
    Frozen(PathBuf),
    /// A checkpoint was made by another optimizer.
    #[error("checkpoint `{}` holds the state of {found}, this run is trained with {expected}: resume with the `train.optimizer` it was made with, or start anew without --resume", path.display())]
    Optimizer {
        /// The checkpoint.
        path: PathBuf,
        /// Its optimizer.
        found: String,
        /// The run's.
        expected: String,
    },
    /// A checkpoint was made with other batches.
    #[error("the checkpoint was made with {} batches an epoch and accumulation {}, this run has {} and {}: resume with the data, batch size and accumulation it was made with", found.0, found.1, expected.0, expected.1)]
    Batching {
        /// Batches per epoch and accumulation of the checkpoint.
        found: (usize, usize),
        /// Those of this run.
        expected: (usize, usize),
    },
    /// The device is none that can be trained on.
    #[error(transparent)]
    Backend(#[from] DeviceError),
    /// The ranks cannot go on together.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// The ranks' cards cannot add up gradients.
    #[error(transparent)]
    Cards(#[from] NcclError),
    /// A run goes on with more ranks than a step has batches.
    #[error(
        "each step of this run has {batches} batches, which is too few for {ranks} ranks: go on with at most {batches}"
    )]
    IdleRanks {
        /// How many ranks there are.
        ranks: usize,
        /// How many batches a step has.
        batches: usize,
    },
    /// A rank has other parameters than the others.
    #[error(
        "{rank} has other parameters than the others after step {step}, and what it computes cannot be trusted: go on without that \
         machine, with --resume from the checkpoint before"
    )]
    Diverged {
        /// Which one.
        rank: String,
        /// The step.
        step: u64,
    },
    /// A rank would train something else.
    #[error("{rank} has {what}, unlike the others")]
    RanksDiffer {
        /// Which one.
        rank: String,
        /// What it has.
        what: &'static str,
    },
    /// Another rank has failed.
    #[error("{rank} failed: {message}")]
    Rank {
        /// Which one.
        rank: String,
        /// What it said.
        message: String,
    },
    /// Another process trains in the run's directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The run's directory cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run's directory cannot be read or written.
    #[error("cannot write `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn from(checkpoint: Option<&Path>) -> String {
    checkpoint.map(|path| format!("; --resume goes on from `{}`", path.display())).unwrap_or_default()
}

fn after(incidents: u64) -> String {
    if incidents == 0 { String::new() } else { format!(" (it was passed over {incidents} times before)") }
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError {
    let path = path.to_owned();
    move |source| TrainError::Io { path, source }
}
