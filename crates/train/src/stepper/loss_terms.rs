//! Loss terms of an optimizer step: what its batches list before the forward pass, and the sums that come back by name.

use crate::TrainError;
use crate::objective::{LossSum, LossTerm};
use crate::tally::StepTerm;
use burn::tensor::Tensor;

/// Contribution of one batch to the mean of a term over the step.
#[derive(Debug)]
pub(super) struct TermShare {
    /// Weight in the loss.
    pub weight: f64,
    /// Sum over the batch divided by the count over the step, `[1]`.
    pub mean: Tensor<1>,
}

/// Returns the terms that the batches of a step have in common, with their counts over all batches and means of zero.
pub(super) fn step_terms<'a>(batches: impl IntoIterator<Item = &'a [LossTerm]>) -> Result<Vec<StepTerm>, TrainError> {
    let mut batches = batches.into_iter().peekable();
    let first = batches.peek().copied().unwrap_or_default();
    if let Some(twice) = (1..first.len()).find(|i| first[..*i].iter().any(|term| term.name == first[*i].name)) {
        return Err(TrainError::SameName(first[twice].name.to_string()));
    }
    let empty = |term: &LossTerm| StepTerm { name: term.name.clone(), mean: 0.0, weighted: 0.0, count: 0.0 };
    let mut terms: Vec<StepTerm> = first.iter().map(empty).collect();
    for batch in batches {
        if !batch.iter().map(|term| &term.name).eq(terms.iter().map(|term| &term.name)) {
            let names = |batch: &[LossTerm]| batch.iter().map(|term| term.name.to_string()).collect();
            return Err(TrainError::TermsDiffer(names(first), names(batch)));
        }
        if let Some(LossTerm { name, count, .. }) =
            batch.iter().find(|term| !(0.0..f64::INFINITY).contains(&term.count))
        {
            return Err(TrainError::Count { name: name.to_string(), count: *count });
        }
        terms.iter_mut().zip(batch).for_each(|(term, listed)| term.count += listed.count);
    }
    Ok(terms)
}

/// Joins the sums of one batch with the terms of the step. `weights` are those of the terms in this batch.
pub(super) fn shares(
    terms: &[StepTerm],
    weights: &[f64],
    mut sums: Vec<LossSum>,
) -> Result<Vec<TermShare>, TrainError> {
    let has_sum = |term: &StepTerm| sums.iter().any(|(name, _)| *name == term.name);
    if sums.len() != terms.len() || !terms.iter().all(has_sum) {
        let listed = terms.iter().map(|term| term.name.to_string()).collect();
        return Err(TrainError::LossTerms {
            listed,
            returned: sums.iter().map(|(name, _)| name.to_string()).collect(),
        });
    }
    if let Some((name, sum)) = sums.iter().find(|(_, sum)| sum.dims() != [1]) {
        return Err(TrainError::SumShape { name: name.to_string(), values: sum.dims()[0] });
    }
    let mut share = |(term, weight): (&StepTerm, &f64)| {
        let place = sums.iter().position(|(name, _)| *name == term.name)?;
        Some(TermShare { weight: *weight, mean: sums.swap_remove(place).1.div_scalar(term.divisor()) })
    };
    Ok(terms.iter().zip(weights).filter_map(&mut share).collect())
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

    fn listed<const N: usize>(terms: [(&'static str, f64); N]) -> Vec<LossTerm> {
        terms.into_iter().map(|(name, count)| LossTerm { name: name.into(), weight: 0.5, count }).collect()
    }

    fn sums<const N: usize>(sums: [(&'static str, f32); N]) -> Vec<LossSum> {
        sums.into_iter().map(|(name, sum)| (name.into(), Tensor::from_floats([sum], &Device::default()))).collect()
    }

    #[test]
    fn a_step_is_divided_by_what_all_of_its_batches_count() {
        let batches = [listed([("text", 1.0), ("rare", 0.0)]), listed([("text", 3.0), ("rare", 0.0)])];
        let terms = step_terms(batches.iter().map(Vec::as_slice)).expect("the same terms");
        assert_eq!(terms.iter().map(|term| term.count).collect::<Vec<_>>(), [4.0, 0.0]);
        // Sums come back by name.
        let shares = shares(&terms, &[0.5, 0.5], sums([("rare", 0.5), ("text", 8.0)])).expect("fitting");
        assert_eq!(shares.iter().map(|share| read(share.mean.clone())[0]).collect::<Vec<_>>(), [2.0, 0.5]);
        assert_eq!(read(scaled_loss(&shares, 4.0).expect("a loss"))[0], 4.0 * (0.5 * 2.0 + 0.5 * 0.5));
        assert!(scaled_loss(&[], 1.0).is_none());
    }

    #[test]
    fn batches_of_one_step_list_the_same_terms() {
        let refused = |batches: [Vec<LossTerm>; 2]| step_terms(batches.iter().map(Vec::as_slice)).expect_err("refused");
        let twice = listed([("a", 1.0), ("a", 1.0)]);
        assert!(matches!(refused([twice.clone(), twice]), TrainError::SameName(name) if name == "a"));
        let (one, both) = (listed([("a", 1.0)]), listed([("a", 1.0), ("b", 2.0)]));
        assert!(matches!(refused([one, both.clone()]), TrainError::TermsDiffer(..)));
        let error = refused([both, listed([("b", 1.0), ("a", 1.0)])]).to_string();
        assert!(error.contains("`a`, `b`") && error.contains("`b`, `a`"), "{error}");
    }

    #[test]
    fn a_count_below_one_divides_too_and_one_that_is_no_number_is_refused() {
        let terms = step_terms([listed([("weighted", 0.25)]).as_slice(), listed([("weighted", 0.25)]).as_slice()]);
        let shares = shares(&terms.expect("terms"), &[1.0], sums([("weighted", 3.0)])).expect("fitting");
        assert_eq!(read(shares[0].mean.clone()), [6.0]);
        for count in [f64::NAN, f64::INFINITY, -1.0] {
            let error = step_terms([listed([("a", count)]).as_slice()]).expect_err("refused").to_string();
            assert!(error.contains(&format!("`a` of the objective has a count of {count}")), "{error}");
        }
    }

    #[test]
    fn a_loss_of_each_row_is_no_sum() {
        let terms = step_terms([listed([("a", 2.0)]).as_slice()]).expect("terms");
        let rows = Tensor::from_floats([1.0, 2.0], &Device::default());
        let error = shares(&terms, &[1.0], vec![("a".into(), rows)]).expect_err("refused").to_string();
        assert_eq!(error, "`Objective::losses` returns 2 values for `a`: return their sum, of shape [1]");
    }

    #[test]
    fn every_listed_term_and_no_other_has_a_sum() {
        let terms = step_terms([listed([("a", 1.0), ("b", 1.0)]).as_slice()]).expect("terms");
        for (sums, returned) in [
            (sums([("a", 1.0)]), "only 1 (`a`)"),
            (sums([("a", 1.0), ("c", 1.0)]), "returns 2 (`a`, `c`)"),
            (sums([("a", 1.0), ("a", 1.0)]), "returns 2 (`a`, `a`)"),
            (sums([("a", 1.0), ("b", 1.0), ("c", 1.0)]), "returns 3 (`a`, `b`, `c`)"),
        ] {
            let error = shares(&terms, &[1.0, 1.0], sums).expect_err("refused").to_string();
            assert!(error.contains("lists 2 loss terms (`a`, `b`)") && error.contains(returned), "{error}");
        }
    }
}
