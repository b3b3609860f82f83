//! The `train.optimizer` section of a configuration.

use super::groups::GroupConfig;
use super::name::OptimizerName;
use crate::Schedule;
use crate::config_error::TrainConfigError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::str::FromStr;

/// Optimizer, learning rate and schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Update rule.
    pub name: OptimizerName,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay on matrices. Biases, norms and other vectors have none.
    pub weight_decay: f64,
    /// AdamW: decay of the running mean of gradients.
    pub beta1: f64,
    /// AdamW: decay of the running mean of squared gradients.
    pub beta2: f64,
    /// AdamW: constant added to the root of the mean square.
    pub epsilon: f64,
    /// Settings of Adafactor, in place of `beta1`, `beta2` and `epsilon`.
    pub adafactor: AdafactorConfig,
    /// Further settings of a registered optimizer.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Groups of parameters with their own learning rate or weight decay, like PyTorch's parameter groups. A parameter
    /// belongs to the first group whose pattern matches its path.
    pub groups: Vec<GroupConfig>,
    /// LoRA+ (Hayou et al., 2024): ratio of the learning rate of LoRA's B matrices to that of its A matrices. At least
    /// 1; the paper uses 16. Without it, both have the same rate.
    pub lora_plus_ratio: Option<f64>,
    /// Decay of the learning rate after the warm-up.
    pub schedule: Schedule,
    /// Optimizer steps over which the learning rate rises to its peak.
    pub warmup_steps: u64,
    /// Share of the steps after the warm-up over which `schedule: wsd` decays.
    pub decay_share: f64,
    /// Scaling of learning rates where a step does not have `base_batch` samples.
    pub lr_scaling: LrScaling,
    /// Samples in an optimizer step, over all its batches, for which `lr` is right.
    pub base_batch: Option<usize>,
    /// Maximum gradient norm, over all parameters together; 0 turns clipping off.
    pub clip_norm: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            name: OptimizerName::ADAMW,
            lr: 3e-4,
            weight_decay: 0.01,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            adafactor: AdafactorConfig::default(),
            options: Map::new(),
            groups: Vec::new(),
            lora_plus_ratio: None,
            schedule: Schedule::Cosine,
            warmup_steps: 100,
            decay_share: 0.2,
            lr_scaling: LrScaling::None,
            base_batch: None,
            clip_norm: 1.0,
        }
    }
}

/// Settings of Adafactor, named as in the paper where it has a name. The learning rate is the schedule's, never the
/// paper's relative step size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdafactorConfig {
    /// Decay of the running mean of updates. Without it there is no mean, which saves its memory.
    pub beta1: Option<f64>,
    /// Exponent of the decay of squared gradients: `beta2 = 1 - step^decay_rate`.
    pub decay_rate: f64,
    /// Constant added to every squared gradient.
    pub epsilon1: f64,
    /// Minimum root mean square of a parameter for `scale_parameter`.
    pub epsilon2: f64,
    /// Maximum root mean square of a parameter's update, in units of the learning rate.
    pub clip_threshold: f64,
    /// Whether a parameter's learning rate is multiplied by its root mean square. Then `lr` is relative, and 1e-2 is
    /// usual.
    pub scale_parameter: bool,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        Self {
            beta1: None,
            decay_rate: -0.8,
            epsilon1: 1e-30,
            epsilon2: 1e-3,
            clip_threshold: 1.0,
            scale_parameter: false,
        }
    }
}

/// Scaling of the learning rate with the batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LrScaling {
    /// No scaling.
    #[default]
    None,
    /// In proportion to the batch size (Goyal et al., 2017), as for SGD.
    Linear,
    /// With the square root of the batch size (Malladi et al., 2022), for adaptive optimizers.
    Sqrt,
}

impl FromStr for LrScaling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "linear" => Ok(Self::Linear),
            "sqrt" => Ok(Self::Sqrt),
            _ => Err(format!("there is no rule `{text}`: there are none, linear and sqrt")),
        }
    }
}

impl LrScaling {
    /// Returns the factor on a learning rate that is right for steps of `base` samples, for steps of `samples`.
    pub fn factor(self, samples: f64, base: usize) -> f64 {
        let ratio = samples / base as f64;
        match self {
            Self::None => 1.0,
            Self::Linear => ratio,
            Self::Sqrt => ratio.sqrt(),
        }
    }
}

impl OptimizerConfig {
    /// Checks every value by itself; [`check`](Self::check) checks whether they fit a model.
    ///
    /// # Errors
    /// Names the first key with an invalid value.
    pub fn validate(&self) -> Result<(), TrainConfigError> {
        self.validate_beside(&Self::default())
    }

    /// Like [`validate`](Self::validate), with `usual` in place of the defaults.
    pub(crate) fn validate_beside(&self, usual: &Self) -> Result<(), TrainConfigError> {
        let adafactor = &self.adafactor;
        above_zero("optimizer.lr", self.lr)?;
        for (key, value) in [("optimizer.weight_decay", self.weight_decay), ("optimizer.clip_norm", self.clip_norm)] {
            check(value.is_finite() && value >= 0.0, key, &value, "must be at least 0")?;
        }
        let beta1 = adafactor.beta1.map(|beta1| ("optimizer.adafactor.beta1", beta1));
        for (key, value) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)].into_iter().chain(beta1)
        {
            check((0.0..1.0).contains(&value), key, &value, "must be at least 0 and below 1")?;
        }
        above_zero("optimizer.epsilon", self.epsilon)?;
        above_zero("optimizer.adafactor.epsilon1", adafactor.epsilon1)?;
        above_zero("optimizer.adafactor.epsilon2", adafactor.epsilon2)?;
        above_zero("optimizer.adafactor.clip_threshold", adafactor.clip_threshold)?;
        let decay = adafactor.decay_rate;
        check(decay.is_finite() && decay < 0.0, "optimizer.adafactor.decay_rate", &decay, "must be below 0")?;
        self.validate_belonging(usual)?;
        let share = self.decay_share;
        check(share > 0.0 && share <= 1.0, "optimizer.decay_share", &share, "must be above 0 and at most 1")?;
        if let Some(ratio) = self.lora_plus_ratio {
            check(ratio.is_finite() && ratio >= 1.0, "optimizer.lora_plus_ratio", &ratio, "must be at least 1")?;
        }
        let key = "optimizer.base_batch";
        check(self.base_batch != Some(0), key, &0, "must be at least 1")?;
        if self.lr_scaling != LrScaling::None && self.base_batch.is_none() {
            let rule = "`optimizer.lr_scaling` needs the number of samples in an optimizer step that `lr` is right for";
            return Err(TrainConfigError { key: key.into(), value: "not given".into(), rule: rule.into() });
        }
        self.groups.iter().enumerate().try_for_each(|(index, group)| group.validate(index))
    }

    /// Checks that every setting that differs from `usual` has an effect with the options chosen. A setting without
    /// effect would mislead you.
    fn validate_belonging(&self, usual: &Self) -> Result<(), TrainConfigError> {
        let adafactor = self.name == OptimizerName::ADAFACTOR;
        if !adafactor && self.adafactor != usual.adafactor {
            let rule = "it is for `optimizer.name: adafactor`: leave it out";
            return Err(TrainConfigError {
                key: "optimizer.adafactor".into(),
                value: "given".into(),
                rule: rule.into(),
            });
        }
        for (key, value, usual) in [
            ("optimizer.beta1", self.beta1, usual.beta1),
            ("optimizer.beta2", self.beta2, usual.beta2),
            ("optimizer.epsilon", self.epsilon, usual.epsilon),
        ] {
            let rule = "it is for AdamW, and Adafactor's settings are in `optimizer.adafactor`: leave it out";
            check(!adafactor || value == usual, key, &value, rule)?;
        }
        self.validate_options()?;
        let (key, epsilon2) = ("optimizer.adafactor.epsilon2", self.adafactor.epsilon2);
        let read = self.adafactor.scale_parameter || epsilon2 == usual.adafactor.epsilon2;
        check(read, key, &epsilon2, "it is for `scale_parameter: true`: leave it out")?;
        let decays = self.schedule == Schedule::Wsd || self.decay_share == usual.decay_share;
        check(decays, "optimizer.decay_share", &self.decay_share, "it is for `optimizer.schedule: wsd`: leave it out")?;
        let (scaled, base) = (self.lr_scaling != LrScaling::None, self.base_batch.unwrap_or_default());
        let rule = "it is for `optimizer.lr_scaling`: give that, `linear` or `sqrt`, or leave it out";
        check(scaled || self.base_batch == usual.base_batch, "optimizer.base_batch", &base, rule)
    }

    /// Returns the learning rate of optimizer step `step` (from 0) of `steps`. The rates of groups and of LoRA+ are in
    /// proportion to it.
    pub fn rate(&self, step: u64, steps: u64) -> f64 {
        self.lr * self.schedule.factor(step, self.warmup_steps, steps, self.decay_share)
    }

    /// Applies `lr_scaling` for optimizer steps of so many samples on average. Returns the result and a sentence that
    /// describes it; the same configuration and `None` without `lr_scaling`.
    pub fn for_batch(&self, samples: f64) -> (Self, Option<String>) {
        let (LrScaling::Linear | LrScaling::Sqrt, Some(base)) = (self.lr_scaling, self.base_batch) else {
            return (self.clone(), None);
        };
        let factor = self.lr_scaling.factor(samples, base);
        let mut scaled = self.clone();
        scaled.lr_scaling = LrScaling::None;
        scaled.lr *= factor;
        scaled.groups.iter_mut().filter_map(|group| group.lr.as_mut()).for_each(|lr| *lr *= factor);
        let by_number = samples.fract() == 0.0;
        let samples = if by_number { samples.to_string() } else { format!("{samples:.1}") };
        let by = match self.lr_scaling {
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

fn above_zero(key: &'static str, value: f64) -> Result<(), TrainConfigError> {
    check(value.is_finite() && value > 0.0, key, &value, "must be above 0")
}

fn check(holds: bool, key: &'static str, value: &dyn Debug, rule: &str) -> Result<(), TrainConfigError> {
    if holds { Ok(()) } else { Err(TrainConfigError::new(key, value, rule)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_key() {
        assert_eq!(OptimizerConfig::default().validate(), Ok(()));
        type Spoil = fn(&mut OptimizerConfig);
        let adafactor: Spoil = |c| c.name = OptimizerName::ADAFACTOR;
        let cases: [(&str, [Spoil; 2]); 15] = [
            ("lr", [adafactor, |c| c.lr = 0.0]),
            ("beta2", [adafactor, |c| c.beta2 = 0.999]),
            ("adafactor", [|c| c.lr = 1.0, |c| c.adafactor.scale_parameter = true]),
            ("adafactor.beta1", [adafactor, |c| c.adafactor.beta1 = Some(1.0)]),
            ("adafactor.decay_rate", [adafactor, |c| c.adafactor.decay_rate = 0.8]),
            ("adafactor.clip_threshold", [adafactor, |c| c.adafactor.clip_threshold = 0.0]),
            ("adafactor.epsilon1", [adafactor, |c| c.adafactor.epsilon1 = f64::NAN]),
            ("adafactor.epsilon2", [adafactor, |c| c.adafactor.epsilon2 = 0.1]),
            ("decay_share", [|c| c.schedule = Schedule::Wsd, |c| c.decay_share = 1.5]),
            ("decay_share", [|c| c.schedule = Schedule::Linear, |c| c.decay_share = 0.5]),
            ("lora_plus_ratio", [adafactor, |c| c.lora_plus_ratio = Some(0.5)]),
            ("base_batch", [|c| c.lr_scaling = LrScaling::Sqrt, |c| c.clip_norm = 0.0]),
            ("base_batch", [|c| c.lr_scaling = LrScaling::Linear, |c| c.base_batch = Some(0)]),
            ("base_batch", [|c| c.lr_scaling = LrScaling::None, |c| c.base_batch = Some(16)]),
            ("weight_decay", [adafactor, |c| c.weight_decay = -0.1]),
        ];
        for (key, spoil) in cases {
            let mut config = OptimizerConfig::default();
            spoil.iter().for_each(|spoil| spoil(&mut config));
            let error = config.validate().expect_err(key);
            assert_eq!(error.key, format!("optimizer.{key}"), "{error}");
        }
    }

    #[test]
    fn rules_of_scaling_are_known_by_name() {
        assert_eq!("sqrt".parse(), Ok(LrScaling::Sqrt));
        assert!("cubic".parse::<LrScaling>().expect_err("no rule").contains("cubic"));
    }

    #[test]
    fn rates_follow_the_batch_by_the_rule() {
        let group = |lr| serde_json::from_value(serde_json::json!({"match": "head", "lr": lr})).expect("a group");
        let config = |lr_scaling| OptimizerConfig { lr_scaling, base_batch: Some(16), ..Default::default() };
        let (same, said) = config(LrScaling::None).for_batch(64.0);
        assert_eq!((same.lr, said), (3e-4, None));
        let (doubled, said) = config(LrScaling::Sqrt).for_batch(64.0);
        assert_eq!((doubled.lr, doubled.lr_scaling), (6e-4, LrScaling::None));
        assert_eq!(said.as_deref(), Some("learning rate 3e-4 × sqrt(64 / 16) = 6e-4"));
        let config = OptimizerConfig { groups: vec![group(Some(1.0)), group(None)], ..config(LrScaling::Linear) };
        let (halved, said) = config.for_batch(8.0);
        assert_eq!((halved.lr, halved.groups[0].lr, halved.groups[1].lr), (1.5e-4, Some(0.5), None));
        assert_eq!(said.as_deref(), Some("learning rate 3e-4 × 8 / 16 = 1.5e-4, and those of groups alike"));
        assert_eq!(halved.for_batch(8.0), (halved.clone(), None), "and once");
        let (_, said) = OptimizerConfig { lr_scaling: LrScaling::Sqrt, ..config.clone() }.for_batch(32.0);
        assert!(said.expect("a sentence").contains("= 4.243e-4"));
        let (_, said) = OptimizerConfig { groups: Vec::new(), ..config }.for_batch(23.987);
        let expected = "learning rate 3e-4 × 24.0 / 16 = 4.498e-4: its steps have 24.0 samples in the mean";
        assert_eq!(said.as_deref(), Some(expected));
    }
}
