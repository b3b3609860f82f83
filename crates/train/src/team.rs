//! The ranks that train a run together, each with its share of the batches of every optimizer step.

use crate::TrainError;
use crate::gradients::GradientSum;
use crate::objective::Share;
use burn::tensor::Device;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use undertone_ranks::Ranks;

/// The ranks that train a run together; by default a process is alone.
#[derive(Clone, Debug, Default)]
pub struct Team(Option<Arc<Ranks>>);

impl Team {
    /// This process among the ranks.
    pub fn of(ranks: Arc<Ranks>) -> Self {
        Self((ranks.count() > 1).then_some(ranks))
    }

    /// Which one this is, from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |ranks| ranks.rank())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |ranks| ranks.count())
    }

    /// Whether there is no other.
    pub fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is the one that writes.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// This rank's share of steps of so many batches.
    pub(crate) fn share(&self, window: usize) -> Share {
        Share { rank: self.rank(), count: self.count(), window }
    }

    /// What every rank says, in the order of ranks.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn hear<T: Serialize + DeserializeOwned>(&self, said: T) -> Result<Vec<T>, TrainError> {
        let Some(ranks) = &self.0 else { return Ok(vec![said]) };
        let bytes = serde_json::to_vec(&said).map_err(|error| TrainError::Data(error.into()))?;
        let heard = ranks.gather(bytes)?.wait()?;
        heard
            .iter()
            .map(|bytes| serde_json::from_slice(bytes).map_err(|error| TrainError::Data(error.into())))
            .collect()
    }

    /// The sum of each number over all ranks.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn totals(&self, values: &[f64]) -> Result<Vec<f64>, TrainError> {
        match &self.0 {
            Some(ranks) => Ok(ranks.totals(values)?),
            None => Ok(values.to_vec()),
        }
    }

    /// Says to all what became of this rank's part, and waits for theirs: an error of any is one of all.
    ///
    /// # Errors
    /// That of this rank, or that of the first other one that has one.
    pub fn agree<T, E: From<TrainError> + ToString>(&self, part: Result<T, E>) -> Result<T, E> {
        if self.is_alone() {
            return part;
        }
        let said = part.as_ref().err().map(ToString::to_string);
        let heard = self.hear(said)?;
        let first =
            heard.into_iter().enumerate().find_map(|(rank, said)| Some(TrainError::Rank { rank, message: said? }));
        let part = part?;
        first.map_or(Ok(part), |error| Err(error.into()))
    }

    /// Adds up the gradients of all ranks, so that each has the sum. One that no rank has is in no sum.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn sum(&self, gradients: &mut GradientSum, device: &Device) -> Result<(), TrainError> {
        let Some(ranks) = &self.0 else { return Ok(()) };
        let mut sizes = BTreeMap::new();
        for own in self.hear(gradients.sizes())? {
            sizes.extend(own);
        }
        gradients.sum_over(ranks, sizes, device)
    }
}
