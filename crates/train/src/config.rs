//! The `train` section of a configuration.

use crate::config_error::{TrainConfigError, check, share};
use crate::early_stopping::{EarlyStoppingConfig, unless_off};
use crate::guard::GuardConfig;
use crate::limits::{MOST_ACCUMULATED, MOST_EPOCHS, MOST_STEPS};
use crate::{GradientCheckpointing, OptimizerConfig, Precision};
use serde::{Deserialize, Serialize};
use undertone_metrics::{Direction, direction_of};

/// The `train` section of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps to run; 1000 if neither this nor `epochs` is given. A run that is resumed with more steps
    /// continues with the learning rates that the longer run has from there on.
    pub max_steps: Option<u64>,
    /// Passes over the training data; give this or `max_steps`.
    pub epochs: Option<u64>,
    /// Batches per optimizer step. The loss is the sum over all their tokens divided by the number of tokens, as in one
    /// large batch.
    pub accumulation: usize,
    /// Precision of products in the forward and backward pass: those of this project's layers and operations; layers of Burn in a model of
    /// your own stay in f32. `auto` picks the one that suits the device. Evaluation is in f32.
    pub compute: Precision,
    /// Reaction to losses that are not finite, and to loss spikes.
    pub guard: GuardConfig,
    /// Decay of an exponential moving average of the weights; 0.999 is usual for long runs. The average is evaluated as
    /// `valid_ema`, and the best one is in `best_ema`. Without this setting there is none.
    pub ema_decay: Option<f64>,
    /// Whether the backward pass computes blocks again instead of keeping their activations.
    pub gradient_checkpointing: GradientCheckpointing,
    /// Optimizer, learning rate and schedule.
    pub optimizer: OptimizerConfig,
    /// Whether ranks shard the optimizer state (ZeRO, stage 1). Each rank keeps the state of its part of every larger
    /// parameter, updates that part, and receives the other parts from the other ranks. Steps and checkpoints are the
    /// same.
    pub shard_optimizer: bool,
    /// Seconds that a rank may keep the others waiting within a step, or that its process may send no heartbeat at any
    /// time. After that the others take it for dead, save a checkpoint and end; with `shard_optimizer` they end without one,
    /// since parts of the optimizer state are missing.
    pub rank_timeout: u64,
    /// Interval and metrics of evaluation.
    pub evaluate: EvaluateConfig,
    /// When checkpoints are saved, and how many are kept.
    pub checkpoint: CheckpointConfig,
    /// Conditions that end training before its last step. Without them it takes all steps.
    #[serde(deserialize_with = "unless_off")]
    pub early_stopping: Option<EarlyStoppingConfig>,
    /// Optimizer steps between two lines of `metrics.jsonl`. The loss in a line covers all steps since the line before
    /// it: each term is its sum over these steps divided by its count.
    pub log_every: u64,
    /// Whether logged values are also written to event files in the run's directory, for `tensorboard --logdir runs`.
    pub tensorboard: bool,
    /// Whether logged values are also written to `metrics.csv` in the run's directory, with a column for each name.
    pub csv: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            max_steps: None,
            epochs: None,
            accumulation: 1,
            compute: Precision::default(),
            guard: GuardConfig::default(),
            ema_decay: None,
            gradient_checkpointing: GradientCheckpointing::default(),
            optimizer: OptimizerConfig::default(),
            shard_optimizer: false,
            rank_timeout: 45,
            evaluate: EvaluateConfig::default(),
            checkpoint: CheckpointConfig::default(),
            early_stopping: None,
            log_every: 10,
            tensorboard: false,
            csv: false,
        }
    }
}

const DEFAULT_STEPS: u64 = 1000;

/// Default of `checkpoint.metric`.
const LOSS: &str = "loss";

/// Checks that a value is at least 1 and at most `most`.
fn in_range(key: &'static str, value: u64, most: u64) -> Result<(), TrainConfigError> {
    check((1..=most).contains(&value), key, &value, &format!("must be at least 1 and at most {most}"))
}

/// Interval and metrics of evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateConfig {
    /// Optimizer steps between evaluations; 0 evaluates only before and after training.
    pub every: u64,
    /// Metrics to compute; at least one in a configuration. In code, an objective without metrics reports its `loss` alone.
    pub metrics: Vec<String>,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { every: 200, metrics: Vec::new() }
    }
}

/// When checkpoints are saved, and how many are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Optimizer steps between checkpoints; 0 saves only at the end and on interruption.
    pub every: u64,
    /// Number of newest checkpoints to keep. A checkpoint that is known to be sound is kept until a later one is. A
    /// checkpoint is sound once a step after it has a loss that is finite and no spike.
    pub keep_last: usize,
    /// Number of best checkpoints by `metric` to keep besides; the best one is never deleted.
    pub keep_best: usize,
    /// Metric that determines the best checkpoint: the lowest or the highest value, depending on the metric.
    pub metric: String,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 200, keep_last: 2, keep_best: 1, metric: LOSS.into() }
    }
}

/// Direction (lower or higher is better) of the metrics that decide in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions {
    /// Direction of the metric that determines the best checkpoint.
    pub deciding: Direction,
    /// Direction of the metric that early stopping watches. It may be unknown if early stopping is off.
    pub watched: Option<Direction>,
}

impl TrainConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// Names the first key with an invalid value.
    pub fn validate(&self) -> Result<(), TrainConfigError> {
        match (self.max_steps, self.epochs) {
            (Some(_), Some(epochs)) => {
                check(false, "epochs", &epochs, "give either that or `max_steps`, and set the other to `null`")?;
            }
            (Some(steps), _) => in_range("max_steps", steps, MOST_STEPS)?,
            (_, Some(epochs)) => in_range("epochs", epochs, MOST_EPOCHS)?,
            _ => {}
        }
        in_range("accumulation", self.accumulation as u64, MOST_ACCUMULATED as u64)?;
        let rule = "must be at least 1, or write `false` to keep everything";
        check(!self.gradient_checkpointing.is_empty(), "gradient_checkpointing.every", &0, rule)?;
        check(self.log_every > 0, "log_every", &0, "must be at least 1")?;
        self.optimizer.validate()?;
        let rule = "the state of this optimizer cannot be divided: use `adamw`, or leave it out";
        check(!self.shard_optimizer || self.optimizer.is_elementwise(), "shard_optimizer", &true, rule)?;
        in_range("rank_timeout", self.rank_timeout, 24 * 3600)?;
        let steps = self.max_steps.or(self.epochs.is_none().then_some(DEFAULT_STEPS));
        let warmup = self.optimizer.warmup_steps.unwrap_or(0);
        let rule = "must be below `max_steps`, or there is nothing but warm-up";
        check(steps.is_none_or(|steps| warmup < steps), "optimizer.warmup_steps", &warmup, rule)?;
        let (metrics, metric) = (&self.evaluate.metrics, &self.checkpoint.metric);
        if !(metrics.is_empty() && metric == LOSS) {
            check(!metrics.is_empty(), "evaluate.metrics", &"empty", "name at least one metric")?;
            check(metrics.contains(metric), "checkpoint.metric", metric, "must be one of `evaluate.metrics`")?;
        }
        self.ema_decay.map_or(Ok(()), |decay| share("ema_decay", decay))?;
        self.compute.loss_scale().validate()?;
        self.guard.validate()?;
        self.early_stopping_direction(direction_of(self.watched()))?;
        if let Some(EarlyStoppingConfig { patience, min_delta, .. }) = self.early_stopping {
            in_range("early_stopping.patience", patience, MOST_STEPS)?;
            let is_valid = min_delta.is_finite() && min_delta >= 0.0;
            check(is_valid, "early_stopping.min_delta", &min_delta, "must be at least 0")?;
            let rule = "needs `evaluate.every` above 0";
            check(self.evaluate.every > 0, "early_stopping.patience", &patience, rule)?;
        }
        let CheckpointConfig { keep_last, keep_best, .. } = self.checkpoint;
        check(keep_last > 0, "checkpoint.keep_last", &0, "must be at least 1, or nothing could be resumed")?;
        check(keep_best > 0, "checkpoint.keep_best", &0, "must be at least 1: the best checkpoint is never deleted")
    }

    /// The metric that early stopping watches.
    pub(crate) fn watched(&self) -> &str {
        let own = self.early_stopping.as_ref().and_then(|stopping| stopping.metric.as_ref());
        own.unwrap_or(&self.checkpoint.metric)
    }

    /// Returns the direction of the metric that early stopping watches, from `known`, its known direction, or else from
    /// the configuration.
    fn early_stopping_direction(&self, known: Option<Direction>) -> Result<Option<Direction>, TrainConfigError> {
        self.early_stopping.as_ref().map_or(Ok(known), |stopping| stopping.direction(self.watched(), known))
    }

    /// Returns the directions of the deciding metrics. `known` returns the direction of a metric, if it has one.
    pub(crate) fn directions(&self, known: impl Fn(&str) -> Option<Direction>) -> Result<Directions, TrainConfigError> {
        let nobody = |key: &'static str, metric: &str, way_out: &str| {
            let rule = format!("it is unknown whether lower or higher is better: {way_out}");
            TrainConfigError::new(key, &metric, &rule)
        };
        let metric = &self.checkpoint.metric;
        let deciding = known(metric)
            .ok_or_else(|| nobody("checkpoint.metric", metric, "let the objective's `Objective::direction` say so"))?;
        let watched = self.early_stopping_direction(known(self.watched()))?;
        if watched.is_none() && self.early_stopping.is_some() {
            let way_out = "give `early_stopping.greater_is_better`";
            return Err(nobody("early_stopping.metric", self.watched(), way_out));
        }
        Ok(Directions { deciding, watched })
    }

    /// Whether early stopping ends a run after so many evaluations in a row without an improvement.
    pub fn stops_after(&self, stalled: u64) -> bool {
        self.early_stopping.as_ref().is_some_and(|config| stalled >= config.patience)
    }

    /// Records an evaluation. `cost` is the watched metric with the sign that makes lower better, if it is a number.
    /// `reference` is the last cost that counted as an improvement, and `stalled` the number of evaluations since.
    pub(crate) fn observe(&self, cost: Option<f64>, reference: &mut Option<f64>, stalled: &mut u64) {
        let min_delta = self.early_stopping.as_ref().map_or(0.0, |config| config.min_delta);
        match cost.filter(|cost| reference.is_none_or(|reference| *cost < reference - min_delta)) {
            Some(cost) => (*reference, *stalled) = (Some(cost), 0),
            None => *stalled += 1,
        }
    }

    /// Whether early stopping ends a run in this state; never before there is a reference.
    pub(crate) fn is_over(&self, reference: Option<f64>, stalled: u64) -> bool {
        self.stops_after(stalled) && reference.is_some()
    }

    /// Returns the number of optimizer steps of the run if an epoch has `batches` batches. Each epoch's remainder is a
    /// step of its own.
    pub fn steps(&self, batches: usize) -> u64 {
        match (self.max_steps, self.epochs) {
            (None, Some(epochs)) => epochs.saturating_mul(Self::steps_of(batches, self.accumulation)),
            _ => self.steps_over(|_| batches),
        }
    }

    /// Returns the optimizer steps of an epoch with so many batches.
    fn steps_of(batches: usize, window: usize) -> u64 {
        batches.div_ceil(window.max(1)) as u64
    }

    /// Returns the number of optimizer steps of a run whose epoch length is unknown.
    pub(crate) fn steps_without_epochs(&self) -> u64 {
        self.max_steps.unwrap_or(DEFAULT_STEPS).max(1)
    }

    /// Returns the number of optimizer steps of the run, where `batches` returns the number of batches of each epoch.
    pub fn steps_over(&self, batches: impl Fn(u64) -> usize) -> u64 {
        self.steps_of_windows(self.accumulation, batches)
    }

    /// Like [`steps_over`](Self::steps_over), with `window` batches per step over all ranks.
    pub fn steps_of_windows(&self, window: usize, batches: impl Fn(u64) -> usize) -> u64 {
        match (self.max_steps, self.epochs) {
            (Some(steps), _) => steps,
            (None, Some(epochs)) => {
                (0..epochs).map(|epoch| Self::steps_of(batches(epoch), window)).fold(0, u64::saturating_add)
            }
            (None, None) => DEFAULT_STEPS,
        }
    }
}

#[cfg(test)]
mod tests;
