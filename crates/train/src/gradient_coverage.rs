//! Check that every trainable parameter receives a gradient.

use crate::TrainError;
use crate::tally::StepTerm;
use std::collections::BTreeSet;

/// Number of steps after which a trainable parameter without a gradient is a mistake and not a rare branch.
const GRADIENT_PATIENCE: u64 = 20;

/// Maximum number of names in the error.
const NAMED: usize = 5;

/// Trainable parameters that have had no gradient in a session.
#[derive(Clone, Debug)]
pub(crate) struct GradientCoverage {
    missing: BTreeSet<String>,
    /// Whether any step had a count above 0, for each loss term.
    counted: Vec<bool>,
}

impl GradientCoverage {
    /// Starts with the trainable parameters that have had no gradient yet.
    pub fn new(parameters: impl IntoIterator<Item = String>) -> Self {
        Self { missing: parameters.into_iter().collect(), counted: Vec::new() }
    }

    /// Records a step: the parameters that have a gradient in it, and its loss terms.
    pub fn observe<'a>(&mut self, reached: impl IntoIterator<Item = &'a str>, terms: &[StepTerm]) {
        if !self.missing.is_empty() {
            for name in reached {
                self.missing.remove(name);
            }
        }
        self.counted.resize(terms.len(), false);
        self.counted.iter_mut().zip(terms).for_each(|(counted, term)| *counted |= term.count > 0.0);
    }

    /// Checks whether the run may continue with step `step` of `steps`, counted from 1.
    ///
    /// # Errors
    /// Names the first parameters without a gradient, after some steps and once every loss term has had a count above
    /// 0. A part of the model that only some samples use has no gradient before the first of them.
    pub fn check(&self, step: u64, steps: u64) -> Result<(), TrainError> {
        let waits = !self.counted.iter().all(|counted| *counted) || step < GRADIENT_PATIENCE.min(steps);
        if self.missing.is_empty() || waits {
            return Ok(());
        }
        let mut names: Vec<String> = self.missing.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
        if self.missing.len() > names.len() {
            names.push(format!("and {} more", self.missing.len() - names.len()));
        }
        Err(TrainError::NoGradient { steps: step, names: names.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(name: &'static str, count: f64) -> StepTerm {
        StepTerm { name: name.into(), mean: 0.0, weighted: 0.0, count }
    }

    fn missing(count: usize) -> GradientCoverage {
        GradientCoverage::new((0..count).map(|i| format!("p{i}")))
    }

    #[test]
    fn what_is_never_reached_is_named_after_some_steps() {
        let mut coverage = missing(8);
        coverage.observe(["p0", "other"], &[term("text", 1.0)]);
        assert!(coverage.check(GRADIENT_PATIENCE - 1, 100).is_ok());
        let error = coverage.check(GRADIENT_PATIENCE, 100).expect_err("never reached").to_string();
        assert!(
            error.contains("after 20 steps") && error.contains("`p1`, `p2`") && error.contains("and 2 more"),
            "{error}"
        );
        assert!(coverage.check(7, 7).is_err(), "the last step of a short run");
        coverage.observe((1..8).map(|i| ["p1", "p2", "p3", "p4", "p5", "p6", "p7"][i - 1]), &[term("text", 1.0)]);
        assert!(coverage.check(100, 100).is_ok());
    }

    #[test]
    fn a_term_that_has_counted_nothing_may_bring_the_gradient_yet() {
        let mut coverage = missing(1);
        coverage.observe([], &[term("text", 1.0), term("rare", 0.0)]);
        assert!(coverage.check(50, 100).is_ok());
        coverage.observe([], &[term("text", 0.0), term("rare", 1.0)]);
        assert!(coverage.check(51, 100).is_err());
    }
}
