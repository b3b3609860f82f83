//! The Learner: one training loop with exact accumulation, evaluation and checkpoints, for any model.
//!
//! What is trained comes in as an [`Objective`] (loss terms of a batch, metrics, export) and [`Batches`]; the Learner
//! adds the optimizer, the schedule, clipping, records and resume. It deliberately knows no architecture, no task and no
//! dataset.
//!
//! ```
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use undertone_train::*;
//!
//! /// y = 2x, learned from three batches an epoch.
//! struct Double;
//!
//! impl Objective for Double {
//!     type Model = Linear;
//!     type Batch = f32;
//!     fn samples(&self, _: &f32) -> usize { 1 }
//!     fn counts(&self, _: &f32) -> Vec<f64> { vec![1.0] }
//!     fn losses(&self, model: &Linear, x: &f32, device: &Device) -> Result<Vec<LossTerm>, BoxError> {
//!         let y = model.forward(Tensor::<2>::from_floats([[*x]], device));
//!         Ok(vec![LossTerm { name: "square".into(), weight: 1.0, sum: (y - 2.0 * x).square().sum() }])
//!     }
//!     fn evaluate(&self, model: &Linear, _: &[String]) -> Result<Evaluation, BoxError> {
//!         let error = (model.weight.val().into_scalar::<f32>() - 2.0).abs();
//!         Ok(Evaluation { metrics: [("error".to_owned(), f64::from(error))].into(), examples: vec![] })
//!     }
//!     fn export(&self, _: &Linear, _: &std::path::Path) -> Result<(), BoxError> { Ok(()) }
//! }
//!
//! impl Batches for Double {
//!     type Batch = f32;
//!     fn per_epoch(&self) -> usize { 3 }
//!     fn epoch(&self, _: u64, start: usize) -> Box<dyn Iterator<Item = Result<f32, BoxError>> + '_> {
//!         Box::new([-1.0, 0.5, 1.0].into_iter().skip(start).map(Ok))
//!     }
//! }
//!
//! let device = Device::default();
//! let mut config = TrainConfig { max_steps: Some(400), ..Default::default() };
//! config.optimizer.lr = 0.05;
//! config.evaluate.metrics = vec!["error".into()];
//! config.checkpoint.metric = "error".into();
//! let dir = tempfile::tempdir()?;
//! let mut learner = Learner::new(config, Double, LinearConfig::new(1, 1).init(&device), device, dir.path(), 42);
//! let summary = learner.train(&Double)?;
//! assert!(summary.after["error"] < 0.05);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod config;
mod gradients;
mod learner;
mod memory;
pub mod metrics;
mod objective;
mod optimizer;
mod records;
mod report;
mod schedule;
mod tensorboard;
pub mod tune;

pub use checkpoint::{Checkpoint, Checkpoints, TrainState};
pub use config::{
    CheckpointConfig, Compute, EarlyStoppingConfig, EvaluateConfig, OptimizerConfig, OptimizerName, TrainConfig,
    TrainConfigError,
};
pub use gradients::GradientSum;
pub use learner::{Learner, TrainError};
pub use memory::{
    Amount, MemoryBudget, MemoryBudgetError, available_memory_bytes, catch_out_of_memory, resident_memory_bytes,
    says_out_of_memory, silence_out_of_memory_panics, telling_line,
};
pub use objective::{Batches, BoxError, Evaluation, Example, LossTerm, Objective};
pub use optimizer::AdamW;
pub use report::{ExampleChange, MetricsLog, ParameterCount, Progress, Summary, peak_memory_bytes};
pub use schedule::Schedule;
pub use tensorboard::EventFile;
