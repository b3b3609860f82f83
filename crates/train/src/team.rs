//! The ranks that train a run together, each with its share of the batches of every optimizer step.

use crate::TrainError;
use crate::gradients::GradientSum;
use crate::objective::Share;
use burn::tensor::Device;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone_ranks::Ranks;

/// The ranks that train a run together; by default a process is alone.
#[derive(Clone, Debug, Default)]
pub struct Team {
    /// Nothing where there is no other.
    ranks: Option<Arc<Ranks>>,
    /// Whether one has failed: then nobody says or hears anything any more.
    ended: Arc<AtomicBool>,
}

/// What a rank says, whatever the others wait for: one that fails need not know what that is.
#[derive(Serialize, Deserialize)]
enum Said<T> {
    This(T),
    Failed(String),
}

impl Team {
    /// This process among the ranks.
    pub fn of(ranks: Arc<Ranks>) -> Self {
        Self { ranks: (ranks.count() > 1).then_some(ranks), ended: Arc::default() }
    }

    /// Which one this is, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, |ranks| ranks.rank())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ranks.as_ref().map_or(1, |ranks| ranks.count())
    }

    /// Whether there is no other.
    pub fn is_alone(&self) -> bool {
        self.ranks.is_none()
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
    /// When a rank has failed, is gone or silent.
    pub(crate) fn hear<T: Serialize + DeserializeOwned>(&self, said: T) -> Result<Vec<T>, TrainError> {
        let Some(ranks) = &self.ranks else { return Ok(vec![said]) };
        let mut heard = Vec::with_capacity(ranks.count());
        for (rank, said) in exchange(ranks, &Said::This(said))?.into_iter().enumerate() {
            match said {
                Said::This(said) => heard.push(said),
                Said::Failed(message) => {
                    self.ended.store(true, Ordering::Relaxed);
                    return Err(TrainError::Rank { rank, message });
                }
            }
        }
        Ok(heard)
    }

    /// The sum of each number over all ranks.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn totals(&self, values: &[f64]) -> Result<Vec<f64>, TrainError> {
        match &self.ranks {
            Some(ranks) => Ok(ranks.totals(values)?),
            None => Ok(values.to_vec()),
        }
    }

    /// Says to all what became of this rank's part, and waits for theirs: an error of any is one of all, wherever they are.
    ///
    /// # Errors
    /// That of this rank, or that of the first other one that has one.
    pub fn agree<T, E: From<TrainError> + ToString>(&self, part: Result<T, E>) -> Result<T, E> {
        let Some(ranks) = self.ranks.as_ref().filter(|_| !self.ended.load(Ordering::Relaxed)) else { return part };
        match part {
            Ok(part) => self.hear(()).map(|_| part).map_err(E::from),
            Err(error) => {
                self.ended.store(true, Ordering::Relaxed);
                // What others wait for is no matter, and whether they are there.
                let _ = exchange(ranks, &Said::<serde_json::Value>::Failed(error.to_string()));
                Err(error)
            }
        }
    }

    /// Adds up the gradients of all ranks, so that each has the sum. One that no rank has is in no sum.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn sum(&self, gradients: &mut GradientSum, device: &Device) -> Result<(), TrainError> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let mut sizes = BTreeMap::new();
        for own in self.hear(gradients.sizes())? {
            sizes.extend(own);
        }
        gradients.sum_over(ranks, sizes, device)
    }
}

fn exchange<T: Serialize + DeserializeOwned>(ranks: &Ranks, said: &Said<T>) -> Result<Vec<Said<T>>, TrainError> {
    let data = |error: serde_json::Error| TrainError::Data(error.into());
    let heard = ranks.gather(serde_json::to_vec(said).map_err(data)?)?.wait()?;
    heard.iter().map(|bytes| serde_json::from_slice(bytes).map_err(data)).collect()
}
