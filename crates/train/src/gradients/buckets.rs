//! All-reduce of gradients in buckets: through the host, or from card to card where ranks have cards with NCCL.

use super::GradientSum;
use crate::TrainError;
use crate::process_group::{AllReduce, ProcessGroup, SumTimes};
use crate::shard::Shard;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};
use undertone_ops::{DeviceSum, NcclError, Reading, add, read_behind};
use undertone_ranks::{Pending, Timeouts};

/// Number of elements that are summed at a time: 25 MB.
pub(crate) const BUCKET: usize = 25_000_000 / 4;

/// Gradients that are summed at a time.
#[derive(Default)]
pub(crate) struct Bucket {
    shard: Option<Shard>,
    /// Name, number of elements and values of each gradient; `None` stands for zeros.
    gradients: Vec<(String, usize, Option<Tensor<1>>)>,
}

/// A bucket whose values are being read from the device, or that is sent.
pub(crate) enum Begun {
    Reading(Option<Shard>, Vec<(String, usize, Option<Reading>)>),
    Sent(Sent),
}

/// A bucket that was sent and whose sums have not been received.
pub(crate) struct Sent {
    shard: Option<Shard>,
    names: Vec<(String, usize)>,
    way: Way,
}

/// Pending sums of whole gradients, and of this rank's parts of divided gradients.
enum Way {
    Host { whole: Pending<Vec<f32>>, parts: Option<Pending<Vec<f32>>> },
    Cards { whole: Option<DeviceSum>, parts: Option<DeviceSum> },
}

/// Gradients that are sent together during the backward pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedBucket {
    /// Number of forks that the backward pass has passed when they are sent.
    pub forks: usize,
    /// Names and numbers of elements.
    pub gradients: Vec<(String, usize)>,
}

/// Buckets that were sent during the backward pass.
pub(crate) struct SentEarly {
    pub sent: Result<Vec<Sent>, TrainError>,
    /// Names of gradients in them that this rank does not have.
    pub absent: Vec<String>,
}

/// Sums of the buckets that were sent early.
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
    /// Makes an empty bucket. `shard` is this rank's part of each gradient, if gradients are divided.
    pub fn new(shard: Option<Shard>) -> Self {
        Self { shard, ..Self::default() }
    }

    /// Adds a gradient of so many elements, or zeros.
    pub fn add(&mut self, name: String, size: usize, gradient: Option<Tensor<1>>) {
        self.gradients.push((name, size, gradient));
    }

    fn size(&self) -> usize {
        self.gradients.iter().map(|(_, size, _)| size).sum()
    }

    /// Starts reading the values, or sends them if cards sum them. All ranks have a bucket with the same names.
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
    /// Sends the bucket if it is not sent yet. `read` waits for the values.
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
            // First the parts of the first rank, then those of the second, and so on.
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

/// Returns a rank's part of a divided gradient, padded to the same length for all ranks, as NCCL requires.
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
    /// Receives the sums: whole gradients, and this rank's part of divided gradients.
    fn receive(
        self,
        sum: &mut GradientSum,
        timeouts: Timeouts,
        device: &Device,
        times: &mut SumTimes,
    ) -> Result<(), TrainError> {
        let Self { shard, names, way } = self;
        let began = Instant::now();
        let [mut whole, mut parts] = match way {
            Way::Host { whole, parts } => {
                let found =
                    [whole.wait(timeouts)?, parts.map(|parts| parts.wait(timeouts)).transpose()?.unwrap_or_default()];
                found.map(Received::on_host)
            }
            Way::Cards { whole, parts } => {
                // It is known by now that all ranks have sent theirs.
                let mut wait = |sent: DeviceSum| {
                    let (values, took) = sent.wait(timeouts.answer.min(LONGEST_SUM))?;
                    times.on_cards += took;
                    Ok::<_, NcclError>(values)
                };
                let found = [whole.map(&mut wait).transpose()?, parts.map(wait).transpose()?];
                found.map(Received::on_card)
            }
        };
        times.waited += began.elapsed();
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

/// Maximum time for a bucket, which takes some seconds on a slow network.
const LONGEST_SUM: Duration = Duration::from_secs(300);

/// Received sums, from which gradients are taken one after the other.
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

    /// Returns the next `length` elements. On cards they occupy `padded` elements.
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

impl SentEarly {
    /// Waits for the sums of gradients that were sent during the backward pass.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub fn receive(self, process_group: &ProcessGroup, device: &Device) -> Result<ReceivedEarly, TrainError> {
        let mut sum = GradientSum::default();
        let sent = process_group.noted(self.sent)?;
        if let Some(sums) = process_group.all_reduce(device) {
            sum.receive_noted(process_group, sent, &sums)?;
        }
        Ok(ReceivedEarly { sum, absent: self.absent })
    }
}

impl GradientSum {
    /// Sums the gradients of all ranks, so that each rank has the sums. If the optimizer state is sharded, a rank has
    /// only its part of each larger gradient. A gradient that no rank has stays absent. Some gradients may have been
    /// summed early.
    pub(crate) fn all_reduce(
        &mut self,
        process_group: &ProcessGroup,
        early: ReceivedEarly,
        shard: Option<Shard>,
        device: &Device,
    ) -> Result<(), TrainError> {
        let Some(sums) = process_group.all_reduce(device) else { return Ok(()) };
        let mut own = (self.sizes(), early.absent);
        // Nearly always all ranks have gradients of the same parameters, and a hash is enough to show it.
        let mut hasher = DefaultHasher::new();
        own.hash(&mut hasher);
        let hash = hasher.finish();
        if process_group.all_gather(hash)?.iter().any(|other| *other != hash) {
            let (sizes, absent): (Vec<_>, Vec<_>) = process_group.all_gather(own)?.into_iter().unzip();
            let nowhere = |name: &String| absent.iter().all(|absent| absent.contains(name));
            let absent = absent[0].iter().filter(|name| nowhere(name)).cloned().collect();
            own = (sizes.into_iter().flatten().collect(), absent);
        }
        let (sizes, absent) = own;
        let absent: Vec<String> = absent.into_iter().filter(|name| !sizes.contains_key(name)).collect();
        let sent = process_group.noted(self.send(&sums, sizes, shard))?;
        self.receive_noted(process_group, sent, &sums)?;
        self.add_early(early.sum);
        absent.iter().for_each(|name| drop(self.take(name)));
        Ok(())
    }

    /// Receives sums, and notes in the process group how long they took or which ranks did not answer.
    fn receive_noted(
        &mut self,
        process_group: &ProcessGroup,
        sent: Vec<Sent>,
        sums: &AllReduce,
    ) -> Result<(), TrainError> {
        let times = process_group.noted(self.receive(sent, sums, process_group.timeouts()));
        if let (Err(_), Some(cards)) = (&times, &sums.cards) {
            cards.abort();
        }
        process_group.add_sum_times(times?);
        Ok(())
    }

    /// Starts summing the gradients of all ranks. `sizes` are those of all gradients that any rank has; a rank without
    /// one sends zeros. While one bucket is being summed, the next one is filled.
    fn send(
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

    /// Receives the sums over all ranks; for divided gradients, this rank's part.
    fn receive(&mut self, sent: Vec<Sent>, sums: &AllReduce, timeouts: Timeouts) -> Result<SumTimes, TrainError> {
        let mut times = SumTimes::default();
        if sums.cards.is_some() && !sent.is_empty() {
            // NCCL would wait for a process that has died as long as for one that computes; this call does not.
            let began = Instant::now();
            sums.ranks.all_gather(Vec::new())?.wait(timeouts)?;
            times.waited += began.elapsed();
        }
        sent.into_iter().try_for_each(|sent| sent.receive(self, timeouts, &sums.device, &mut times))?;
        Ok(times)
    }

    /// Adds the sums of gradients that were sent early.
    fn add_early(&mut self, early: Self) {
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
