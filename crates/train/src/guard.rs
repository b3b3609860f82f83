//! Reaction to losses that are not finite, and to loss spikes.

use crate::config_error::{TrainConfigError, check};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use undertone_registry::choice;

/// Reaction to losses that are not finite, and to loss spikes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuardConfig {
    /// Reaction to a loss or gradient norm that is not finite. With products in f16 it applies once a smaller loss
    /// scale no longer helps.
    pub on_nan: OnNan,
    /// Reaction to a loss spike.
    pub on_spike: OnSpike,
}

/// Reaction to a loss that is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
#[schemars(rename = "OnNan", deny_unknown_fields, transform = choice::by_name)]
pub enum OnNan {
    /// Ends training and names the samples; checkpoints stay as they are.
    #[default]
    Stop,
    /// Counts the step, but does not update parameters.
    Skip {
        /// Maximum number of skips and rollbacks in a run, for whatever reason; one more stops it.
        #[serde(default = "usual_limit")]
        limit: u64,
    },
    /// Goes back to the last sound checkpoint, and continues from there with the data that comes after this step. The
    /// data between the checkpoint and this step are left out, because they led to the trouble.
    Rollback {
        /// Maximum number of skips and rollbacks in a run, for whatever reason; one more stops it.
        #[serde(default = "usual_limit")]
        limit: u64,
    },
}

choice!(OnNan, "type");

/// Reaction to a loss spike. A loss is a spike when it is `factor` deviations above the median of the last 64 losses.
/// The deviation is the median absolute deviation (scaled to that of a normal distribution), and at least a twentieth
/// of the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
#[schemars(rename = "OnSpike", deny_unknown_fields, transform = choice::by_name)]
pub enum OnSpike {
    /// Does nothing.
    Ignore,
    /// Logs a line.
    Warn {
        /// Number of deviations from which on a loss is a spike.
        #[serde(default = "usual_factor")]
        factor: f64,
    },
    /// Counts the step, but does not update parameters.
    Skip {
        /// Number of deviations from which on a loss is a spike.
        #[serde(default = "usual_factor")]
        factor: f64,
        /// Maximum number of skips and rollbacks in a run, for whatever reason; one more stops it.
        #[serde(default = "usual_limit")]
        limit: u64,
    },
    /// Goes back to the last sound checkpoint, as [`OnNan::Rollback`] does.
    Rollback {
        /// Number of deviations from which on a loss is a spike.
        #[serde(default = "usual_factor")]
        factor: f64,
        /// Maximum number of skips and rollbacks in a run, for whatever reason; one more stops it.
        #[serde(default = "usual_limit")]
        limit: u64,
    },
}

choice!(OnSpike, "type");

const fn usual_limit() -> u64 {
    5
}

const fn usual_factor() -> f64 {
    10.0
}

impl OnNan {
    /// Skips with the default limit.
    pub const SKIP: Self = Self::Skip { limit: usual_limit() };
    /// Rolls back with the default limit.
    pub const ROLLBACK: Self = Self::Rollback { limit: usual_limit() };
}

impl OnSpike {
    /// Warns of spikes of the default factor.
    pub const WARN: Self = Self::Warn { factor: usual_factor() };
    /// Skips spikes of the default factor, with the default limit.
    pub const SKIP: Self = Self::Skip { factor: usual_factor(), limit: usual_limit() };
    /// Rolls back at spikes of the default factor, with the default limit.
    pub const ROLLBACK: Self = Self::Rollback { factor: usual_factor(), limit: usual_limit() };

    /// Number of deviations from which on a loss is a spike. A spike that is ignored still shows no checkpoint to be sound.
    fn factor(self) -> f64 {
        match self {
            Self::Ignore => usual_factor(),
            Self::Warn { factor } | Self::Skip { factor, .. } | Self::Rollback { factor, .. } => factor,
        }
    }
}

impl Default for OnSpike {
    fn default() -> Self {
        Self::WARN
    }
}

/// State of the guard; part of a run's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardState {
    /// Skips and rollbacks so far.
    pub incidents: u64,
    /// Last losses, oldest first.
    pub recent: VecDeque<f64>,
}

/// A step whose loss is not finite, or a spike.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// Optimizer step, from 1.
    pub step: u64,
    /// Loss of the step.
    pub loss: f64,
    /// Gradient norm.
    pub norm: f64,
    /// Median of the losses before it, if it was a spike.
    pub usual: Option<f64>,
    /// Names of the samples in the step.
    pub samples: Vec<String>,
}

/// Decision about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    Warn,
    Skip,
    Rollback,
    Stop,
}

/// Number of losses for the median. With fewer than half of them, no loss counts as a spike.
const MEMORY: usize = 64;

impl GuardConfig {
    pub(crate) fn validate(&self) -> Result<(), TrainConfigError> {
        let (factor, rule) = (self.on_spike.factor(), "must be above 0; `on_spike: ignore` turns it off");
        check(factor.is_finite() && factor > 0.0, "guard.on_spike.factor", &factor, rule)
    }

    /// Returns the decision about a step, and the median of the losses before it if it is a spike. The loss of a step
    /// that is kept is recorded.
    pub(crate) fn judge(&self, state: &mut GuardState, loss: f64, norm: f64) -> (Verdict, Option<f64>) {
        let (verdict, limit, usual) = if !(loss.is_finite() && norm.is_finite()) {
            match self.on_nan {
                OnNan::Stop => (Verdict::Stop, 0, None),
                OnNan::Skip { limit } => (Verdict::Skip, limit, None),
                OnNan::Rollback { limit } => (Verdict::Rollback, limit, None),
            }
        } else if let Some(usual) = self.leap(state, loss) {
            match self.on_spike {
                OnSpike::Ignore => (Verdict::Go, 0, Some(usual)),
                OnSpike::Warn { .. } => (Verdict::Warn, 0, Some(usual)),
                OnSpike::Skip { limit, .. } => (Verdict::Skip, limit, Some(usual)),
                OnSpike::Rollback { limit, .. } => (Verdict::Rollback, limit, Some(usual)),
            }
        } else {
            (Verdict::Go, 0, None)
        };
        match verdict {
            Verdict::Go | Verdict::Warn => {
                state.recent.push_back(loss);
                if state.recent.len() > MEMORY {
                    state.recent.pop_front();
                }
            }
            Verdict::Skip | Verdict::Rollback if state.incidents >= limit => return (Verdict::Stop, usual),
            Verdict::Skip | Verdict::Rollback => state.incidents += 1,
            Verdict::Stop => {}
        }
        (verdict, usual)
    }

    /// Returns the median of the last losses, if `loss` is a spike.
    fn leap(&self, state: &GuardState, loss: f64) -> Option<f64> {
        let (usual, highest) = self.usual_and_highest(state)?;
        (loss > highest).then_some(usual)
    }

    /// Returns the highest loss with which parameters are updated.
    pub(crate) fn highest(&self, state: &GuardState) -> f64 {
        match self.on_spike {
            OnSpike::Ignore | OnSpike::Warn { .. } => f64::INFINITY,
            OnSpike::Skip { .. } | OnSpike::Rollback { .. } => {
                self.usual_and_highest(state).map_or(f64::INFINITY, |(_, highest)| at_most(highest))
            }
        }
    }

    /// Returns the median of the last losses, and the highest loss that is no spike; `None` if there are too few losses.
    fn usual_and_highest(&self, state: &GuardState) -> Option<(f64, f64)> {
        if state.recent.len() < MEMORY / 2 {
            return None;
        }
        let usual = median(state.recent.iter().copied());
        // 1.4826 is the ratio of a normal distribution's standard deviation to its median absolute deviation.
        let deviation = 1.4826 * median(state.recent.iter().map(|loss| (loss - usual).abs()));
        Some((usual, usual + self.on_spike.factor() * deviation.max(usual.abs() / 20.0)))
    }
}

/// Returns the largest f32 that is not above `value`: an f32 loss is above it exactly if it is above `value`.
fn at_most(value: f64) -> f64 {
    let near = value as f32;
    f64::from(if f64::from(near) > value { near.next_down() } else { near })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, loss, norm, usual, samples } = self;
        match usual {
            None => write!(f, "at step {step} the loss became {loss} and its gradient's length {norm}")?,
            Some(usual) => write!(f, "at step {step} the loss leapt to {loss:.4} from about {usual:.4}")?,
        }
        let named: Vec<String> = samples.iter().take(8).map(|name| format!("`{name}`")).collect();
        match samples.len().saturating_sub(named.len()) {
            _ if named.is_empty() => Ok(()),
            0 => write!(f, ", with {}", named.join(", ")),
            more => write!(f, ", with {} and {more} more", named.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(on_nan: OnNan, on_spike: OnSpike) -> GuardConfig {
        GuardConfig { on_nan, on_spike }
    }

    #[test]
    fn what_is_no_number_is_treated_as_asked_and_only_so_often() {
        let mut state = GuardState::default();
        let stop = config(OnNan::Stop, OnSpike::WARN);
        assert_eq!(stop.judge(&mut state, f64::NAN, 1.0).0, Verdict::Stop);
        let skip = config(OnNan::Skip { limit: 2 }, OnSpike::WARN);
        let verdicts: Vec<Verdict> = (0..3).map(|_| skip.judge(&mut state, 1.0, f64::INFINITY).0).collect();
        assert_eq!(verdicts, [Verdict::Skip, Verdict::Skip, Verdict::Stop]);
        assert_eq!((state.incidents, state.recent.len()), (2, 0));
    }

    #[test]
    fn a_leap_is_seen_once_there_is_something_to_leap_from() {
        let guard = config(OnNan::Stop, OnSpike::ROLLBACK);
        let mut state = GuardState::default();
        for step in 0..40 {
            let loss = if step < 10 { 50.0 } else { 1.0 + 0.1 * f64::from(step % 3) };
            assert_eq!(guard.judge(&mut state, loss, 1.0).0, Verdict::Go, "step {step}");
        }
        assert_eq!(guard.judge(&mut state, 1.5, 1.0).0, Verdict::Go, "noise");
        let ignored = config(OnNan::Stop, OnSpike::Ignore).judge(&mut state.clone(), 9.0, 1.0);
        assert!(matches!(ignored, (Verdict::Go, Some(_))), "it may pass, and proves no checkpoint: {ignored:?}");
        let (verdict, usual) = guard.judge(&mut state, 9.0, 1.0);
        assert_eq!(verdict, Verdict::Rollback);
        assert!((usual.expect("a median") - 1.1).abs() < 0.11);
        assert!(!state.recent.contains(&9.0), "what was rolled back is no example of what is usual");
    }

    proptest! {
        #[test]
        fn losses_that_fall_are_no_leap(losses in prop::collection::vec(0.0_f64..10.0, 1..200)) {
            let mut losses = losses;
            losses.sort_by(|a, b| b.total_cmp(a));
            let (guard, mut state) = (config(OnNan::Stop, OnSpike::SKIP), GuardState::default());
            for loss in losses {
                prop_assert_eq!(guard.judge(&mut state, loss, 1.0), (Verdict::Go, None));
                prop_assert!(state.recent.len() <= MEMORY);
            }
        }
    }

    #[test]
    fn trouble_names_step_and_samples() {
        let samples: Vec<String> = (0..10).map(|i| format!("clip {i}")).collect();
        let trouble = Trouble { step: 7, loss: f64::NAN, norm: 1.0, usual: None, samples };
        let text = trouble.to_string();
        assert!(text.starts_with("at step 7 the loss became NaN") && text.ends_with("`clip 7` and 2 more"), "{text}");
        let text = Trouble { loss: 9.0, usual: Some(1.0), samples: vec![], ..trouble }.to_string();
        assert_eq!(text, "at step 7 the loss leapt to 9.0000 from about 1.0000");
    }
}
