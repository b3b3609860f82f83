//! The `train.optimizer` section of a configuration.

use super::algorithm::{Algorithm, COMMON_KEYS};
use super::groups::GroupConfig;
use super::scaling::{LrScaling, LrScalingConfig};
use crate::Schedule;
use crate::config_error::{TrainConfigError, above_zero, check};
use serde::{Deserialize, Serialize};

/// Optimizer, learning rate and schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Update rule: `name`, and the keys that only this rule has.
    #[serde(flatten)]
    pub algorithm: Algorithm,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay on matrices. Biases, norms and other vectors have none.
    pub weight_decay: f64,
    /// Groups of parameters with their own learning rate or weight decay, like PyTorch's parameter groups. A parameter
    /// belongs to the first group whose pattern matches its path.
    pub groups: Vec<GroupConfig>,
    /// LoRA+ (Hayou et al., 2024): ratio of the learning rate of LoRA's B matrices to that of its A matrices. At least
    /// 1; the paper uses 16. Without it, both have the same rate.
    pub lora_plus_ratio: Option<f64>,
    /// Decay of the learning rate after the warm-up.
    pub schedule: Schedule,
    /// Optimizer steps over which the learning rate rises to its peak. Default: a tenth of the run's steps, and at most 100.
    pub warmup_steps: Option<u64>,
    /// Scaling of learning rates where a step does not have `base_batch` samples.
    pub lr_scaling: LrScalingConfig,
    /// Maximum gradient norm, over all parameters together; 0 turns clipping off.
    pub clip_norm: f64,
}

/// Maximum number of warm-up steps where the configuration has none.
const LONGEST_DEFAULT_WARMUP: u64 = 100;

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            lr: 3e-4,
            weight_decay: 0.01,
            groups: Vec::new(),
            lora_plus_ratio: None,
            schedule: Schedule::Cosine,
            warmup_steps: None,
            lr_scaling: LrScalingConfig::None,
            clip_norm: 1.0,
        }
    }
}

impl OptimizerConfig {
    /// Checks every value by itself; [`check`](Self::check) checks whether they fit a model.
    ///
    /// # Errors
    /// Names the first key with an invalid value.
    pub fn validate(&self) -> Result<(), TrainConfigError> {
        above_zero("optimizer.lr", self.lr)?;
        for (key, value) in [("optimizer.weight_decay", self.weight_decay), ("optimizer.clip_norm", self.clip_norm)] {
            check(value.is_finite() && value >= 0.0, key, &value, "must be at least 0")?;
        }
        self.algorithm.validate()?;
        self.schedule.validate()?;
        self.lr_scaling.validate()?;
        if let Some(ratio) = self.lora_plus_ratio {
            check(ratio.is_finite() && ratio >= 1.0, "optimizer.lora_plus_ratio", &ratio, "must be at least 1")?;
        }
        self.groups.iter().enumerate().try_for_each(|(index, group)| group.validate(index))
    }

    /// Names of the keys that do not depend on the update rule.
    pub const COMMON_KEYS: [&str; 8] = COMMON_KEYS;

    /// Returns the learning rate of optimizer step `step` (from 0) of `steps`. The rates of groups and of LoRA+ are in
    /// proportion to it.
    pub fn rate(&self, step: u64, steps: u64) -> f64 {
        self.lr * self.schedule.factor(step, self.warmup(steps), steps)
    }

    /// Returns the number of warm-up steps of a run of `steps` optimizer steps.
    pub fn warmup(&self, steps: u64) -> u64 {
        self.warmup_steps.unwrap_or((steps / 10).min(LONGEST_DEFAULT_WARMUP))
    }

    /// Applies `lr_scaling` for optimizer steps of so many samples on average. Returns the result and a sentence that
    /// describes it; the same configuration and `None` without `lr_scaling`.
    pub fn for_batch(&self, samples: f64) -> (Self, Option<String>) {
        let Some((rule, base)) = self.lr_scaling.rule() else { return (self.clone(), None) };
        let factor = rule.factor(samples, base);
        let mut scaled = self.clone();
        scaled.lr_scaling = LrScalingConfig::None;
        scaled.lr *= factor;
        scaled.groups.iter_mut().filter_map(|group| group.lr.as_mut()).for_each(|lr| *lr *= factor);
        let by_number = samples.fract() == 0.0;
        let samples = if by_number { samples.to_string() } else { format!("{samples:.1}") };
        let by = match rule {
            LrScaling::Sqrt => format!("sqrt({samples} / {base})"),
            _ => format!("{samples} / {base}"),
        };
        let groups =
            if scaled.groups.iter().any(|group| group.lr.is_some()) { ", and those of groups alike" } else { "" };
        let mean = if by_number { String::new() } else { format!(": its steps have {samples} samples in the mean") };
        let said = format!("learning rate {} × {by} = {}{groups}{mean}", short(self.lr), short(scaled.lr));
        (scaled, Some(said))
    }
}

/// Formats a number with four significant digits, without trailing zeros: 3e-4.
fn short(rate: f64) -> String {
    format!("{rate:.3e}").parse::<f64>().map_or_else(|_| rate.to_string(), |rate| format!("{rate:e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::{AdafactorConfig, AdamWConfig};

    #[test]
    fn common_keys_are_all_but_those_of_the_rule() {
        let config = OptimizerConfig::default();
        let [all, own] = [serde_json::to_value(&config), serde_json::to_value(&config.algorithm)].map(Result::unwrap);
        let keys = all.as_object().expect("keys").keys().filter(|key| own.get(key.as_str()).is_none());
        assert_eq!(keys.collect::<Vec<_>>(), OptimizerConfig::COMMON_KEYS);
    }

    #[test]
    fn a_short_run_has_a_short_warm_up_by_default() {
        let config = OptimizerConfig::default();
        assert_eq!([0, 5, 60, 1000, 50_000].map(|steps| config.warmup(steps)), [0, 0, 6, 100, 100]);
        assert_eq!(config.rate(0, 60), config.lr / 6.0);
        assert_eq!(OptimizerConfig { warmup_steps: Some(30), ..config }.warmup(60), 30);
    }

    #[test]
    fn refusals_name_the_key() {
        assert_eq!(OptimizerConfig::default().validate(), Ok(()));
        type Spoil = fn(&mut OptimizerConfig);
        type Adafactor = fn(&mut AdafactorConfig);
        let cases: [(&str, Spoil); 7] = [
            ("lr", |c| c.lr = 0.0),
            ("beta2", |c| c.algorithm = Algorithm::AdamW(AdamWConfig { beta2: 1.0, ..Default::default() })),
            ("schedule.decay_share", |c| c.schedule = Schedule::Wsd { decay_share: 1.5 }),
            ("lora_plus_ratio", |c| c.lora_plus_ratio = Some(0.5)),
            ("lr_scaling.base_batch", |c| c.lr_scaling = LrScalingConfig::Linear { base_batch: 0 }),
            ("weight_decay", |c| c.weight_decay = -0.1),
            ("clip_norm", |c| c.clip_norm = f64::NAN),
        ];
        let of_adafactor: [(&str, Adafactor); 5] = [
            ("beta1", |c| c.beta1 = Some(1.0)),
            ("decay_rate", |c| c.decay_rate = 0.8),
            ("clip_threshold", |c| c.clip_threshold = 0.0),
            ("epsilon1", |c| c.epsilon1 = f64::NAN),
            ("epsilon2", |c| c.epsilon2 = 0.1),
        ];
        let spoilt = cases.map(|(key, spoil)| {
            let mut config = OptimizerConfig::default();
            spoil(&mut config);
            (key, config)
        });
        let adafactor = of_adafactor.map(|(key, spoil)| {
            let mut config = AdafactorConfig::default();
            spoil(&mut config);
            (key, OptimizerConfig { algorithm: Algorithm::Adafactor(config), ..Default::default() })
        });
        for (key, config) in spoilt.into_iter().chain(adafactor) {
            let error = config.validate().expect_err(key);
            assert_eq!(error.key, format!("optimizer.{key}"), "{error}");
        }
    }

    #[test]
    fn keys_stand_beside_the_name_of_the_rule_that_has_them() {
        let read = |json: &str| serde_json::from_str::<OptimizerConfig>(json).map_err(|error| error.to_string());
        let adafactor = read(r#"{"name": "adafactor", "lr": 0.01, "decay_rate": -0.7}"#).expect("read");
        let expected = AdafactorConfig { decay_rate: -0.7, ..Default::default() };
        assert_eq!((adafactor.lr, &adafactor.algorithm), (0.01, &Algorithm::Adafactor(expected)));
        let written = serde_json::to_string(&adafactor).expect("JSON");
        assert!(written.starts_with(r#"{"name":"adafactor","beta1":null,"decay_rate":-0.7"#), "{written}");
        assert_eq!(read(&written), Ok(adafactor));
        assert_eq!(read(r#"{"beta2": 0.999}"#).map(|config| config.algorithm.name()), Ok("adamw"));
        for (json, expected) in [
            (r#"{"name": "adafactor", "beta2": 0.999}"#, "`beta2`: there is no such key with `name: adafactor`"),
            (r#"{"lrr": 1}"#, "`lrr`: there is no such key with `name: adamw`; the keys here are name, beta1"),
            (r#"{"beta1": "x"}"#, "`beta1`: invalid type"),
            (r#"{"name": "lyon"}"#, "`name`: unknown variant `lyon`, expected"),
            (r#"{"name": 3}"#, "`name`: invalid type: 3"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn rates_follow_the_batch_by_the_rule() {
        let group = |lr| serde_json::from_value(serde_json::json!({"match": "head", "lr": lr})).expect("a group");
        let config = |lr_scaling| OptimizerConfig { lr_scaling, ..Default::default() };
        let (linear, sqrt) = (LrScalingConfig::Linear { base_batch: 16 }, LrScalingConfig::Sqrt { base_batch: 16 });
        let (same, said) = config(LrScalingConfig::None).for_batch(64.0);
        assert_eq!((same.lr, said), (3e-4, None));
        let (doubled, said) = config(sqrt).for_batch(64.0);
        assert_eq!((doubled.lr, doubled.lr_scaling), (6e-4, LrScalingConfig::None));
        assert_eq!(said.as_deref(), Some("learning rate 3e-4 × sqrt(64 / 16) = 6e-4"));
        let config = OptimizerConfig { groups: vec![group(Some(1.0)), group(None)], ..config(linear) };
        let (halved, said) = config.for_batch(8.0);
        assert_eq!((halved.lr, halved.groups[0].lr, halved.groups[1].lr), (1.5e-4, Some(0.5), None));
        assert_eq!(said.as_deref(), Some("learning rate 3e-4 × 8 / 16 = 1.5e-4, and those of groups alike"));
        assert_eq!(halved.for_batch(8.0), (halved.clone(), None), "and once");
        let (_, said) = OptimizerConfig { lr_scaling: sqrt, ..config.clone() }.for_batch(32.0);
        assert!(said.expect("a sentence").contains("= 4.243e-4"));
        let (_, said) = OptimizerConfig { groups: Vec::new(), ..config }.for_batch(23.987);
        let expected = "learning rate 3e-4 × 24.0 / 16 = 4.498e-4: its steps have 24.0 samples in the mean";
        assert_eq!(said.as_deref(), Some(expected));
    }
}
