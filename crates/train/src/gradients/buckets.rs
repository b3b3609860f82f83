//! Gradients on their way between ranks, many at a time: through the host, or from card to card where ranks have cards with NCCL.

use super::GradientSum;
use crate::TrainError;
use crate::optimizer::Shard;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone_ops::{Communicator, DeviceSum, Reading, add, read_behind};
use undertone_ranks::{Pending, Ranks, Timeouts};

/// How many numbers ranks add up at a time: 25 MB.
pub(crate) const BUCKET: usize = 25_000_000 / 4;

/// What adds up gradients over all ranks.
#[derive(Clone, Debug)]
pub(crate) struct AllReduce {
    pub ranks: Arc<Ranks>,
    /// Their cards, where these add up by themselves.
    pub cards: Option<Arc<Communicator>>,
    pub device: Device,
}

/// Gradients that are added up at a time.
#[derive(Default)]
pub(crate) struct Bucket {
    shard: Option<Shard>,
    /// With how many numbers each has; nothing stands for zeros.
    gradients: Vec<(String, usize, Option<Tensor<1>>)>,
}

/// A bucket whose numbers are read, or that is on its way.
pub(crate) enum Begun {
    Reading(Option<Shard>, Vec<(String, usize, Option<Reading>)>),
    Sent(Sent),
}

/// A bucket on its way.
pub(crate) struct Sent {
    shard: Option<Shard>,
    names: Vec<(String, usize)>,
    way: Way,
}

/// The sums of whole gradients, and of this rank's parts of those that are divided among ranks.
enum Way {
    Host { whole: Pending<Vec<f32>>, parts: Option<Pending<Vec<f32>>> },
    Cards { whole: Option<DeviceSum>, parts: Option<DeviceSum> },
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
    pub sent: Result<Vec<Sent>, TrainError>,
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

    /// Adds a gradient of so many numbers, or zeros.
    pub fn add(&mut self, name: String, size: usize, gradient: Option<Tensor<1>>) {
        self.gradients.push((name, size, gradient));
    }

    fn size(&self) -> usize {
        self.gradients.iter().map(|(_, size, _)| size).sum()
    }

    /// Begins to read it, or sends it off where cards add up: over all ranks, which have one with the same names.
    pub fn begin(self, sums: &AllReduce) -> Begun {
        let Self { shard, gradients } = self;
        let Some(cards) = &sums.cards else {
            let reading = |(name, size, gradient): (_, _, Option<_>)| (name, size, gradient.map(read_behind));
            return Begun::Reading(shard, gradients.into_iter().map(reading).collect());
        };
        let (mut names, mut whole, mut divided) = (Vec::new(), Vec::new(), Vec::new());
        for (name, size, gradient) in gradients {
            names.push((name, size));
            let gradient = gradient.unwrap_or_else(|| Tensor::zeros([size], &sums.device));
            if divides(shard, size) { divided.push(gradient) } else { whole.push(gradient) }
        }
        let whole = (!whole.is_empty()).then(|| cards.all_reduce(Tensor::cat(whole, 0)));
        let parts = shard.filter(|_| !divided.is_empty()).map(|shard| {
            let parts = (0..shard.count).flat_map(|rank| {
                let shard = Shard { rank, ..shard };
                divided.iter().map(move |gradient| padded_part(gradient, shard))
            });
            cards.reduce_scatter(Tensor::cat(parts.collect(), 0))
        });
        Begun::Sent(Sent { shard, names, way: Way::Cards { whole, parts } })
    }
}

impl Begun {
    /// Sends it off, if it is not yet; `read` waits for numbers.
    pub fn send(self, sums: &AllReduce, read: fn(Reading) -> Vec<f32>) -> Result<Sent, TrainError> {
        let (shard, gradients) = match self {
            Self::Sent(sent) => return Ok(sent),
            Self::Reading(shard, gradients) => (shard, gradients),
        };
        let (mut names, mut whole, mut divided) = (Vec::new(), Vec::new(), Vec::new());
        for (name, size, reading) in gradients {
            names.push((name, size));
            let values = reading.map_or_else(|| vec![0.0; size], read);
            if divides(shard, size) { divided.push(values) } else { whole.extend(values) }
        }
        let whole = sums.ranks.all_reduce(whole)?;
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
            sums.ranks.reduce_scatter(values, lengths)
        });
        Ok(Sent { shard, names, way: Way::Host { whole, parts: parts.transpose()? } })
    }
}

fn divides(shard: Option<Shard>, size: usize) -> bool {
    shard.is_some_and(|shard| shard.divides(size))
}

/// What is a rank's of a divided gradient, as long for one rank as for another: NCCL's parts are.
fn padded_part(gradient: &Tensor<1>, shard: Shard) -> Tensor<1> {
    let [size] = gradient.dims();
    let range = shard.range(size);
    let missing = longest_part(shard, size) - range.len();
    let own = gradient.clone().narrow(0, range.start, range.len());
    if missing == 0 { own } else { Tensor::cat(vec![own, Tensor::zeros([missing], &gradient.device())], 0) }
}

fn longest_part(shard: Shard, size: usize) -> usize {
    size.div_ceil(shard.count)
}

impl Sent {
    /// Takes in the sums: of divided gradients this rank's part.
    fn receive(self, sum: &mut GradientSum, timeouts: Timeouts, device: &Device) -> Result<(), TrainError> {
        let Self { shard, names, way } = self;
        let [mut whole, mut parts] = match way {
            Way::Host { whole, parts } => {
                let found =
                    [whole.wait(timeouts)?, parts.map(|parts| parts.wait(timeouts)).transpose()?.unwrap_or_default()];
                found.map(Received::on_host)
            }
            Way::Cards { whole, parts } => {
                // That all ranks have sent theirs is known by now.
                let wait = |sent: DeviceSum| sent.wait(timeouts.answer.min(LONGEST_SUM));
                let found = [whole.map(wait).transpose()?, parts.map(wait).transpose()?];
                found.map(Received::on_card)
            }
        };
        for (name, size) in names {
            let divided = shard.filter(|shard| shard.divides(size));
            let (found, place) = match divided {
                None => (whole.next(size, size, device), &mut sum.by_name),
                Some(shard) => {
                    let length = shard.range(size).len();
                    (parts.next(length, longest_part(shard, size), device), &mut sum.parts)
                }
            };
            place.insert(name, found);
        }
        Ok(())
    }
}

/// A bucket takes a slow network some seconds.
const LONGEST_SUM: Duration = Duration::from_secs(300);

/// Sums that came, of which gradients are taken one after the other.
enum Received {
    Host(std::vec::IntoIter<f32>),
    Card { values: Option<Box<Tensor<1>>>, taken: usize },
}

impl Received {
    fn on_host(values: Vec<f32>) -> Self {
        Self::Host(values.into_iter())
    }

    fn on_card(values: Option<Tensor<1>>) -> Self {
        Self::Card { values: values.map(Box::new), taken: 0 }
    }

    /// The next `length` numbers, which on cards take the place of `padded`.
    fn next(&mut self, length: usize, padded: usize, device: &Device) -> Tensor<1> {
        match self {
            Self::Host(values) => {
                let values: Vec<f32> = values.take(length).collect();
                Tensor::from_data(TensorData::new(values, [length]), device)
            }
            Self::Card { values, taken } => {
                let begin = *taken;
                *taken += padded;
                let values = values.as_ref().expect("what was sent comes back");
                values.clone().narrow(0, begin, length)
            }
        }
    }
}

impl GradientSum {
    /// Begins to add up the gradients of all ranks, which together have those of these sizes: a rank without one has zeros. While
    /// a bucket of them is on its way, the next one is filled.
    pub(crate) fn send(
        &mut self,
        sums: &AllReduce,
        sizes: BTreeMap<String, usize>,
        shard: Option<Shard>,
    ) -> Result<Vec<Sent>, TrainError> {
        let mut sent = Vec::new();
        let mut bucket = Bucket::new(shard);
        for (name, size) in sizes {
            let gradient = self.by_name.remove(&name);
            bucket.add(name, size, gradient);
            if bucket.size() >= BUCKET {
                let full = std::mem::replace(&mut bucket, Bucket::new(shard));
                sent.push(full.begin(sums).send(sums, Reading::finish_now)?);
            }
        }
        if !bucket.gradients.is_empty() {
            sent.push(bucket.begin(sums).send(sums, Reading::finish_now)?);
        }
        Ok(sent)
    }

    /// Takes in the sums over all ranks; of divided gradients this rank's part. How long it waited for what was on its way.
    pub(crate) fn receive(
        &mut self,
        sent: Vec<Sent>,
        sums: &AllReduce,
        timeouts: Timeouts,
    ) -> Result<Duration, TrainError> {
        let began = Instant::now();
        if sums.cards.is_some() && !sent.is_empty() {
            // NCCL waits for a process that has died as long as for one that computes: this does not.
            sums.ranks.all_gather(Vec::new())?.wait(timeouts)?;
        }
        sent.into_iter().try_for_each(|sent| sent.receive(self, timeouts, &sums.device))?;
        Ok(began.elapsed())
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
