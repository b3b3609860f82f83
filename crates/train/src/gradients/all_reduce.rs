//! Sums of gradients over all ranks.

use super::GradientSum;
use super::buckets::{ReceivedEarly, Sent, SentEarly};
use crate::TrainError;
use crate::process_group::{AllReduce, ProcessGroup};
use crate::shard::Shard;
use burn::tensor::Device;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    ///
    /// # Errors
    /// When a rank is gone or silent.
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
}
