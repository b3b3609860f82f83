//! Undertone's loader as Burn's `DataLoader`: `cargo run -p undertone --features burn-data --example burn_dataloader`.
//!
//! burn-train's `Learner` takes any `Arc<dyn DataLoader<_>>`; so does a loop of one's own, as here: a linear layer learns
//! the slope of noisy points.

use std::error::Error;
use std::sync::Arc;

use burn::data::dataloader::{DataLoader, batcher::Batcher};
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Tensor, TensorData};
use undertone::data::interop::{BurnDataLoader, BurnDataset, Items};
use undertone::data::loader::{Loader, LoaderConfig};

/// Makes tensors of points, like any batcher of Burn's.
struct Points;

impl Batcher<(f32, f32), (Tensor<2>, Tensor<2>)> for Points {
    fn batch(&self, items: Vec<(f32, f32)>, device: &Device) -> (Tensor<2>, Tensor<2>) {
        let (x, y): (Vec<f32>, Vec<f32>) = items.into_iter().unzip();
        let column = |values: Vec<f32>| {
            let rows = values.len();
            Tensor::from_data(TensorData::new(values, [rows, 1]), device)
        };
        (column(x), column(y))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let points = (0..512).map(|n| n as f32 / 256.0 - 1.0).map(|x| (x, 3.0 * x - 1.0 + 0.05 * (97.0 * x).sin()));
    let dataset = Arc::new(BurnDataset::new("points", InMemDataset::new(points.collect::<Vec<_>>())));
    let loader = Loader::new(dataset, Arc::new(Items), LoaderConfig { batch_size: 64, ..LoaderConfig::default() })?;
    let device = Device::flex().autodiff();
    let batches: Arc<dyn DataLoader<_>> =
        Arc::new(BurnDataLoader::new(Arc::new(loader), device.clone(), |items, device| Points.batch(items, device)));

    let mut model: Linear = LinearConfig::new(1, 1).init(&device);
    let mut optimizer = SgdConfig::new().init();
    for _epoch in 0..30 {
        for batch in batches.iter() {
            let (x, y) = batch?;
            let loss = (model.forward(x) - y).square().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.2, model, gradients);
        }
    }
    let slope = model.weight.val().into_scalar::<f32>();
    println!("after 30 epochs of {} points the slope is {slope:.2}", batches.num_items());
    assert!((slope - 3.0).abs() < 0.05);
    Ok(())
}
