//! Loss terms of an optimizer step: their divisors, and the check that the objective returns the same terms for every
//! batch.

use crate::TrainError;
use crate::objective::LossTerm;
use crate::tally::StepTerm;
use burn::tensor::Tensor;
use std::borrow::Cow;

/// Loss terms that the batches of one optimizer step have in common.
#[derive(Debug)]
pub(super) struct WindowTerms {
    /// Divisor of each term, over all batches.
    counts: Vec<f64>,
    /// Names in the same order; empty before the first batch.
    names: Vec<Cow<'static, str>>,
}

/// Contribution of one batch to the mean of a term over the step.
#[derive(Debug)]
pub(super) struct TermShare {
    /// Weight in the loss.
    pub weight: f64,
    /// Sum over the batch divided by the count over the step, `[1]`.
    pub mean: Tensor<1>,
}

impl WindowTerms {
    /// Makes the terms with these divisors.
    pub fn of_counts(counts: Vec<f64>) -> Self {
        Self { counts, names: Vec::new() }
    }

    /// Returns the contributions of one batch.
    ///
    /// # Errors
    /// When a term has no count or no name of its own, or these are not the terms of the batches before.
    pub fn shares(&mut self, terms: Vec<LossTerm>) -> Result<Vec<TermShare>, TrainError> {
        self.check(&terms)?;
        if self.names.is_empty() {
            self.names = terms.iter().map(|term| term.name.clone()).collect();
        }
        let share = |(LossTerm { weight, sum, .. }, count): (LossTerm, &f64)| TermShare {
            weight,
            mean: sum.div_scalar(count.max(1.0)),
        };
        Ok(terms.into_iter().zip(&self.counts).map(share).collect())
    }

    /// Returns the terms by name, with values of zero.
    pub fn named(&self) -> Vec<StepTerm> {
        let named = self.names.iter().zip(&self.counts);
        named.map(|(name, count)| StepTerm { name: name.clone(), mean: 0.0, weighted: 0.0, count: *count }).collect()
    }

    /// Checks that each loss term has a count and a unique name, and that every batch of a step has the same terms.
    fn check(&self, terms: &[LossTerm]) -> Result<(), TrainError> {
        let quoted = |names: &mut dyn Iterator<Item = &str>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let (all, counts) = (|| quoted(&mut terms.iter().map(|term| &*term.name)), self.counts.len());
        if terms.len() > counts {
            let uncounted = quoted(&mut terms[counts..].iter().map(|term| &*term.name));
            return Err(TrainError::Uncounted { counts, terms: all(), uncounted });
        }
        if terms.len() < counts {
            return Err(TrainError::Unheard { counts, terms: all(), number: terms.len() });
        }
        if self.names.is_empty() {
            let twice = (1..terms.len()).find(|i| terms[..*i].iter().any(|term| term.name == terms[*i].name));
            return twice.map_or(Ok(()), |twice| Err(TrainError::SameName(terms[twice].name.to_string())));
        }
        match self.names.iter().zip(terms).any(|(before, term)| *before != term.name) {
            true => Err(TrainError::Renamed(quoted(&mut self.names.iter().map(|name| &**name)), all())),
            false => Ok(()),
        }
    }
}

/// Returns the loss of a batch from its terms, times `scale`; `None` without terms.
pub(super) fn scaled_loss(shares: &[TermShare], scale: f64) -> Option<Tensor<1>> {
    let weighted = shares.iter().map(|TermShare { weight, mean }| mean.clone().mul_scalar(weight * scale));
    weighted.reduce(|loss, share| loss + share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use undertone_ops::read;

    fn term(name: &'static str, sum: f32) -> LossTerm {
        LossTerm { name: name.into(), weight: 0.5, sum: Tensor::from_floats([sum], &Device::default()) }
    }

    #[test]
    fn a_step_is_divided_by_what_all_of_its_batches_count() {
        let mut terms = WindowTerms::of_counts(vec![4.0, 0.0]);
        let shares = terms.shares(vec![term("text", 8.0), term("rare", 0.5)]).expect("fitting");
        assert_eq!(shares.iter().map(|share| read(share.mean.clone())[0]).collect::<Vec<_>>(), [2.0, 0.5]);
        assert_eq!(read(scaled_loss(&shares, 4.0).expect("a loss"))[0], 4.0 * (0.5 * 2.0 + 0.5 * 0.5));
        assert_eq!(terms.named().iter().map(|term| term.count).collect::<Vec<_>>(), [4.0, 0.0]);
        assert!(scaled_loss(&[], 1.0).is_none());
    }

    #[test]
    fn other_terms_in_another_batch_are_refused() {
        let mut terms = WindowTerms::of_counts(vec![1.0, 1.0]);
        let twice = terms.shares(vec![term("a", 1.0), term("a", 1.0)]);
        assert!(matches!(twice, Err(TrainError::SameName(name)) if name == "a"));
        terms.shares(vec![term("a", 1.0), term("b", 1.0)]).expect("fitting");
        assert!(matches!(terms.shares(vec![term("b", 1.0), term("a", 1.0)]), Err(TrainError::Renamed(..))));
        assert!(matches!(terms.shares(vec![term("a", 1.0)]), Err(TrainError::Unheard { number: 1, .. })));
    }
}
