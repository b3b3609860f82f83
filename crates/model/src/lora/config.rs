//! What one adapter is, in PEFT's words.

use crate::limits::MOST_RANK;
use serde::{Deserialize, Serialize};

/// One task's adapter. Key names are those of PEFT's `adapter_config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// The rank of every update.
    pub r: usize,
    /// The update counts `lora_alpha / r` times, or `lora_alpha / √r` times with `use_rslora`.
    pub lora_alpha: f64,
    /// Probability of dropping a number of the adapter's input; acts in training only.
    pub lora_dropout: f64,
    /// Which linear maps are adapted: names like `q_proj`, or ends of paths like `self_attn.q_proj`.
    pub target_modules: Vec<String>,
    /// Rank-stabilised scale (Kalajdzievski, 2023): updates of different ranks then have a like size.
    pub use_rslora: bool,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { r: 8, lora_alpha: 16.0, lora_dropout: 0.0, target_modules: Vec::new(), use_rslora: false }
    }
}

/// Why a configuration describes no adapter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoraConfigError {
    /// The rank is 0.
    #[error("`r` is 0: an adapter has at least rank 1")]
    Rank,
    /// The rank is above that of any linear map there is.
    #[error("`r` is {0}: it must be at most {MOST_RANK}")]
    HighRank(usize),
    /// The scale is no positive number.
    #[error("`lora_alpha` is {0}: it must be above 0")]
    Alpha(f64),
    /// The dropout is no probability.
    #[error("`lora_dropout` is {0}: it must be at least 0 and below 1")]
    Dropout(f64),
}

impl LoraConfig {
    /// # Errors
    /// Names the key that makes no sense. Whether the targets exist is known to the model alone.
    pub fn validate(&self) -> Result<(), LoraConfigError> {
        if self.r == 0 {
            return Err(LoraConfigError::Rank);
        }
        if self.r > MOST_RANK {
            return Err(LoraConfigError::HighRank(self.r));
        }
        if !(self.lora_alpha > 0.0 && self.lora_alpha.is_finite()) {
            return Err(LoraConfigError::Alpha(self.lora_alpha));
        }
        if !(0.0..1.0).contains(&self.lora_dropout) {
            return Err(LoraConfigError::Dropout(self.lora_dropout));
        }
        Ok(())
    }

    /// How many times the product of the two matrices counts.
    pub fn scale(&self) -> f64 {
        self.lora_alpha / if self.use_rslora { (self.r as f64).sqrt() } else { self.r as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_alpha_by_rank_or_by_its_root() {
        let config = LoraConfig { r: 16, lora_alpha: 32.0, ..Default::default() };
        assert_eq!(config.scale(), 2.0);
        assert_eq!(LoraConfig { use_rslora: true, ..config }.scale(), 8.0);
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let refused = |config: LoraConfig| config.validate().expect_err("refused").to_string();
        assert!(refused(LoraConfig { r: 0, ..Default::default() }).starts_with("`r`"));
        assert!(refused(LoraConfig { r: usize::MAX, ..Default::default() }).starts_with("`r`"));
        assert!(refused(LoraConfig { lora_alpha: f64::NAN, ..Default::default() }).starts_with("`lora_alpha`"));
        assert!(refused(LoraConfig { lora_dropout: 1.0, ..Default::default() }).starts_with("`lora_dropout`"));
        assert_eq!(LoraConfig::default().validate(), Ok(()));
    }
}
