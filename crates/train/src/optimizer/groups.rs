//! Groups of parameters with their own learning rate or weight decay.

use crate::config_error::TrainConfigError;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Group of parameters with its own learning rate or weight decay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Regular expression that is searched anywhere in a parameter's path, such as `^heads\.` or `lora_b$`.
    #[serde(rename = "match")]
    pub pattern: Pattern,
    /// Peak learning rate; the default is the optimizer's `lr`.
    #[serde(default)]
    pub lr: Option<f64>,
    /// Weight decay of matrices; the default is the optimizer's `weight_decay`.
    #[serde(default)]
    pub weight_decay: Option<f64>,
}

/// A regular expression.
#[derive(Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether the pattern is found in a path.
    pub fn is_found_in(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Regex::new(&text).map(Self).map_err(|error| {
            // The first lines mark the place of the error; the last line describes it.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("`{text}` is not a regular expression: {reason}")
        })
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0.as_str().to_owned()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl GroupConfig {
    pub(super) fn validate(&self, index: usize) -> Result<(), TrainConfigError> {
        let key = |name: &str| format!("optimizer.groups.{index}.{name}");
        match (self.lr, self.weight_decay) {
            (None, None) => Err(TrainConfigError::new(key("match"), &self.pattern, "give its `lr` or `weight_decay`")),
            (Some(lr), _) if !(lr.is_finite() && lr > 0.0) => Err(TrainConfigError::new(
                key("lr"),
                &lr,
                "must be above 0: freeze parameters that you do not want to train",
            )),
            (_, Some(decay)) if !(decay.is_finite() && decay >= 0.0) => {
                Err(TrainConfigError::new(key("weight_decay"), &decay, "must be at least 0"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_written_as_they_are_read() {
        let read = |json: &str| serde_json::from_str::<GroupConfig>(json);
        let group = read(r#"{"match": "^router\\.", "lr": 0.5}"#).expect("a group");
        assert_eq!(
            serde_json::to_string(&group).expect("JSON"),
            r#"{"match":"^router\\.","lr":0.5,"weight_decay":null}"#
        );
        let error = read(r#"{"match": "(router", "lr": 0.5}"#).expect_err("refused").to_string();
        assert!(error.contains("`(router` is not a regular expression: unclosed group"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(read(r#"{"lr": 0.5}"#).is_err() && read(r#"{"match": "a", "rate": 0.5}"#).is_err());
    }
}
