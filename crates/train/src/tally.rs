//! The loss over several optimizer steps.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A loss term over the batches of one optimizer step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTerm {
    /// Name in logs.
    pub name: Cow<'static, str>,
    /// Sum over the batches divided by the count over the batches.
    pub mean: f64,
    /// The same, times the weight in each batch.
    pub weighted: f64,
    /// Count over the batches.
    pub count: f64,
}

impl StepTerm {
    /// Divisor of the sum.
    pub fn divisor(&self) -> f64 {
        divisor(self.count)
    }
}

/// Divisor of a sum over so much: the count, and 1 where nothing is counted and the sum is 0.
fn divisor(count: f64) -> f64 {
    if count > 0.0 { count } else { 1.0 }
}

/// Loss of the optimizer steps since the last line of `metrics.jsonl`, by term, without steps whose loss was not
/// finite. It is part of a run's checkpoints, so that an interrupted run writes the same lines.
///
/// Each term is its sum over all these steps divided by its count over them: the loss that they would have had as one
/// large step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossTally {
    terms: Vec<TermTally>,
}

/// Tally of one term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TermTally {
    name: String,
    sum: f64,
    /// Sum times the weight in each step.
    weighted: f64,
    count: f64,
}

impl LossTally {
    /// Adds the terms of a step.
    pub(crate) fn add(&mut self, terms: &[StepTerm]) {
        for step in terms {
            let at = self.terms.iter().position(|term| term.name == step.name).unwrap_or_else(|| {
                self.terms.push(TermTally { name: step.name.to_string(), sum: 0.0, weighted: 0.0, count: 0.0 });
                self.terms.len() - 1
            });
            let (term, divisor) = (&mut self.terms[at], step.divisor());
            term.sum += step.mean * divisor;
            term.weighted += step.weighted * divisor;
            term.count += step.count;
        }
    }

    /// Returns the weighted sum of the terms; `None` without a step.
    pub(crate) fn loss(&self) -> Option<f64> {
        (!self.terms.is_empty()).then(|| self.terms.iter().map(|term| term.weighted / divisor(term.count)).sum())
    }

    /// Lists every number of the state.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        self.terms.iter().flat_map(|term| [term.sum, term.weighted, term.count])
    }

    /// Number of terms.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Returns the unweighted terms by name. A term with a count of 0 is left out.
    pub(crate) fn means(&self) -> impl Iterator<Item = (&str, f64)> {
        let said = self.terms.iter().filter(|term| term.count > 0.0);
        said.map(|term| (term.name.as_str(), term.sum / divisor(term.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(terms: &[(&'static str, f64, f64, f64)]) -> Vec<StepTerm> {
        let term = |(name, mean, weight, count): &(&'static str, f64, f64, f64)| StepTerm {
            name: (*name).into(),
            mean: *mean,
            weighted: weight * mean,
            count: *count,
        };
        terms.iter().map(term).collect()
    }

    #[test]
    fn steps_count_by_what_was_counted_in_them() {
        let mut tally = LossTally::default();
        assert_eq!(tally.loss(), None);
        tally.add(&step(&[("text", 4.0, 1.0, 10.0), ("elements", 0.0, 0.5, 0.0)]));
        assert_eq!(tally.means().collect::<Vec<_>>(), [("text", 4.0)]);
        tally.add(&step(&[("text", 1.0, 1.0, 30.0), ("elements", 2.0, 0.5, 5.0)]));
        // (4 · 10 + 1 · 30) / 40, not (4 + 1) / 2; the elements are in one of the steps alone.
        assert_eq!(tally.means().collect::<Vec<_>>(), [("text", 1.75), ("elements", 2.0)]);
        assert_eq!(tally.loss(), Some(1.75 + 0.5 * 2.0));
    }

    #[test]
    fn a_step_by_itself_is_what_it_was() {
        for (mean, count) in [(0.1, 3.0), (f64::from(0.3_f32), 1234.0), (2.5, 0.25)] {
            let mut tally = LossTally::default();
            tally.add(&step(&[("text", mean, 1.0, count)]));
            let loss = tally.loss().expect("a step");
            assert!((loss - mean).abs() <= 1e-15 * mean, "{loss} is not {mean}");
        }
    }
}
