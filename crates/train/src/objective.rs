//! What the Learner is told about the thing it trains.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;
use undertone_metrics::{Direction, direction_of};

/// Any error of a dataset, a model or a file behind these traits.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A model's loss on a batch, and how good the model is.
///
/// On the CPU the batches of one optimizer step may be computed at the same time, each by a thread of its own.
pub trait Objective: Sync {
    /// The network.
    type Model: Module;
    /// A batch in host memory.
    type Batch: Send;
    /// What the network reads of it, on the device.
    type Input;

    /// How many samples are in `batch`.
    fn samples(&self, batch: &Self::Batch) -> usize;

    /// What a person would call the samples of `batch`; nothing by default.
    fn names(&self, _batch: &Self::Batch) -> Vec<String> {
        Vec::new()
    }

    /// How much there is in `batch` for `model` to do; unknown by default.
    fn work(&self, _model: &Self::Model, _batch: &Self::Batch) -> BatchStats {
        BatchStats::default()
    }

    /// Brings to `device` what the network reads of `batch`, and may move it there: each batch is uploaded once, and nobody
    /// reads that part of it again.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    fn upload(&self, batch: &mut Self::Batch, device: &Device) -> Result<Self::Input, BoxError>;

    /// What each loss term of `batch` is divided by, in the order of [`losses`](Self::losses), which gives as many. It must
    /// be known before the forward pass, so that the batches of one optimizer step can be averaged exactly.
    fn counts(&self, batch: &Self::Batch) -> Vec<f64>;

    /// The loss terms of `batch`, as sums: of every batch of an optimizer step the same ones, in the same order.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    fn losses(
        &self,
        model: &Self::Model,
        batch: &Self::Batch,
        input: Self::Input,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError>;

    /// Numbers of a training step that are no loss, a temperature say, by the names that logs call them. Those of a
    /// step's last batch stand in its line of `metrics.jsonl`, after the losses; none by default.
    fn gauges(&self, _batch: &Self::Batch) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Judges `model`, which carries no gradients.
    ///
    /// # Errors
    /// When the evaluation data cannot be read; or, once training is interrupted, would have to be waited for.
    fn evaluate(&self, model: &Self::Model, metrics: &[String]) -> Result<Evaluation, BoxError>;

    /// Which way a metric of [`evaluate`](Self::evaluate) is better; by default what [`direction_of`] knows of its name. A
    /// run does not begin where the metric that decides in it has no direction.
    fn direction(&self, metric: &str) -> Option<Direction> {
        direction_of(metric)
    }

    /// Writes `model` to a directory in the form its users load.
    ///
    /// # Errors
    /// When the file system refuses.
    fn export(&self, model: &Self::Model, directory: &Path) -> Result<(), BoxError>;
}

/// How much there is in a batch, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

/// One part of a loss.
#[derive(Clone, Debug)]
pub struct LossTerm {
    /// What logs call it.
    pub name: Cow<'static, str>,
    /// Its share in the total.
    pub weight: f64,
    /// Summed over the batch, `[1]`.
    pub sum: Tensor<1>,
}

/// What an evaluation found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Metric → value.
    pub metrics: BTreeMap<String, f64>,
    /// A few samples, always the same ones.
    pub examples: Vec<Example>,
    /// What is to be known of the metrics, in sentences; older checkpoints do not have it.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// One sample as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// What a person would call the sample.
    pub name: String,
    /// What it says.
    pub reference: String,
    /// What the model made of it.
    pub hypothesis: String,
}

/// The batches of an epoch, as [`Batches::epoch`] gives them.
pub type BatchStream<'a, B> = Box<dyn Iterator<Item = Result<(usize, B), BoxError>> + 'a>;

/// Training batches, epoch by epoch, in an order that depends on the epoch alone.
pub trait Batches {
    /// A batch in host memory.
    type Batch;

    /// How many batches an epoch has; the first one, where epochs differ.
    fn per_epoch(&self) -> usize;

    /// How many batches this epoch has: they differ where batches are cut by their samples' lengths.
    fn in_epoch(&self, _epoch: u64) -> usize {
        self.per_epoch()
    }

    /// A number by which ranks that train together are told apart that would read other samples; by default nothing is known of
    /// them.
    fn fingerprint(&self) -> u64 {
        0
    }

    /// The batches of an epoch from `start` on, each with the `start` that goes on after it: where batches are passed
    /// over, that is more than one on.
    ///
    /// Once training is interrupted, a batch that would have to be waited for may be an error instead: see
    /// [`LearnerBuilder::with_interrupt`](crate::LearnerBuilder::with_interrupt).
    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, Self::Batch>;

    /// Of the batches of an epoch from `start` on those of one of the ranks that train together. By default it makes all of
    /// them and keeps its own: whoever can leave out the others saves that work.
    fn share(&self, epoch: u64, start: usize, share: Share) -> BatchStream<'_, Self::Batch> {
        let own = move |item: &Result<(usize, Self::Batch), BoxError>| {
            item.as_ref().map_or(true, |(next, _)| share.has(next - 1))
        };
        Box::new(self.epoch(epoch, start).filter(own))
    }
}

/// Which batches of an epoch are those of one of the ranks that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rank, from 0.
    pub rank: usize,
    /// How many ranks there are.
    pub count: usize,
    /// How many batches an optimizer step has, of all ranks together.
    pub window: usize,
}

impl Share {
    /// Whether the batch of this number in its epoch is this rank's.
    pub fn has(&self, batch: usize) -> bool {
        batch % self.count == self.rank
    }
}
