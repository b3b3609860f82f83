//! Ending a run whose metric no longer gets better.

use crate::config_error::TrainConfigError;
use serde::{Deserialize, Serialize};
use undertone_metrics::Direction;

/// When training ends before its last step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// The metric that is watched; `checkpoint.metric` if none is named.
    pub metric: Option<String>,
    /// Whether higher values of it are better; what is known of the metric by default. It is for research code's own
    /// metrics: for one of which it is known, `loss` or `accuracy` say, another answer is refused.
    pub greater_is_better: Option<bool>,
    /// Evaluations in a row that may be no better than the best before them; 0 never stops early.
    pub patience: u64,
    /// By how much one must be better to count.
    pub min_delta: f64,
}

impl EarlyStoppingConfig {
    /// Which way `metric`, which it watches, is better, where `known` is what is known of that.
    ///
    /// # Errors
    /// When the configuration says otherwise.
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

    /// Whether so many evaluations in a row that were no better end a run.
    pub fn ends(&self, stalled: u64) -> bool {
        self.patience > 0 && stalled >= self.patience
    }

    /// Takes an evaluation into account: `cost` is what is watched, lower for better, where it is a number; `reference` the
    /// last one that counted as better, and `stalled` the evaluations since.
    pub(crate) fn observe(&self, cost: Option<f64>, reference: &mut Option<f64>, stalled: &mut u64) {
        let min_delta = self.min_delta;
        match cost.filter(|cost| reference.is_none_or(|reference| *cost < reference - min_delta)) {
            Some(cost) => (*reference, *stalled) = (Some(cost), 0),
            None => *stalled += 1,
        }
    }

    /// Whether a run ends that stands so; never before there was something to compare with.
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
