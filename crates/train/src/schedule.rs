//! The learning rate of every optimizer step.

use serde::{Deserialize, Serialize};

/// How the rate falls after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine from the peak to zero.
    #[default]
    Cosine,
    /// A straight line from the peak to zero.
    Linear,
    /// The peak, to the end.
    Constant,
}

impl Schedule {
    /// The factor on the peak rate for optimizer step `step` (from 0) of `steps`: a linear warm-up over `warmup` steps
    /// that starts above zero, then this curve. The last step's factor is small but above zero.
    pub fn factor(self, step: u64, warmup: u64, steps: u64) -> f64 {
        if step < warmup {
            return (step + 1) as f64 / warmup as f64;
        }
        let progress = (step - warmup) as f64 / steps.saturating_sub(warmup).max(1) as f64;
        let progress = progress.min(1.0);
        match self {
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            Self::Linear => 1.0 - progress,
            Self::Constant => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rises_to_the_peak_then_never_rises_again(warmup in 0_u64..50, rest in 1_u64..200) {
            let steps = warmup + rest;
            for schedule in [Schedule::Cosine, Schedule::Linear, Schedule::Constant] {
                let factors: Vec<f64> = (0..steps).map(|step| schedule.factor(step, warmup, steps)).collect();
                prop_assert!(factors.iter().all(|f| *f > 0.0 && *f <= 1.0));
                prop_assert_eq!(factors[warmup as usize], 1.0);
                prop_assert!(factors[..warmup as usize].is_sorted());
                prop_assert!(factors[warmup as usize..].is_sorted_by(|a, b| a >= b));
            }
        }
    }

    #[test]
    fn the_curves_pass_through_their_midpoints() {
        assert_eq!(Schedule::Linear.factor(60, 20, 100), 0.5);
        assert!((Schedule::Cosine.factor(60, 20, 100) - 0.5).abs() < 1e-12);
        assert_eq!(Schedule::Linear.factor(100, 20, 100), 0.0);
    }
}
