//! Configuration of one adapter, with PEFT's keys.

use crate::config_error::{ConfigError, check_dropout, invalid};
use crate::limits::MOST_RANK;
use serde::{Deserialize, Serialize};

/// Configuration of one task's adapter. Keys are those of PEFT's `adapter_config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of every update.
    pub r: usize,
    /// Numerator of the scale: the update is multiplied by `lora_alpha / r`, or by `lora_alpha / √r` with `use_rslora`.
    pub lora_alpha: f64,
    /// Dropout on the adapter's input, in training.
    pub lora_dropout: f64,
    /// Linear maps to adapt: names such as `q_proj`, path suffixes such as `self_attn.q_proj`, or regular expressions for whole
    /// paths such as `.*decoder.*q_proj`; `all-linear` is all of them.
    #[serde(deserialize_with = "names")]
    #[schemars(with = "Names")]
    pub target_modules: Vec<String>,
    /// Whether the scale is rank-stabilised (Kalajdzievski, 2023): updates of different ranks then have similar sizes.
    pub use_rslora: bool,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "a name, or a list of names")]
enum Names {
    One(String),
    Several(Vec<String>),
}

fn names<'de, D: serde::Deserializer<'de>>(written: D) -> Result<Vec<String>, D::Error> {
    Ok(match Names::deserialize(written)? {
        Names::One(name) => vec![name],
        Names::Several(names) => names,
    })
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { r: 8, lora_alpha: 16.0, lora_dropout: 0.0, target_modules: Vec::new(), use_rslora: false }
    }
}

impl LoraConfig {
    /// Checks the values. Only the model can check that the targets exist.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.r == 0 {
            return Err(invalid("r", 0, "an adapter has at least rank 1"));
        }
        if self.r > MOST_RANK {
            return Err(invalid("r", self.r, &format!("it must be at most {MOST_RANK}")));
        }
        if !(self.lora_alpha > 0.0 && self.lora_alpha.is_finite()) {
            return Err(invalid("lora_alpha", self.lora_alpha, "it must be above 0"));
        }
        check_dropout("lora_dropout", self.lora_dropout)
    }

    /// Factor of the product of the two matrices.
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
    fn targets_are_a_list_or_one_name() {
        let read = |targets: &str| serde_json::from_str::<LoraConfig>(&format!("{{\"target_modules\": {targets}}}"));
        assert_eq!(read("\"all-linear\"").expect("a name").target_modules, ["all-linear"]);
        assert_eq!(read("[\"query\", \"value\"]").expect("a list").target_modules, ["query", "value"]);
        let error = read("3").expect_err("a number").to_string();
        assert!(error.contains("a name, or a list of names"), "{error}");
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
