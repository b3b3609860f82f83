//! Interface between the Learner and what it trains.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;
use undertone_metrics::{Direction, Interval, direction_of};

/// Any error of a data set, a model or a file behind these traits.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A model's loss on a batch, and its evaluation.
///
/// On the CPU the batches of one optimizer step may be computed at the same time, each in a thread of its own.
pub trait Objective: Sync {
    /// The network.
    type Model: Module;
    /// A batch in host memory.
    type Batch: Send;
    /// Inputs of the network from a batch, on the device.
    type Input;

    /// Number of samples in `batch`.
    fn samples(&self, batch: &Self::Batch) -> usize;

    /// Names of the samples of `batch` for messages. None by default.
    fn names(&self, _batch: &Self::Batch) -> Vec<String> {
        Vec::new()
    }

    /// Amount of work in `batch` for `model`. Unknown by default.
    fn work(&self, _model: &Self::Model, _batch: &Self::Batch) -> BatchStats {
        BatchStats::default()
    }

    /// Copies the network's inputs from `batch` to `device`. It may take them out of `batch`: each batch is uploaded
    /// once, and that part of it is not read again.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    fn upload(&self, batch: &mut Self::Batch, device: &Device) -> Result<Self::Input, BoxError>;

    /// Loss terms of `batch`, each with a name of its own. The counts must be known before the forward pass, so that the
    /// batches of one optimizer step can be averaged exactly. All batches of a step have the same terms in the same
    /// order, which is that of their sum.
    fn loss_terms(&self, batch: &Self::Batch) -> Vec<LossTerm>;

    /// Sum over `batch` of each of its [`loss_terms`](Self::loss_terms), in any order. A term to which the batch adds
    /// nothing has a sum of 0.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    fn losses(
        &self,
        model: &Self::Model,
        batch: &Self::Batch,
        input: Self::Input,
        device: &Device,
    ) -> Result<Vec<LossSum>, BoxError>;

    /// Values of a training step that are not losses, such as a temperature, with their names in logs. Those of a
    /// step's last batch are in its line of `metrics.jsonl`, after the losses. None by default.
    fn gauges(&self, _batch: &Self::Batch) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Evaluates `model`, which carries no gradients.
    ///
    /// # Errors
    /// When the evaluation data cannot be read, or, after an interrupt, are not ready yet.
    fn evaluate(&self, model: &Self::Model, metrics: &[String]) -> Result<Evaluation, BoxError>;

    /// Direction of a metric of [`evaluate`](Self::evaluate): whether lower or higher is better. The default is that of
    /// [`direction_of`] for its name. A run does not begin if the deciding metric has no direction.
    fn direction(&self, metric: &str) -> Option<Direction> {
        direction_of(metric)
    }

    /// Writes `model` to a directory in the format that its users load.
    ///
    /// # Errors
    /// When the file system refuses.
    fn export(&self, model: &Self::Model, directory: &Path) -> Result<(), BoxError>;
}

/// Amount of work in a batch, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchStats {
    /// Seconds of audio.
    pub audio_seconds: Option<f64>,
    /// Tokens that count in the loss.
    pub tokens: Option<f64>,
    /// Floating-point operations of forward and backward pass, a multiplication and an addition counted as two.
    pub flops: Option<f64>,
}

impl AddAssign for BatchStats {
    fn add_assign(&mut self, other: Self) {
        let sum = |a: Option<f64>, b: Option<f64>| a.map_or(b, |a| Some(a + b.unwrap_or(0.0)));
        self.audio_seconds = sum(self.audio_seconds, other.audio_seconds);
        self.tokens = sum(self.tokens, other.tokens);
        self.flops = sum(self.flops, other.flops);
    }
}

/// One term of the loss of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossTerm {
    /// Name in logs.
    pub name: Cow<'static, str>,
    /// Weight in the total loss.
    pub weight: f64,
    /// Count in the batch, such as its number of labels or the sum of their weights. The divisor is the count over all batches of
    /// the step.
    pub count: f64,
}

/// Name of a loss term and its sum over a batch, `[1]`.
pub type LossSum = (Cow<'static, str>, Tensor<1>);

/// Result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Metric → value.
    pub metrics: BTreeMap<String, f64>,
    /// Confidence intervals of metrics, by metric, where the objective computes them; older checkpoints have none.
    #[serde(default)]
    pub intervals: BTreeMap<String, Interval>,
    /// A few samples, the same ones in every evaluation.
    pub examples: Vec<Example>,
    /// Remarks on the metrics, in sentences; older checkpoints have none.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// One sample with the model's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// Name of the sample for messages.
    pub name: String,
    /// Reference text.
    pub reference: String,
    /// Hypothesis of the model.
    pub hypothesis: String,
}

/// The batches of an epoch, as [`Batches::epoch`] gives them.
pub type BatchStream<'a, B> = Box<dyn Iterator<Item = Result<(usize, B), BoxError>> + 'a>;

/// Training batches, epoch by epoch, in an order that depends on the epoch alone.
pub trait Batches {
    /// A batch in host memory.
    type Batch;

    /// Number of batches of an epoch; of the first one, if epochs differ.
    fn per_epoch(&self) -> usize;

    /// Number of batches of this epoch. Epochs differ if batches are cut by the lengths of their samples.
    fn in_epoch(&self, _epoch: u64) -> usize {
        self.per_epoch()
    }

    /// Hash of the data, by which ranks detect that another rank would read other samples. The default is the same for
    /// all data.
    fn fingerprint(&self) -> u64 {
        0
    }

    /// Batches of an epoch from position `start` on. Each comes with the `start` that resumes after it, which is more
    /// than one further where batches are left out.
    ///
    /// After an interrupt, a batch that is not ready yet may be an error instead: see
    /// [`LearnerBuilder::with_interrupt`](crate::LearnerBuilder::with_interrupt).
    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, Self::Batch>;

    /// Batches of one rank, from position `start` of an epoch on. The default makes all batches and keeps the rank's
    /// own. An implementation that can leave out the others saves that work.
    fn share(&self, epoch: u64, start: usize, share: Share) -> BatchStream<'_, Self::Batch> {
        let own = move |item: &Result<(usize, Self::Batch), BoxError>| {
            item.as_ref().map_or(true, |(next, _)| share.has(next - 1))
        };
        Box::new(self.epoch(epoch, start).filter(own))
    }
}

/// Share of one rank in the batches of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of the rank, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub count: usize,
    /// Number of batches of an optimizer step, over all ranks.
    pub window: usize,
}

impl Share {
    /// Whether this rank has the batch at this position in its epoch.
    pub fn has(&self, batch: usize) -> bool {
        batch % self.count == self.rank
    }
}
