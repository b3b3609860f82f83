//! The smallest things that a Learner trains: a model of one number or three, an objective, and batches.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use std::path::Path;
use undertone::train::{BatchStream, Batches, BoxError, Evaluation, LossSum, LossTerm, Objective};

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
}

/// The square of what [`Partial`] makes of 1, judged by an error rate that is always 0.
pub struct Zero;

impl Objective for Zero {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn loss_terms(&self, _: &usize) -> Vec<LossTerm> {
        vec![LossTerm { name: "square".into(), weight: 1.0, count: 1.0 }]
    }

    fn upload(&self, _: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Ok(Tensor::ones([1, 1], device))
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossSum>, BoxError> {
        let mut y = model.used.forward(one);
        if let Some(late) = model.late.as_ref().filter(|_| *batch == 0) {
            y = late.forward(y);
        }
        Ok(vec![("square".into(), y.square().sum())])
    }

    fn gauges(&self, batch: &usize) -> Vec<(&'static str, f64)> {
        vec![("number", *batch as f64), ("half", 0.5 * *batch as f64)]
    }

    fn evaluate(&self, _: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        Ok(Evaluation { metrics: [("cer".to_owned(), 0.0)].into(), ..Default::default() })
    }

    fn export(&self, _: &Partial, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A hundred batches an epoch, each its own number.
pub struct Hundred;

impl Batches for Hundred {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        100
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new((start..100).map(|batch| Ok((batch + 1, batch))))
    }
}

/// Every value of a name in the training lines of `metrics.jsonl`.
pub fn logged(dir: &Path, name: &str) -> Vec<f64> {
    let metrics = std::fs::read_to_string(dir.join("metrics.jsonl")).expect("metrics");
    let lines = metrics.lines().filter(|line| line.contains("\"train\""));
    lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")[name].as_f64()).collect()
}
