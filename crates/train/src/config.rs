//! How a training run goes, as a user writes it.

use crate::{GradientCheckpointing, Schedule};
use serde::{Deserialize, Serialize};

/// The `train` section of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps to run; 1000 if neither this nor `epochs` is given. A run that is resumed with more goes on, with
    /// the learning rate that the longer run has from there on.
    pub max_steps: Option<u64>,
    /// Passes over the training data; give this or `max_steps`.
    pub epochs: Option<u64>,
    /// Batches per optimizer step. Their loss is the sum over all their tokens by their count, as in one large batch.
    pub accumulation: usize,
    /// What the forward and backward pass compute in.
    pub compute: Compute,
    /// Whether the backward pass runs blocks again instead of keeping what they computed.
    pub gradient_checkpointing: GradientCheckpointing,
    /// How parameters move.
    pub optimizer: OptimizerConfig,
    /// When and by what the model is judged.
    pub evaluate: EvaluateConfig,
    /// When the state is saved, and how much of it is kept.
    pub checkpoint: CheckpointConfig,
    /// When training ends before its last step.
    pub early_stopping: EarlyStoppingConfig,
    /// Optimizer steps between two lines of `metrics.jsonl`.
    pub log_every: u64,
    /// Whether what is logged is also written to event files in the run's directory, for `tensorboard --logdir runs`.
    pub tensorboard: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            max_steps: None,
            epochs: None,
            accumulation: 1,
            compute: Compute::F32,
            gradient_checkpointing: GradientCheckpointing::default(),
            optimizer: OptimizerConfig::default(),
            evaluate: EvaluateConfig::default(),
            checkpoint: CheckpointConfig::default(),
            early_stopping: EarlyStoppingConfig::default(),
            log_every: 10,
            tensorboard: false,
        }
    }
}

const DEFAULT_STEPS: u64 = 1000;

/// The float type of forward and backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// 32 bits.
    #[default]
    F32,
}

/// How parameters move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// The rule.
    pub name: OptimizerName,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay on matrices; biases, norms and other vectors have none.
    pub weight_decay: f64,
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// How the rate falls after the warm-up.
    pub schedule: Schedule,
    /// Optimizer steps over which the rate rises to its peak.
    pub warmup_steps: u64,
    /// Longest gradient, over all parameters together; 0 leaves gradients alone.
    pub clip_norm: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            name: OptimizerName::Adamw,
            lr: 3e-4,
            weight_decay: 0.01,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            schedule: Schedule::Cosine,
            warmup_steps: 100,
            clip_norm: 1.0,
        }
    }
}

/// The optimizers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    #[default]
    Adamw,
}

/// When and by what the model is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateConfig {
    /// Optimizer steps between evaluations; 0 evaluates only before and after training.
    pub every: u64,
    /// Which metrics to compute.
    pub metrics: Vec<String>,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { every: 200, metrics: vec!["cer".into(), "wer".into()] }
    }
}

/// When the state is saved, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Optimizer steps between checkpoints; 0 saves only at the end and on interruption.
    pub every: u64,
    /// How many of the newest checkpoints are kept.
    pub keep_last: usize,
    /// How many of the best, by `metric`, are kept besides; the best one is never deleted.
    pub keep_best: usize,
    /// The metric that decides which is best; lower is better.
    pub metric: String,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 200, keep_last: 2, keep_best: 1, metric: "cer".into() }
    }
}

/// When training ends before its last step, judged by `checkpoint.metric`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// Evaluations in a row that may be no better than the best before them; 0 never stops early.
    pub patience: u64,
    /// By how much one must be better to count.
    pub min_delta: f64,
}

impl EarlyStoppingConfig {
    /// Whether so many evaluations in a row that were no better end a run.
    pub fn ends(&self, stalled: u64) -> bool {
        self.patience > 0 && stalled >= self.patience
    }
}

/// A value that no run can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`train.{key}` is {value}: {rule}")]
pub struct TrainConfigError {
    /// The key below `train`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

impl TrainConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// Names the first key that cannot be.
    pub fn validate(&self) -> Result<(), TrainConfigError> {
        let error = |key, value: &dyn std::fmt::Debug, rule: &str| {
            Err(TrainConfigError { key, value: format!("{value:?}").replace('"', "`"), rule: rule.to_owned() })
        };
        match (self.max_steps, self.epochs) {
            (Some(_), Some(_)) => {
                return error("epochs", &self.epochs, "give either `max_steps` or `epochs`, not both");
            }
            (Some(0), _) => return error("max_steps", &0, "must be at least 1"),
            (_, Some(0)) => return error("epochs", &0, "must be at least 1"),
            _ => {}
        }
        if self.accumulation == 0 {
            return error("accumulation", &0, "must be at least 1");
        }
        if self.gradient_checkpointing.is_empty() {
            return error(
                "gradient_checkpointing.every",
                &0,
                "must be at least 1, or write `false` to keep everything",
            );
        }
        if self.log_every == 0 {
            return error("log_every", &0, "must be at least 1");
        }
        let o = &self.optimizer;
        if !(o.lr.is_finite() && o.lr > 0.0) {
            return error("optimizer.lr", &o.lr, "must be above 0");
        }
        for (key, value) in [("optimizer.weight_decay", o.weight_decay), ("optimizer.clip_norm", o.clip_norm)] {
            if !(value.is_finite() && value >= 0.0) {
                return error(key, &value, "must be at least 0");
            }
        }
        for (key, value) in [("optimizer.beta1", o.beta1), ("optimizer.beta2", o.beta2)] {
            if !(0.0..1.0).contains(&value) {
                return error(key, &value, "must be at least 0 and below 1");
            }
        }
        if !(o.epsilon.is_finite() && o.epsilon > 0.0) {
            return error("optimizer.epsilon", &o.epsilon, "must be above 0");
        }
        let steps = self.max_steps.or(self.epochs.is_none().then_some(DEFAULT_STEPS));
        if steps.is_some_and(|steps| o.warmup_steps >= steps) {
            return error(
                "optimizer.warmup_steps",
                &o.warmup_steps,
                "must be below `max_steps`, or there is nothing but warm-up",
            );
        }
        if self.evaluate.metrics.is_empty() {
            return error("evaluate.metrics", &"empty", "name at least one metric");
        }
        if !self.evaluate.metrics.contains(&self.checkpoint.metric) {
            return error("checkpoint.metric", &self.checkpoint.metric, "must be one of `evaluate.metrics`");
        }
        let delta = self.early_stopping.min_delta;
        if !(delta.is_finite() && delta >= 0.0) {
            return error("early_stopping.min_delta", &delta, "must be at least 0");
        }
        if self.early_stopping.patience > 0 && self.evaluate.every == 0 {
            return error("early_stopping.patience", &self.early_stopping.patience, "needs `evaluate.every` above 0");
        }
        if self.checkpoint.keep_last == 0 {
            return error("checkpoint.keep_last", &0, "must be at least 1, or nothing could be resumed");
        }
        if self.checkpoint.keep_best == 0 {
            return error("checkpoint.keep_best", &0, "must be at least 1: the best checkpoint is never deleted");
        }
        Ok(())
    }

    /// How many optimizer steps the run has when an epoch has `batches` batches; each epoch's tail is a step of its own.
    pub fn steps(&self, batches: usize) -> u64 {
        let per_epoch = batches.div_ceil(self.accumulation) as u64;
        match (self.max_steps, self.epochs) {
            (Some(steps), _) => steps,
            (None, Some(epochs)) => epochs * per_epoch,
            (None, None) => DEFAULT_STEPS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segments;

    #[test]
    fn refusals_name_the_key() {
        let valid = TrainConfig { max_steps: Some(1000), ..Default::default() };
        assert_eq!(valid.validate(), Ok(()));
        type Spoil = fn(&mut TrainConfig);
        let cases: [(&str, Spoil); 10] = [
            ("max_steps", |c| c.max_steps = Some(0)),
            ("epochs", |c| c.epochs = Some(2)),
            ("accumulation", |c| c.accumulation = 0),
            ("gradient_checkpointing.every", |c| {
                c.gradient_checkpointing = GradientCheckpointing::Segments(Segments { every: 0 });
            }),
            ("optimizer.lr", |c| c.optimizer.lr = f64::NAN),
            ("optimizer.beta2", |c| c.optimizer.beta2 = 1.0),
            ("optimizer.warmup_steps", |c| c.optimizer.warmup_steps = 1000),
            ("checkpoint.metric", |c| c.checkpoint.metric = "bleu".into()),
            ("checkpoint.keep_last", |c| c.checkpoint.keep_last = 0),
            ("evaluate.metrics", |c| c.evaluate.metrics.clear()),
        ];
        for (key, spoil) in cases {
            let mut config = valid.clone();
            spoil(&mut config);
            assert_eq!(config.validate().expect_err(key).key, key);
        }
    }

    #[test]
    fn epochs_count_their_tails() {
        let config = TrainConfig { epochs: Some(3), accumulation: 4, ..Default::default() };
        assert_eq!(config.steps(9), 9);
    }
}
