//! The Learner: a training loop for any model, with exact gradient accumulation, evaluation and checkpoints.
//!
//! You give it an [`Objective`] (loss terms of a batch, metrics, export) and [`Batches`]. The Learner adds precision,
//! optimizer, schedule and clipping, guards against losses that are not finite, logs of metrics and of where the time
//! went, checkpoints and resume. [`HardwareSampler`] watches the machine. The crate deliberately knows no architecture,
//! no task and no data set.
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
//!     type Input = Tensor<2>;
//!     fn samples(&self, _: &f32) -> usize { 1 }
//!     fn loss_terms(&self, _: &f32) -> Vec<LossTerm> {
//!         vec![LossTerm { name: "square".into(), weight: 1.0, count: 1.0 }]
//!     }
//!     fn upload(&self, x: &mut f32, device: &Device) -> Result<Tensor<2>, BoxError> {
//!         Ok(Tensor::from_floats([[*x]], device))
//!     }
//!     fn losses(&self, model: &Linear, x: &f32, input: Tensor<2>, _: &Device) -> Result<Vec<LossSum>, BoxError> {
//!         let y = model.forward(input);
//!         Ok(vec![("square".into(), (y - 2.0 * x).square().sum())])
//!     }
//!     fn evaluate(&self, model: &Linear, _: &[String]) -> Result<Evaluation, BoxError> {
//!         let error = (model.weight.val().into_scalar::<f32>() - 2.0).abs();
//!         Ok(Evaluation { metrics: [("error".to_owned(), f64::from(error))].into(), ..Default::default() })
//!     }
//!     fn export(&self, _: &Linear, _: &std::path::Path) -> Result<(), BoxError> { Ok(()) }
//! }
//!
//! impl Batches for Double {
//!     type Batch = f32;
//!     fn per_epoch(&self) -> usize { 3 }
//!     fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, f32> {
//!         Box::new((1..).zip([-1.0, 0.5, 1.0]).skip(start).map(Ok))
//!     }
//! }
//!
//! let device = Device::default();
//! let mut config = TrainConfig { max_steps: Some(400), ..Default::default() };
//! config.optimizer.lr = 0.05;
//! config.evaluate.metrics = vec!["error".into()];
//! config.checkpoint.metric = "error".into();
//! let dir = tempfile::tempdir()?;
//! let model = LinearConfig::new(1, 1).init(&device);
//! let mut learner = Learner::builder(config, Double, model, dir.path()).with_device(device).with_seed(42).build();
//! let summary = learner.train(&Double)?;
//! assert!(summary.after["error"] < 0.05);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod average;
mod checkpoint;
mod config;
mod config_error;
#[cfg(feature = "tui")]
mod dashboard;
mod early_stopping;
mod ema;
mod environment;
mod error;
mod exported;
mod failure;
mod gradient_checkpointing;
mod gradient_coverage;
mod gradients;
mod guard;
mod hardware;
mod largest;
mod learner;
pub mod limits;
mod loss_scale;
mod memory;
mod objective;
pub mod optimizer;
mod performance;
mod precision;
mod process_group;
mod progress;
mod records;
mod report;
mod saver;
mod schedule;
mod shard;
mod stepper;
mod stopwatch;
mod table;
mod tally;
mod tensorboard;

pub use average::{Average, AverageError, Averaged};
pub use checkpoint::{Checkpoint, Checkpoints, Contents, TrainState};
pub use config::{CheckpointConfig, EvaluateConfig, TrainConfig};
pub use config_error::TrainConfigError;
pub use early_stopping::EarlyStoppingConfig;
pub use environment::Environment;
pub use error::TrainError;
pub use exported::Exported;
pub use failure::{BackendFailure, catch_backend_failure, says_out_of_memory, silence_backend_failures, telling_line};
pub use gradient_checkpointing::{GradientCheckpointing, Segments};
pub use gradients::GradientSum;
pub use guard::{GuardConfig, GuardState, OnNan, OnSpike, Trouble};
pub use hardware::{Gpu, Hardware, HardwareSampler, gpu, gpu_driver, measured_peak_flops, peak_flops};
pub use learner::{LAST_LOSS, Learner, LearnerBuilder};
pub use loss_scale::{LossScale, LossScaleConfig};
pub use memory::{
    Amount, MemoryBudget, MemoryBudgetError, available_memory_bytes, peak_bytes, peak_memory_bytes,
    resident_memory_bytes,
};
pub use objective::{
    BatchStats, BatchStream, Batches, BoxError, Evaluation, Example, LossSum, LossTerm, Objective, Share,
};
pub use optimizer::{
    AdafactorConfig, AdamWConfig, Algorithm, GroupConfig, LrScaling, LrScalingConfig, Optimizer, OptimizerConfig,
    Pattern,
};
pub use performance::{Performance, RankPerformance, TimeSplit};
pub use precision::Precision;
pub use process_group::ProcessGroup;
pub use progress::{Display, Progress};
pub use report::{ExampleChange, MetricsLog, ParameterCount, Summary};
pub use schedule::Schedule;
pub use stepper::{StepOutcome, StepReport};
pub use tally::{LossTally, StepTerm};
pub use tensorboard::EventFile;
pub use undertone_metrics::Direction;
pub use undertone_ops::Compute;
pub use undertone_ranks as ranks;
