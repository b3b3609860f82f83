//! Which batches an optimizer step has, and which of them are this rank's.

use crate::TrainError;
use serde::{Deserialize, Serialize};

/// This rank's batches of an optimizer step.
pub(super) struct StepBatches<B> {
    pub batches: Vec<B>,
    pub plan: Plan,
}

/// Which batches of an optimizer step are this rank's, and what those of all ranks count.
pub(super) struct Plan {
    /// Where each of this rank's batches stands among all of the step.
    pub places: Vec<usize>,
    /// What each loss term is divided by, over the batches of all ranks.
    pub counts: Vec<f64>,
    /// What a person calls the samples of all ranks.
    pub names: Vec<String>,
}

/// What a rank says of its batches of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// Of each batch its place in the step and what its loss terms count.
    pub counts: Vec<(usize, Vec<f64>)>,
    pub names: Vec<String>,
    /// Whether the epoch has no more.
    pub ended: bool,
    pub interrupted: bool,
    pub failure: Option<String>,
}

impl Plan {
    /// Where this rank has the batches of these numbers, of a step that begins with the number `begin`, and the ranks said this.
    ///
    /// # Errors
    /// When batches have different numbers of loss terms.
    pub fn of(numbers: &[usize], begin: usize, heard: Vec<Loaded>) -> Result<Self, TrainError> {
        let mut counts: Vec<(usize, Vec<f64>)> = Vec::new();
        let mut names = Vec::new();
        for loaded in heard {
            counts.extend(loaded.counts);
            names.extend(loaded.names);
        }
        // In the order of the step's batches, whoever has them.
        counts.sort_by_key(|(number, _)| *number);
        let counts = total(counts.into_iter().map(|(_, counts)| counts))?;
        Ok(Self { places: numbers.iter().map(|number| number - begin).collect(), counts, names })
    }
}

/// The sum of the counts of some batches.
///
/// # Errors
/// When they have different numbers of terms.
fn total(batches: impl IntoIterator<Item = Vec<f64>>) -> Result<Vec<f64>, TrainError> {
    let mut totals: Vec<f64> = Vec::new();
    for counts in batches {
        if totals.is_empty() {
            totals.resize(counts.len(), 0.0);
        }
        if totals.len() != counts.len() {
            return Err(TrainError::Terms(totals.len(), counts.len()));
        }
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_one_step_count_the_same_terms() {
        assert_eq!(total([vec![1.0, 0.0], vec![3.0, 0.0]]).expect("the same terms"), [4.0, 0.0]);
        assert!(matches!(total([vec![1.0], vec![1.0, 2.0]]), Err(TrainError::Terms(1, 2))));
    }
}
