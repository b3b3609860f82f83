//! Collectives, built on exchanges between ranks.

use crate::transport::{Missing, Parcel};
use crate::{RankError, Transport};
use std::ops::Range;

/// All ranks, or some of them.
pub(crate) struct Group<'a> {
    pub transport: &'a mut dyn Transport,
    /// Numbers of the members, in the order in which sums are made.
    pub members: &'a [usize],
}

impl Group<'_> {
    /// Index of this rank among the members.
    pub fn rank(&self) -> usize {
        let own = self.transport.rank();
        self.members.iter().position(|member| *member == own).expect("a group is one of its members'")
    }

    /// Number of members.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Sends `sent(i)` to member `i`, and fills the `i`-th item of `received` with what member `i` sends. `received`
    /// has an item for each member; that of this rank is left as it is.
    fn exchange<'b>(
        &mut self,
        sent: impl Fn(usize) -> &'b [u8],
        received: impl Iterator<Item = &'b mut [u8]>,
        missing: &Missing,
    ) -> Result<(), RankError> {
        let own = self.transport.rank();
        let others = self.members.iter().zip(received).enumerate().filter(|(_, (rank, _))| **rank != own);
        let parcel =
            |(place, (rank, received)): (usize, (&usize, _))| Parcel { rank: *rank, sent: sent(place), received };
        let mut parcels: Vec<Parcel<'_>> = others.map(parcel).collect();
        missing.expect(parcels.iter().map(|parcel| parcel.rank));
        self.transport.exchange(&mut parcels, missing)
    }
}

/// All-reduce (sum) in rank order: a reduce-scatter over equal shares, then an all-gather of the shares. Each rank
/// sends `2 * (ranks - 1) / ranks` times the size of `values`, so traffic per link hardly depends on the number of
/// ranks. `scratch` holds what the others send; reused memory costs less than fresh memory.
pub(crate) fn sum(
    group: &mut Group<'_>,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
    missing: &Missing,
) -> Result<(), RankError> {
    let (rank, count) = (group.rank(), group.count());
    if count == 1 {
        return Ok(());
    }
    let lengths: Vec<usize> =
        (0..count).map(|rank| values.len() / count + usize::from(rank < values.len() % count)).collect();
    reduce_scatter(group, values, &lengths, scratch, missing)?;
    let mut rest = values;
    let mut parts: Vec<&mut [f32]> = lengths.iter().filter_map(|length| rest.split_off_mut(..*length)).collect();
    let own = std::mem::take(&mut parts[rank]);
    let own: &[u8] = bytemuck::cast_slice(own);
    group.exchange(|_| own, parts.into_iter().map(bytemuck::cast_slice_mut), missing)
}

/// Reduce-scatter (sum) in rank order. `lengths` are the lengths of the parts of `values`, one for each rank. Writes
/// the sum of this rank's part in its place, and returns the range of that part.
pub(crate) fn reduce_scatter(
    group: &mut Group<'_>,
    values: &mut [f32],
    lengths: &[usize],
    scratch: &mut Vec<f32>,
    missing: &Missing,
) -> Result<Range<usize>, RankError> {
    let (rank, count) = (group.rank(), group.count());
    let start = lengths[..rank].iter().sum();
    let (own, length) = (start..start + lengths[rank], lengths[rank]);
    scratch.resize((count - 1) * length, 0.0);
    let mut rest = &*values;
    let parts: Vec<&[f32]> = lengths.iter().filter_map(|length| rest.split_off(..*length)).collect();
    let mut free = &mut scratch[..];
    let places = (0..count).map(|other| {
        let length = if other == rank { 0 } else { length };
        bytemuck::cast_slice_mut(free.split_off_mut(..length).unwrap_or_default())
    });
    group.exchange(|other| bytemuck::cast_slice(parts[other]), places, missing)?;
    if length > 0 {
        add_up(&mut values[own.clone()], scratch, rank);
    }
    Ok(own)
}

/// Adds the values of all ranks in rank order and writes the sum to `own`, the values of rank `rank`. `others` is
/// overwritten.
fn add_up(own: &mut [f32], others: &mut [f32], rank: usize) {
    let length = own.len();
    if rank == 0 {
        others.chunks(length).for_each(|other| add(own, other));
        return;
    }
    let (sum, rest) = others.split_at_mut(length);
    let (before, after) = rest.split_at((rank - 1) * length);
    before.chunks(length).for_each(|other| add(sum, other));
    add(sum, own);
    after.chunks(length).for_each(|other| add(sum, other));
    own.copy_from_slice(sum);
}

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// All-gather: the bytes of each rank, in rank order.
pub(crate) fn gather(group: &mut Group<'_>, said: &[u8], missing: &Missing) -> Result<Vec<Vec<u8>>, RankError> {
    let (rank, count) = (group.rank(), group.count());
    let own_length = (said.len() as u64).to_le_bytes();
    let mut lengths = vec![[0; 8]; count];
    group.exchange(|_| &own_length, lengths.iter_mut().map(<[u8; 8]>::as_mut_slice), missing)?;
    let mut received: Vec<Vec<u8>> =
        lengths.iter().map(|length| vec![0; u64::from_le_bytes(*length) as usize]).collect();
    group.exchange(|_| said, received.iter_mut().map(Vec::as_mut_slice), missing)?;
    received[rank] = said.to_vec();
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Threads, threads};
    use proptest::prelude::*;

    /// Runs `found` on each of `count` ranks at the same time, and returns the results.
    fn together<T: Send>(count: usize, found: impl Fn(&mut Group<'_>) -> T + Sync) -> Vec<T> {
        let members: Vec<usize> = (0..count).collect();
        std::thread::scope(|scope| {
            let (found, members) = (&found, &members);
            let group = |mut transport| {
                scope.spawn(move || found(&mut Group { transport: &mut transport as &mut Threads, members }))
            };
            let ranks: Vec<_> = threads(count).into_iter().map(group).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_rank_has_the_sum_in_the_order_of_ranks(
            values in (1usize..6, 0usize..40).prop_flat_map(|(ranks, length)| {
                prop::collection::vec(prop::collection::vec(-1e6_f32..1e6, length), ranks)
            }),
        ) {
            let wanted: Vec<f32> =
                (0..values[0].len()).map(|i| values[1..].iter().fold(values[0][i], |sum, own| sum + own[i])).collect();
            let sums = together(values.len(), |rank| {
                let mut own = values[rank.rank()].clone();
                sum(rank, &mut own, &mut Vec::new(), &Missing::default()).map(|()| own)
            });
            for sum in sums {
                prop_assert_eq!(sum.expect("a sum"), wanted.clone());
            }
        }

        #[test]
        fn what_each_rank_says_is_heard_by_all(said in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..6)) {
            for received in together(said.len(), |rank| { let own = &said[rank.rank()]; gather(rank, own, &Missing::default()) }) {
                prop_assert_eq!(received.expect("all are there"), said.clone());
            }
        }
    }

    #[test]
    fn ranks_that_do_not_do_the_same_are_told() {
        let found = together(2, |rank| {
            let mut values = vec![1.0; 2 + 2 * rank.rank()];
            sum(rank, &mut values, &mut Vec::new(), &Missing::default())
        });
        assert_eq!(found[0], Err(RankError::OutOfStep { rank: 1, found: 8, expected: 4 }));
    }
}
