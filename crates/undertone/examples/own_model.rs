//! A Burn model of one's own in the Learner: `cargo run -p undertone --example own_model`.
//!
//! An [`Objective`] says what its loss is and how it is judged, [`Batches`] what it is trained on; the Learner adds the
//! rest: optimizer and schedule, exact accumulation, clipping, guards, records, checkpoints and resume.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::path::Path;
use undertone::ops::{self, cross_entropy};
use undertone::store::{Dtype, parameters, write_tensors};
use undertone::train::{
    BatchStream, Batches, BoxError, Evaluation, Learner, LossSum, LossTerm, Objective, TrainConfig,
};

/// Two layers: a point in the plane to scores of two classes.
#[derive(Module, Debug)]
struct Mlp {
    first: Linear,
    second: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        Self { first: LinearConfig::new(2, 32).init(device), second: LinearConfig::new(32, 2).init(device) }
    }

    /// `[points, 2]` → `[points, 2]`.
    fn forward(&self, points: Tensor<2>) -> Tensor<2> {
        self.second.forward(ops::gelu(self.first.forward(points)))
    }
}

/// Points in host memory, and whether each lies in the disc.
struct Points {
    places: Vec<f32>,
    inside: Vec<i64>,
}

impl Points {
    /// The `count` points from `start` on of a sequence that fills the square from -1 to 1.
    fn new(start: usize, count: usize) -> Self {
        let place =
            |n: usize| [0.754_877_7, 0.569_840_3].map(|step: f64| (2.0 * (n as f64 * step).fract() - 1.0) as f32);
        let places: Vec<[f32; 2]> = (start..start + count).map(place).collect();
        let inside = places.iter().map(|[x, y]| i64::from(x * x + y * y < 0.6)).collect();
        Self { places: places.concat(), inside }
    }

    fn tensors(&self, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let rows = self.inside.len();
        let places = Tensor::from_data(TensorData::new(self.places.clone(), [rows, 2]), device);
        (places, Tensor::from_data(TensorData::new(self.inside.clone(), [rows]), device))
    }
}

/// The loss that is minimised, and the evaluation of the model.
struct Disc {
    valid: Points,
    device: Device,
}

impl Objective for Disc {
    type Model = Mlp;
    type Batch = Points;
    type Input = (Tensor<2>, Tensor<1, Int>);

    fn samples(&self, batch: &Points) -> usize {
        batch.inside.len()
    }

    fn upload(&self, batch: &mut Points, device: &Device) -> Result<Self::Input, BoxError> {
        Ok(batch.tensors(device))
    }

    /// The mean is over points, and over all batches of a step alike.
    fn loss_terms(&self, batch: &Points) -> Vec<LossTerm> {
        vec![LossTerm { name: "disc".into(), weight: 1.0, count: batch.inside.len() as f64 }]
    }

    fn losses(
        &self,
        model: &Mlp,
        _: &Points,
        (places, inside): Self::Input,
        _: &Device,
    ) -> Result<Vec<LossSum>, BoxError> {
        let sum = cross_entropy(model.forward(places), inside, Default::default()).sum;
        Ok(vec![("disc".into(), sum)])
    }

    fn evaluate(&self, model: &Mlp, _: &[String]) -> Result<Evaluation, BoxError> {
        let (places, inside) = self.valid.tensors(&self.device);
        let right = model.forward(places).argmax(1).squeeze_dim::<1>(1).equal(inside).int().sum();
        let accuracy = f64::from(right.into_scalar::<i32>()) / self.valid.inside.len() as f64;
        Ok(Evaluation { metrics: [("accuracy".to_owned(), accuracy)].into(), ..Default::default() })
    }

    fn export(&self, model: &Mlp, directory: &Path) -> Result<(), BoxError> {
        Ok(write_tensors(&directory.join("model.safetensors"), &parameters(model), Dtype::F32)?)
    }
}

/// Eight batches an epoch, each of 64 points.
struct Square;

impl Batches for Square {
    type Batch = Points;

    fn per_epoch(&self) -> usize {
        8
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, Points> {
        Box::new((start..8).map(|index| Ok((index + 1, Points::new(64 * index, 64)))))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (dir, device) = (tempfile::tempdir()?, Device::flex());
    let mut config = TrainConfig { max_steps: Some(300), log_every: 100, ..TrainConfig::default() };
    (config.optimizer.lr, config.optimizer.warmup_steps) = (2e-2, Some(10));
    config.evaluate.metrics = vec!["accuracy".into()];
    config.checkpoint.metric = "accuracy".into();

    ops::seed(42);
    // Burn's layers are drawn by the device.
    device.seed(42);
    let (model, objective) = (Mlp::new(&device), Disc { valid: Points::new(10_000, 500), device: device.clone() });
    let learner = Learner::builder(config, objective, model, dir.path().join("disc"));
    let summary = learner.with_device(device).with_seed(42).build().train(&Square)?;

    println!("accuracy {:.3} before, {:.3} after {} steps", summary.before["accuracy"], summary.after["accuracy"], 300);
    assert!(summary.after["accuracy"] > 0.95);
    Ok(())
}
