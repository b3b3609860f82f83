//! Configuration of the loss term by which a model learns from a larger one.

use super::ConfigError;
use super::error::ensure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undertone_model::frozen::FrozenDtype;

/// Divergence of the model's predictions from those of a teacher (Hinton et al., 2015), `τ² KL(teacher ‖ model)` at each token
/// of a text, beside the cross-entropy of the text, whose weight is 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DistillationConfig {
    /// The teacher, a Whisper with the same vocabulary and window: a folder in the Hugging Face layout, a file or folder of
    /// another program, the directory of a run that trained a whole model, a bundled model, or a name on the hub.
    pub teacher: PathBuf,
    /// Weight of the divergence. Distil-Whisper weighs it 1.25 times as much as the cross-entropy.
    pub weight: f64,
    /// Temperature τ that divides the logits of both. Above 1, tokens that the teacher finds unlikely
    /// count more.
    pub temperature: f64,
    /// Number type in which the teacher's matrices are held in memory.
    pub frozen_dtype: FrozenDtype,
}

impl Default for DistillationConfig {
    fn default() -> Self {
        Self { teacher: PathBuf::new(), weight: 1.0, temperature: 2.0, frozen_dtype: FrozenDtype::F32 }
    }
}

impl DistillationConfig {
    /// # Errors
    /// When there is no teacher, or a number is not positive.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let no_teacher = || "`loss.distillation.teacher` is missing: name the model to learn from";
        ensure(!self.teacher.as_os_str().is_empty(), no_teacher)?;
        check_positive("loss.distillation", self.weight, self.temperature)
    }
}

/// Adapters of the run that teach the baseline `distilled`, each for its own task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterTeacher {
    /// Phase that trained the adapters: 1 or 3.
    pub phase: u8,
    /// Weight of the divergence from their predictions, beside the cross-entropy of the text, whose weight is 1.
    pub weight: f64,
    /// Temperature τ that divides the logits of both.
    pub temperature: f64,
}

impl Default for AdapterTeacher {
    fn default() -> Self {
        Self { phase: 3, weight: 1.0, temperature: 2.0 }
    }
}

impl AdapterTeacher {
    pub(super) fn validate(self) -> Result<(), ConfigError> {
        ensure(matches!(self.phase, 1 | 3), || {
            format!("`phases.baselines.teacher.phase` is {}: phases 1 and 3 train adapters", self.phase)
        })?;
        check_positive("phases.baselines.teacher", self.weight, self.temperature)
    }
}

/// Checks the numbers of a divergence in section `section`.
fn check_positive(section: &str, weight: f64, temperature: f64) -> Result<(), ConfigError> {
    for (key, value) in [("weight", weight), ("temperature", temperature)] {
        ensure(value.is_finite() && value > 0.0, || format!("`{section}.{key}` is {value}: it must be above 0"))?;
    }
    Ok(())
}
