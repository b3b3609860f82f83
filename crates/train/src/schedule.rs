//! Learning rate schedules.

use crate::config_error::TrainConfigError;
use serde::{Deserialize, Serialize};
use undertone_registry::choice;

/// Decay of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
#[schemars(rename = "Schedule", deny_unknown_fields, transform = choice::by_name)]
pub enum Schedule {
    /// Half a cosine from the peak to zero.
    #[default]
    Cosine,
    /// Linear decay from the peak to zero.
    Linear,
    /// The peak rate until the end.
    Constant,
    /// Warm-up, stable, decay (Hu et al., 2024): the peak rate, and over the last steps `1 - √progress` down to zero.
    /// Hägele et al. (2024) found this better than a linear decay, and over a fifth of the steps as good as a cosine
    /// over all. A run that is resumed with more steps before its decay begins equals one that was as long from the
    /// start.
    Wsd {
        /// Share of the steps after the warm-up over which the rate decays.
        #[serde(default = "a_fifth")]
        decay_share: f64,
    },
}

choice!(Schedule, "type");

const fn a_fifth() -> f64 {
    0.2
}

impl Schedule {
    pub(crate) fn validate(self) -> Result<(), TrainConfigError> {
        match self {
            Self::Wsd { decay_share } if !(decay_share > 0.0 && decay_share <= 1.0) => {
                let rule = "must be above 0 and at most 1";
                Err(TrainConfigError::new("optimizer.schedule.decay_share", &decay_share, rule))
            }
            _ => Ok(()),
        }
    }

    /// Returns the factor on the peak rate for optimizer step `step` (from 0) of `steps`: a linear warm-up over
    /// `warmup` steps that starts above zero, then this curve. The last step of a decay has a small factor above zero.
    pub fn factor(self, step: u64, warmup: u64, steps: u64) -> f64 {
        if step < warmup {
            return (step + 1) as f64 / warmup as f64;
        }
        let rest = steps.saturating_sub(warmup).max(1);
        let progress = ((step - warmup) as f64 / rest as f64).min(1.0);
        match self {
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            Self::Linear => 1.0 - progress,
            Self::Constant => 1.0,
            Self::Wsd { decay_share } => {
                let decay = ((decay_share * rest as f64).round() as u64).clamp(1, rest);
                let decayed = (step - warmup).saturating_sub(rest - decay);
                1.0 - (decayed as f64 / decay as f64).min(1.0).sqrt()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rises_to_the_peak_then_never_rises_again(warmup in 0_u64..50, rest in 1_u64..200, share in 0.001_f64..=1.0) {
            let steps = warmup + rest;
            for schedule in [Schedule::Cosine, Schedule::Linear, Schedule::Constant, Schedule::Wsd { decay_share: share }] {
                let factors: Vec<f64> = (0..steps).map(|step| schedule.factor(step, warmup, steps)).collect();
                prop_assert!(factors.iter().all(|f| *f > 0.0 && *f <= 1.0));
                prop_assert_eq!(factors[warmup as usize], 1.0);
                prop_assert!(factors[..warmup as usize].is_sorted());
                prop_assert!(factors[warmup as usize..].is_sorted_by(|a, b| a >= b));
            }
        }

        #[test]
        fn wsd_stays_at_the_peak_for_all_but_its_share(warmup in 0_u64..50, rest in 2_u64..200, share in 0.001_f64..=1.0) {
            let (steps, wsd) = (warmup + rest, Schedule::Wsd { decay_share: share });
            let below = (warmup..steps).filter(|step| wsd.factor(*step, warmup, steps) < 1.0).count();
            // The first step of the decay is still at the peak.
            prop_assert!((below as f64 + 1.0 - share * rest as f64).abs() <= 1.0);
            prop_assert_eq!(wsd.factor(steps, warmup, steps), 0.0);
            // Until it decays, a longer run is the same.
            for step in 0..steps - below as u64 {
                let factor = |steps| wsd.factor(step, warmup, steps);
                prop_assert_eq!(factor(steps), factor(steps + 50));
            }
        }
    }

    #[test]
    fn the_curves_pass_through_their_midpoints() {
        let factor = |schedule: Schedule, step| schedule.factor(step, 20, 100);
        assert_eq!(factor(Schedule::Linear, 60), 0.5);
        assert!((factor(Schedule::Cosine, 60) - 0.5).abs() < 1e-12);
        assert_eq!(factor(Schedule::Linear, 100), 0.0);
        assert_eq!([60, 70, 100].map(|step| factor(Schedule::Wsd { decay_share: 0.5 }, step)), [1.0, 0.5, 0.0]);
    }
}
