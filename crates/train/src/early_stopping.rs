//! Early stopping: ending a run whose metric no longer improves.

use crate::config_error::TrainConfigError;
use serde::{Deserialize, Deserializer, Serialize};
use undertone_metrics::Direction;

/// Early stopping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// Evaluations in a row without an improvement on the best before them, after which training ends.
    pub patience: u64,
    /// Metric to watch; the default is `checkpoint.metric`.
    #[serde(default)]
    pub metric: Option<String>,
    /// Whether higher values of the metric are better. Give this only for metrics whose direction is unknown, such as
    /// your own. For a metric whose direction is known, such as `loss` or `accuracy`, another value is refused.
    #[serde(default)]
    pub greater_is_better: Option<bool>,
    /// Change of the metric that an improvement has to exceed.
    #[serde(default)]
    pub min_delta: f64,
}

/// Reads early stopping. With a patience of 0, which switches it off for a part of a run, there is none.
pub(crate) fn unless_off<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EarlyStoppingConfig>, D::Error> {
    let config = Option::<EarlyStoppingConfig>::deserialize(deserializer)?;
    Ok(config.filter(|config| config.patience > 0))
}

impl EarlyStoppingConfig {
    /// Stops after so many evaluations without an improvement, by the metric that selects the best checkpoint.
    pub fn after(patience: u64) -> Self {
        Self { patience, metric: None, greater_is_better: None, min_delta: 0.0 }
    }

    /// Returns the direction of the watched `metric`, from `known`, its known direction, or else from the
    /// configuration.
    pub(crate) fn direction(
        &self,
        metric: &str,
        known: Option<Direction>,
    ) -> Result<Option<Direction>, TrainConfigError> {
        let asked = self.greater_is_better.map(|greater| if greater { Direction::Higher } else { Direction::Lower });
        match (asked, known) {
            (Some(asked), Some(known)) if asked != known => {
                let rule = format!("of `{metric}` {}; leave this key out", known.words());
                Err(TrainConfigError::new("early_stopping.greater_is_better", &(asked == Direction::Higher), &rule))
            }
            _ => Ok(known.or(asked)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrainConfig;

    #[test]
    fn it_waits_as_often_as_it_is_told_and_never_before_there_is_something_to_compare_with() {
        let stopping = EarlyStoppingConfig { min_delta: 0.1, ..EarlyStoppingConfig::after(2) };
        let config = TrainConfig { early_stopping: Some(stopping), ..Default::default() };
        let (mut reference, mut stalled) = (None, 0);
        let mut over = |cost| {
            config.observe(cost, &mut reference, &mut stalled);
            (reference, stalled, config.is_over(reference, stalled))
        };
        assert_eq!(over(None), (None, 1, false));
        assert_eq!(over(None), (None, 2, false));
        assert_eq!(over(Some(1.0)), (Some(1.0), 0, false));
        assert_eq!(over(Some(0.95)), (Some(1.0), 1, false), "better by too little");
        assert_eq!(over(Some(0.8)), (Some(0.8), 0, false));
        assert_eq!(over(Some(0.9)), (Some(0.8), 1, false));
        assert_eq!(over(None), (Some(0.8), 2, true));
        assert!(!TrainConfig::default().is_over(Some(1.0), 100), "no patience is all patience");
    }

    #[test]
    fn no_patience_switches_it_off() {
        let read = |json: &str| serde_json::from_str::<TrainConfig>(json).map(|config| config.early_stopping);
        assert_eq!(read(r#"{"early_stopping": {"patience": 0, "min_delta": 0.1}}"#).expect("read"), None);
        assert_eq!(read(r#"{"early_stopping": null}"#).expect("read"), None);
        let two = read(r#"{"early_stopping": {"patience": 2}}"#).expect("read");
        assert_eq!(two, Some(EarlyStoppingConfig::after(2)));
        assert!(read(r#"{"early_stopping": {"min_delta": 0.1}}"#).unwrap_err().to_string().contains("`patience`"));
    }
}
