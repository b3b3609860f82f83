//! The smallest things that a Learner trains: a model of one number or three, an objective, and batches.

use crate::json_lines;
use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use serde_json::Value;
use std::path::Path;
use undertone::metrics::{Direction, direction_of};
use undertone::train::{
    BatchStream, Batches, BoxError, Checkpoint, Checkpoints, Evaluation, Learner, LearnerBuilder, LossSum, LossTerm,
    Objective, TrainConfig,
};

/// `late` takes part in the loss of the first batch alone, `unused` never.
#[derive(Module, Debug)]
pub struct Partial {
    /// In every loss.
    pub used: Linear,
    /// In the loss of the first batch.
    pub late: Option<Linear>,
    /// In none.
    pub unused: Option<Linear>,
}

impl Partial {
    /// With `late` and `unused`, or without.
    pub fn new(late: bool, unused: bool, device: &Device) -> Self {
        let linear = || LinearConfig::new(1, 1).init(device);
        Self { used: linear(), late: late.then(linear), unused: unused.then(linear) }
    }

    /// Weight and bias of `used` are `value`; there is nothing else.
    pub fn of(value: f64) -> Self {
        let linear = LinearConfig::new(1, 1).with_initializer(Initializer::Constant { value });
        Self { used: linear.init(&Device::default()), late: None, unused: None }
    }
}

/// An objective on [`Partial`], of which a test says what it is about. The rest is as here: the square of what the model
/// makes of 1, judged by an error rate that is always 0. A batch is its number, and has one sample.
pub trait Toy: Sync {
    /// As [`Objective::names`].
    fn names(&self, _batch: usize) -> Vec<String> {
        Vec::new()
    }

    /// As [`Objective::loss_terms`].
    fn loss_terms(&self, _batch: usize) -> Vec<LossTerm> {
        vec![LossTerm { name: "square".into(), weight: 1.0, count: 1.0 }]
    }

    /// Sees a batch before it is computed.
    ///
    /// # Errors
    /// When it cannot be trained on.
    fn look_at(&self, _batch: usize) -> Result<(), BoxError> {
        Ok(())
    }

    /// As [`Objective::losses`].
    ///
    /// # Errors
    /// When the toy makes one.
    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let mut y = model.used.forward(one);
        if let Some(late) = model.late.as_ref().filter(|_| batch == 0) {
            y = late.forward(y);
        }
        Ok(square(y.square().sum()))
    }

    /// As [`Objective::gauges`].
    fn gauges(&self, _batch: usize) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// As [`Objective::evaluate`].
    ///
    /// # Errors
    /// When the toy makes one.
    fn evaluate(&self, _model: &Partial) -> Result<Evaluation, BoxError> {
        Ok(evaluation([("cer", 0.0)]))
    }

    /// As [`Objective::direction`].
    fn direction(&self, metric: &str) -> Option<Direction> {
        direction_of(metric)
    }

    /// Writes its own file into the directory of an exported model; by default there is none.
    ///
    /// # Errors
    /// When the file system refuses.
    fn export(&self, _directory: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A [`Toy`] as an objective.
pub struct OnPartial<T>(pub T);

impl<T: Toy> Objective for OnPartial<T> {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn names(&self, batch: &usize) -> Vec<String> {
        self.0.names(*batch)
    }

    fn loss_terms(&self, batch: &usize) -> Vec<LossTerm> {
        self.0.loss_terms(*batch)
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        self.0.look_at(*batch)?;
        Ok(Tensor::ones([1, 1], device))
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossSum>, BoxError> {
        self.0.losses(model, *batch, one)
    }

    fn gauges(&self, batch: &usize) -> Vec<(&'static str, f64)> {
        self.0.gauges(*batch)
    }

    fn evaluate(&self, model: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        self.0.evaluate(model)
    }

    fn direction(&self, metric: &str) -> Option<Direction> {
        self.0.direction(metric)
    }

    fn export(&self, _: &Partial, directory: &Path) -> Result<(), BoxError> {
        self.0.export(directory)
    }
}

/// The plainest toy, which gauges its batches.
pub struct Zero;

impl Toy for Zero {
    fn gauges(&self, batch: usize) -> Vec<(&'static str, f64)> {
        vec![("number", batch as f64), ("half", 0.5 * batch as f64)]
    }
}

/// The sum of the loss term `square`.
pub fn square(sum: Tensor<1>) -> Vec<LossSum> {
    vec![("square".into(), sum)]
}

/// An evaluation of these metrics alone.
pub fn evaluation<const N: usize>(metrics: [(&str, f64); N]) -> Evaluation {
    Evaluation { metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(), ..Default::default() }
}

/// A run of so many steps, of which only the first is warming up.
pub fn run_of(steps: u64) -> TrainConfig {
    let mut config = TrainConfig { max_steps: Some(steps), ..Default::default() };
    config.optimizer.warmup_steps = Some(1);
    config
}

/// As [`run_of`], judged by `cer` alone.
pub fn judged_run_of(steps: u64) -> TrainConfig {
    let mut config = run_of(steps);
    (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
    config
}

/// Builds a Learner for a toy on the default device.
pub fn builder<T: Toy>(config: TrainConfig, toy: T, model: Partial, dir: &Path) -> LearnerBuilder<OnPartial<T>> {
    Learner::builder(config, OnPartial(toy), model, dir).with_device(Device::default()).with_seed(1)
}

/// A Learner of a toy on the default device.
pub fn learner<T: Toy>(config: TrainConfig, toy: T, model: Partial, dir: &Path) -> Learner<OnPartial<T>> {
    builder(config, toy, model, dir).build()
}

/// The newest checkpoint of the run in `dir`.
pub fn newest(dir: &Path) -> Checkpoint {
    Checkpoints::new(dir.join("checkpoints")).newest().0.expect("a checkpoint")
}

/// Text of the `metrics.jsonl` of the run in `dir`.
pub fn metrics(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("metrics.jsonl")).expect("metrics")
}

/// Batches that are their own numbers.
pub struct Numbers<F> {
    /// How many an epoch has.
    pub per_epoch: usize,
    /// As [`Batches::fingerprint`].
    pub fingerprint: u64,
    /// Is called with each number before the batch is handed out.
    pub taken: F,
}

/// A hundred an epoch, to which nothing happens.
pub const HUNDRED: Numbers<fn(usize)> = hundred(|_| ());

/// A hundred an epoch, with what happens before each.
pub const fn hundred<F: Fn(usize)>(taken: F) -> Numbers<F> {
    Numbers { per_epoch: 100, fingerprint: 0, taken }
}

impl<F: Fn(usize)> Batches for Numbers<F> {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        self.per_epoch
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new((start..self.per_epoch).map(|batch| {
            (self.taken)(batch);
            Ok((batch + 1, batch))
        }))
    }
}

/// Every value of a name in the lines of `metrics.jsonl` of a split.
pub fn logged(dir: &Path, split: &str, name: &str) -> Vec<f64> {
    lines(dir, split).iter().filter_map(|line| line[name].as_f64()).collect()
}

/// The lines of `metrics.jsonl` of a split.
pub fn lines(dir: &Path, split: &str) -> Vec<Value> {
    json_lines(&metrics(dir)).into_iter().filter(|line| line["split"] == split).collect()
}
