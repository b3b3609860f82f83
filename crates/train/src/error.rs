//! Errors of training.

use crate::Amount;
use crate::config_error::TrainConfigError;
use crate::guard::Trouble;
use crate::objective::BoxError;
use std::path::{Path, PathBuf};
use undertone_ops::{DeviceError, NcclError};
use undertone_ranks::RankError;
use undertone_store::{LockError, StoreError};

/// Why training stopped early.
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
    /// The configuration does not fit the model.
    #[error(transparent)]
    Config(#[from] TrainConfigError),
    /// The loss terms that the objective lists and those that it returns differ.
    #[error(
        "the objective lists {} loss terms ({}) and returns {}{} ({}): `Objective::losses` returns the sum of each term that \
         `Objective::loss_terms` lists, and of no other; a term to which a batch adds nothing has a sum of 0",
        listed.len(), quoted(listed), if returned.len() < listed.len() { "only " } else { "" }, returned.len(), quoted(returned)
    )]
    LossTerms {
        /// Names of the terms of the batch.
        listed: Vec<String>,
        /// Names of its sums.
        returned: Vec<String>,
    },
    /// A loss term counts less than nothing, or no number.
    #[error("the loss term `{name}` of the objective has a count of {count}: return the number of labels, 0 or more")]
    Count {
        /// Name of the term.
        name: String,
        /// Its count.
        count: f64,
    },
    /// A sum of losses is more than one value.
    #[error("`Objective::losses` returns {values} values for `{name}`: return their sum, of shape [1]")]
    SumShape {
        /// Name of the term.
        name: String,
        /// Number of its values.
        values: usize,
    },
    /// The directory of the run is no longer there.
    #[error("`{}` was moved or deleted while it was trained, and nothing more is written: move it back, and --resume goes on from its last checkpoint", .0.display())]
    Moved(PathBuf),
    /// Two loss terms have the same name.
    #[error("two loss terms of the objective are called `{0}`: logs tell them apart by their names")]
    SameName(String),
    /// Batches of one optimizer step have different loss terms.
    #[error(
        "batches of one optimizer step have the loss terms {} and {}: an objective lists the same terms for every batch",
        quoted(.0), quoted(.1)
    )]
    TermsDiffer(Vec<String>, Vec<String>),
    /// The loss is not finite, or a spike, and the guard stops for that, or it was skipped or rolled back too often.
    #[error("{trouble}: lower `train.optimizer.lr` or look at those samples{}{}", after(*.incidents), from(.checkpoint.as_deref()))]
    Guard {
        /// The step, its loss and its samples.
        trouble: Trouble,
        /// Number of skips and rollbacks before.
        incidents: u64,
        /// Checkpoint from which the run can be resumed.
        checkpoint: Option<PathBuf>,
    },
    /// Early stopping watches a metric that the evaluation does not have.
    #[error("`train.early_stopping.metric` is `{metric}`, and an evaluation has {found}")]
    NoMetric {
        /// Name of the metric.
        metric: String,
        /// Names of the metrics that there are.
        found: String,
    },
    /// Trainable parameters take no part in the loss.
    #[error(
        "after {steps} steps these trainable parameters have never received a gradient: {names}; freeze them or use them in the loss"
    )]
    NoGradient {
        /// Optimizer steps taken.
        steps: u64,
        /// The first few names.
        names: String,
    },
    /// A parameter is larger than the device's maximum allocation.
    #[error(
        "`{name}` of the model takes {needed} in one piece, and the device takes no more than {most}: train it on another device, or a smaller model"
    )]
    TooLarge {
        /// Name of the parameter.
        name: String,
        /// Its size.
        needed: Amount,
        /// Maximum size.
        most: Amount,
    },
    /// There is no training data.
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
    /// The frozen weights, which a checkpoint leaves out, differ from the run's.
    #[error("checkpoint `{}` was made with other frozen weights than this run has: resume with the model (and what earlier stages trained) that it was made with, or start anew without --resume", .0.display())]
    Frozen(PathBuf),
    /// A checkpoint has the state of another optimizer.
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
    /// The device cannot be used for training.
    #[error(transparent)]
    Backend(#[from] DeviceError),
    /// Communication between the ranks failed.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// NCCL cannot sum gradients between the ranks' cards.
    #[error(transparent)]
    Cards(#[from] NcclError),
    /// A run is resumed with more ranks than a step has batches.
    #[error(
        "each step of this run has {batches} batches, which is too few for {ranks} ranks: go on with at most {batches}"
    )]
    IdleRanks {
        /// Number of ranks.
        ranks: usize,
        /// Number of batches of a step.
        batches: usize,
    },
    /// The parameters of a rank differ from those of the others.
    #[error(
        "{rank} has other parameters than the others after step {step}, and what it computes cannot be trusted: go on without that \
         machine, with --resume from the checkpoint before"
    )]
    Diverged {
        /// Name of the rank.
        rank: String,
        /// The step.
        step: u64,
    },
    /// A rank would train something else than the others.
    #[error("{rank} has {what}, unlike the others")]
    RanksDiffer {
        /// Name of the rank.
        rank: String,
        /// Description of the difference.
        what: &'static str,
    },
    /// Another rank has failed.
    #[error("{rank} failed: {message}")]
    Rank {
        /// Name of the rank.
        rank: String,
        /// Error message of the rank.
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
        /// The system's error.
        source: std::io::Error,
    },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
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
