//! The batches of an optimizer step, and this rank's share of them.

use crate::TrainError;
use serde::{Deserialize, Serialize};

/// This rank's batches of an optimizer step.
pub(super) struct StepBatches<B> {
    pub batches: Vec<B>,
    pub plan: Plan,
}

/// This rank's share of a step's batches, and the counts over all ranks.
pub(super) struct Plan {
    /// Index of each of this rank's batches in the step.
    pub places: Vec<usize>,
    /// Divisor of each loss term, over the batches of all ranks.
    pub counts: Vec<f64>,
    /// Names of the samples of all ranks, for messages.
    pub names: Vec<String>,
}

/// Message of a rank about its batches of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// Number of each batch, and the counts of its loss terms.
    pub counts: Vec<(usize, Vec<f64>)>,
    pub names: Vec<String>,
    /// Whether the epoch has no more batches.
    pub ended: bool,
    pub interrupted: bool,
    pub failure: Option<String>,
}

impl Plan {
    /// Makes the plan of a step from the messages of all ranks. `numbers` are the numbers of this rank's batches, and
    /// `begin` is the number of the step's first batch.
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
        // In the order of the batches in the step, whichever rank has them.
        counts.sort_by_key(|(number, _)| *number);
        let counts = total(counts.into_iter().map(|(_, counts)| counts))?;
        Ok(Self { places: numbers.iter().map(|number| number - begin).collect(), counts, names })
    }
}

/// Returns the sum of the counts of some batches.
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
