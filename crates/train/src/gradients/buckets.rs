//! Gradients on their way between ranks, many at a time.

use super::GradientSum;
use crate::optimizer::Shard;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use undertone_ops::{add, read};
use undertone_ranks::{Patience, Pending, RankError, Ranks};

/// How many numbers ranks add up at a time: 25 MB.
pub(crate) const BUCKET: usize = 25_000_000 / 4;

/// Gradients that are added up at a time.
#[derive(Default)]
pub(crate) struct Bucket {
    shard: Option<Shard>,
    names: Vec<(String, usize)>,
    whole: Vec<f32>,
    /// Those that are divided among ranks.
    divided: Vec<Vec<f32>>,
    /// How many numbers there are.
    values: usize,
}

/// A bucket on its way.
pub(crate) struct Sent {
    shard: Option<Shard>,
    names: Vec<(String, usize)>,
    whole: Pending<Vec<f32>>,
    parts: Option<Pending<Vec<f32>>>,
}

/// Gradients that are sent off together while the backward pass goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedBucket {
    /// How many forks the backward pass has passed by then.
    pub forks: usize,
    /// Their names, and how many numbers each has.
    pub gradients: Vec<(String, usize)>,
}

/// What was sent off while the backward pass went on.
pub(crate) struct SentEarly {
    pub sent: Result<Vec<Sent>, RankError>,
    /// The names of gradients in it that this rank has none of.
    pub absent: Vec<String>,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct ReceivedEarly {
    pub sum: GradientSum,
    /// As in [`SentEarly`].
    pub absent: Vec<String>,
}

impl Default for SentEarly {
    fn default() -> Self {
        Self { sent: Ok(Vec::new()), absent: Vec::new() }
    }
}

impl Bucket {
    /// An empty one; `shard` says which part of each gradient is this rank's, where they are divided.
    pub fn new(shard: Option<Shard>) -> Self {
        Self { shard, ..Self::default() }
    }

    pub fn add(&mut self, name: String, values: Vec<f32>) {
        self.values += values.len();
        self.names.push((name, values.len()));
        match self.shard {
            Some(shard) if shard.divides(values.len()) => self.divided.push(values),
            _ => self.whole.extend(values),
        }
    }

    /// Begins to add it up over all ranks, which have one with the same names.
    pub fn send(self, ranks: &Ranks) -> Result<Sent, RankError> {
        let Self { shard, names, whole, divided, .. } = self;
        let whole = ranks.sum(whole)?;
        let parts = shard.map(|shard| {
            // What is the first rank's of each of them, then what is the second's, and so on.
            let mut lengths = vec![0; shard.count];
            let mut values = Vec::with_capacity(divided.iter().map(Vec::len).sum());
            for (rank, length) in lengths.iter_mut().enumerate() {
                for gradient in &divided {
                    let own = &gradient[Shard { rank, ..shard }.range(gradient.len())];
                    *length += own.len();
                    values.extend_from_slice(own);
                }
            }
            ranks.sum_parts(values, lengths)
        });
        Ok(Sent { shard, names, whole, parts: parts.transpose()? })
    }
}

impl GradientSum {
    /// Begins to add up the gradients of all ranks, which together have those of these sizes: a rank without one has zeros. While
    /// a bucket of them is on its way, the next one is filled.
    pub(crate) fn send(
        &mut self,
        ranks: &Ranks,
        sizes: BTreeMap<String, usize>,
        shard: Option<Shard>,
    ) -> Result<Vec<Sent>, RankError> {
        let mut sent = Vec::new();
        let mut bucket = Bucket::new(shard);
        for (name, size) in sizes {
            let values = self.by_name.remove(&name).map_or_else(|| vec![0.0; size], read);
            bucket.add(name, values);
            if bucket.values >= BUCKET {
                sent.push(std::mem::replace(&mut bucket, Bucket::new(shard)).send(ranks)?);
            }
        }
        if !bucket.names.is_empty() {
            sent.push(bucket.send(ranks)?);
        }
        Ok(sent)
    }

    /// Takes in the sums over all ranks; of divided gradients this rank's part. How long it waited for what was on its way.
    pub(crate) fn receive(
        &mut self,
        sent: Vec<Sent>,
        patience: Patience,
        device: &Device,
    ) -> Result<Duration, RankError> {
        let mut waited = Duration::ZERO;
        for Sent { shard, names, whole, parts } in sent {
            let began = Instant::now();
            let mut whole = whole.wait(patience)?.into_iter();
            let mut parts = parts.map(|parts| parts.wait(patience)).transpose()?.unwrap_or_default().into_iter();
            waited += began.elapsed();
            for (name, size) in names {
                let divided = shard.filter(|shard| shard.divides(size));
                let length = divided.map_or(size, |shard| shard.range(size).len());
                let (values, place) = match divided {
                    Some(_) => (parts.by_ref().take(length).collect(), &mut self.parts),
                    None => (whole.by_ref().take(length).collect::<Vec<f32>>(), &mut self.by_name),
                };
                let found = Tensor::from_data(TensorData::new(values, [length]), device);
                place.insert(name, found);
            }
        }
        Ok(waited)
    }

    /// Adds the sums of what was sent early.
    pub(crate) fn add_early(&mut self, early: Self) {
        let Self { by_name, parts, .. } = early;
        for (found, place) in [(by_name, &mut self.by_name), (parts, &mut self.parts)] {
            for (name, early) in found {
                let sum = match place.remove(&name) {
                    Some(late) => add(vec![[early, late]]).remove(0),
                    None => early,
                };
                place.insert(name, sum);
            }
        }
    }
}
