//! Settings of each parameter, from its group, LoRA+ or the optimizer.

use super::{LrScalingConfig, OptimizerConfig};
use crate::config_error::TrainConfigError;
use undertone_store::ParameterInfo;

/// Settings of one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    /// Ratio of its learning rate to the optimizer's.
    pub factor: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

impl OptimizerConfig {
    /// Checks groups and LoRA+ against the parameters of a model.
    ///
    /// # Errors
    /// When a group is the first match of no trainable parameter, there is no B matrix for LoRA+ to move, or
    /// [`for_batch`](Self::for_batch) was forgotten.
    pub fn check(&self, parameters: &[ParameterInfo]) -> Result<(), TrainConfigError> {
        if self.lr_scaling != LrScalingConfig::None {
            let rule = "the Learner knows no batch size: give it what `OptimizerConfig::for_batch` makes of it";
            return Err(TrainConfigError::new("optimizer.lr_scaling", &self.lr_scaling, rule));
        }
        let trained: Vec<&str> = parameters.iter().filter(|p| p.trainable).map(|p| p.name.as_str()).collect();
        for (index, group) in self.groups.iter().enumerate() {
            if trained.iter().any(|name| self.group(name) == Some(index)) {
                continue;
            }
            let taken = trained.iter().any(|name| group.pattern.is_found_in(name));
            let rule = if taken {
                "every trainable parameter that it matches belongs to a group before it: put it first".to_owned()
            } else {
                format!("it matches no trainable parameter; there are {}", some(&trained))
            };
            return Err(TrainConfigError::new(format!("optimizer.groups.{index}.match"), &group.pattern, &rule));
        }
        if let Some(ratio) = self.lora_plus_ratio.filter(|_| !trained.iter().any(|name| is_lora_b(name))) {
            let rule =
                format!("there is no trainable LoRA matrix `lora_b` to move faster; there are {}", some(&trained));
            return Err(TrainConfigError::new("optimizer.lora_plus_ratio", &ratio, &rule));
        }
        Ok(())
    }

    /// The first group that a parameter matches.
    fn group(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.pattern.is_found_in(name))
    }

    /// Returns the settings of a parameter with so many axes.
    pub(super) fn settings(&self, name: &str, axes: usize) -> Settings {
        let group = self.group(name).map(|index| &self.groups[index]);
        let plus = self.lora_plus_ratio.filter(|_| is_lora_b(name)).unwrap_or(1.0);
        let decay = group.and_then(|group| group.weight_decay).unwrap_or(self.weight_decay);
        Settings {
            factor: plus * group.and_then(|group| group.lr).map_or(1.0, |lr| lr / self.lr),
            // Vectors are biases and norms: shrinking those towards zero would fight the data for no gain.
            weight_decay: if axes > 1 { decay } else { 0.0 },
        }
    }
}

/// Whether a path ends in `lora_b`, the name of LoRA's second matrix in PEFT and here.
fn is_lora_b(name: &str) -> bool {
    name.rsplit('.').next() == Some("lora_b")
}

/// Lists the first, the middle and the last of some names as examples.
fn some(names: &[&str]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for index in [0, names.len() / 2, names.len().saturating_sub(1)] {
        let name = names.get(index).map(|name| format!("`{name}`"));
        shown.extend(name.filter(|name| !shown.contains(name)));
    }
    match (names.len() - shown.len(), shown.is_empty()) {
        (_, true) => "none".to_owned(),
        (0, _) => shown.join(", "),
        (more, _) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupConfig;

    fn group(pattern: &str, lr: Option<f64>, weight_decay: Option<f64>) -> GroupConfig {
        GroupConfig { pattern: pattern.to_owned().try_into().expect("a pattern"), lr, weight_decay }
    }

    fn config(groups: Vec<GroupConfig>) -> OptimizerConfig {
        OptimizerConfig { lr: 1e-3, weight_decay: 0.1, groups, ..Default::default() }
    }

    fn parameters(names: &[&str]) -> Vec<ParameterInfo> {
        let info = |name: &&str| ParameterInfo {
            name: name.trim_start_matches('!').to_owned(),
            shape: vec![2, 2],
            trainable: !name.starts_with('!'),
        };
        names.iter().map(info).collect()
    }

    #[test]
    fn the_first_match_wins_and_the_rest_is_the_optimizers_own() {
        let groups = vec![group("^router\\.", Some(1e-2), None), group("router|head", Some(1e-4), Some(0.5))];
        let config = OptimizerConfig { lora_plus_ratio: Some(16.0), ..config(groups) };
        let settings = |name, axes| {
            let Settings { factor, weight_decay } = config.settings(name, axes);
            ((factor * 1e6).round() / 1e6, weight_decay)
        };
        assert_eq!(settings("router.weight", 2), (10.0, 0.1));
        assert_eq!(settings("heads.0.weight", 2), (0.1, 0.5));
        assert_eq!(settings("heads.0.bias", 1), (0.1, 0.0), "vectors have no decay in any group");
        assert_eq!(settings("layers.0.lora.lora_a", 2), (1.0, 0.1));
        assert_eq!(settings("layers.0.lora.lora_b", 2), (16.0, 0.1));
        assert_eq!(settings("heads.0.lora.lora_b", 2), (1.6, 0.5), "LoRA+ goes by the rate of its group");
        assert_eq!(settings("layers.0.lora.lora_b_norm", 2), (1.0, 0.1));
    }

    #[test]
    fn what_matches_nothing_is_refused_by_name() {
        let some = parameters(&["encoder.weight", "!decoder.weight", "router.weight", "layers.0.lora.lora_b"]);
        let all = config(vec![group("router", Some(1.0), None), group("e", Some(1.0), None)]);
        assert_eq!(OptimizerConfig { lora_plus_ratio: Some(2.0), ..all }.check(&some), Ok(()));
        let refusal = |config: OptimizerConfig, parameters: &[ParameterInfo]| {
            config.check(parameters).expect_err("refused").to_string()
        };
        let error = refusal(config(vec![group("router", Some(1.0), None), group("decoder", Some(1.0), None)]), &some);
        assert!(error.contains("`train.optimizer.groups.1.match` is `decoder`"), "{error}");
        assert!(error.contains("`encoder.weight`, `router.weight`, `layers.0.lora.lora_b`"), "{error}");
        let error = refusal(config(vec![group("r", Some(1.0), None), group("router", Some(1.0), None)]), &some);
        assert!(error.contains("groups.1.") && error.contains("before it"), "{error}");
        let frozen = parameters(&["encoder.weight", "!layers.0.lora.lora_b"]);
        let error = refusal(OptimizerConfig { lora_plus_ratio: Some(2.0), ..config(Vec::new()) }, &frozen);
        assert!(error.contains("`train.optimizer.lora_plus_ratio` is 2.0") && error.contains("encoder"), "{error}");
        let unscaled = OptimizerConfig { lr_scaling: LrScalingConfig::Sqrt { base_batch: 1 }, ..config(Vec::new()) };
        assert!(refusal(unscaled, &some).contains("lr_scaling"));
    }

    #[test]
    fn a_group_says_what_differs() {
        for (key, group) in [
            ("match", group("router", None, None)),
            ("lr", group("router", Some(0.0), None)),
            ("weight_decay", group("router", None, Some(f64::NAN))),
        ] {
            let error = config(vec![group]).validate().expect_err(key);
            assert_eq!(error.key, format!("optimizer.groups.0.{key}"));
        }
    }
}
