//! Early stopping: ending a run whose metric no longer improves.

use crate::config_error::TrainConfigError;
use serde::{Deserialize, Serialize};
use undertone_metrics::Direction;

/// Early stopping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// Metric to watch; the default is `checkpoint.metric`.
    pub metric: Option<String>,
    /// Whether higher values of the metric are better. Give this only for metrics whose direction is unknown, such as
    /// your own. For a metric whose direction is known, such as `loss` or `accuracy`, another value is refused.
    pub greater_is_better: Option<bool>,
    /// Evaluations in a row without an improvement on the best before them, after which training ends; 0 never stops
    /// early.
    pub patience: u64,
    /// Change of the metric that an improvement has to exceed.
    pub min_delta: f64,
}

impl EarlyStoppingConfig {
    /// Returns the direction of the watched `metric`, from `known`, its known direction, or else from the
    /// configuration.
    ///
    /// # Errors
    /// When the configuration contradicts `known`.
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

    /// Whether so many evaluations in a row without an improvement end a run.
    pub fn ends(&self, stalled: u64) -> bool {
        self.patience > 0 && stalled >= self.patience
    }

    /// Records an evaluation. `cost` is the watched metric with the sign that makes lower better, if it is a number.
    /// `reference` is the last cost that counted as an improvement, and `stalled` the number of evaluations since.
    pub(crate) fn observe(&self, cost: Option<f64>, reference: &mut Option<f64>, stalled: &mut u64) {
        let min_delta = self.min_delta;
        match cost.filter(|cost| reference.is_none_or(|reference| *cost < reference - min_delta)) {
            Some(cost) => (*reference, *stalled) = (Some(cost), 0),
            None => *stalled += 1,
        }
    }

    /// Whether a run in this state ends; never before there is a reference.
    pub(crate) fn is_over(&self, reference: Option<f64>, stalled: u64) -> bool {
        self.ends(stalled) && reference.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_as_often_as_it_is_told_and_never_before_there_is_something_to_compare_with() {
        let config = EarlyStoppingConfig { patience: 2, min_delta: 0.1, ..Default::default() };
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
        assert!(!EarlyStoppingConfig::default().is_over(Some(1.0), 100), "no patience is all patience");
    }
}
