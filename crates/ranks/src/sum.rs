//! Sums and gathered bytes, made of exchanges.

use crate::transport::Missing;
use crate::{RankError, Transport};

/// The sum of each number over all ranks, in the order of ranks: each rank adds up a share of the numbers, and the shares are
/// exchanged. What passes each rank's link is twice `(ranks - 1) / ranks` of the numbers, whatever their count.
pub(crate) fn sum(transport: &mut dyn Transport, values: &mut [f32], missing: &Missing) -> Result<(), RankError> {
    let (rank, count) = (transport.rank(), transport.count());
    if count == 1 {
        return Ok(());
    }
    let lengths: Vec<usize> =
        (0..count).map(|rank| values.len() / count + usize::from(rank < values.len() % count)).collect();
    let own = sum_parts(transport, values, &lengths, missing)?;
    let sent: Vec<&[u8]> =
        (0..count).map(|other| if other == rank { &[][..] } else { bytemuck::cast_slice(&own) }).collect();
    let mut received = Vec::with_capacity(count);
    let mut rest = values;
    for (other, length) in lengths.iter().enumerate() {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(*length);
        if other == rank {
            part.copy_from_slice(&own);
            received.push(&mut [][..]);
        } else {
            received.push(bytemuck::cast_slice_mut(part));
        }
        rest = after;
    }
    exchange(transport, &sent, &mut received, missing)
}

/// This rank's part of the sums over all ranks, in the order of ranks; the parts have these lengths.
pub(crate) fn sum_parts(
    transport: &mut dyn Transport,
    values: &[f32],
    lengths: &[usize],
    missing: &Missing,
) -> Result<Vec<f32>, RankError> {
    let (rank, count) = (transport.rank(), transport.count());
    let mut rest = values;
    let own: Vec<&[f32]> = lengths.iter().filter_map(|length| rest.split_off(..*length)).collect();
    let empty_for_own = |other: usize| if other == rank { 0 } else { own[rank].len() };
    let mut parts: Vec<Vec<f32>> = (0..count).map(|other| vec![0.0; empty_for_own(other)]).collect();
    let sent: Vec<&[u8]> =
        (0..count).map(|other| if other == rank { &[][..] } else { bytemuck::cast_slice(own[other]) }).collect();
    let mut received: Vec<&mut [u8]> = parts.iter_mut().map(|part| bytemuck::cast_slice_mut(part)).collect();
    exchange(transport, &sent, &mut received, missing)?;
    parts[rank] = own[rank].to_vec();
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    Ok(sum)
}

/// What each rank says, in the order of ranks.
pub(crate) fn gather(transport: &mut dyn Transport, said: &[u8], missing: &Missing) -> Result<Vec<Vec<u8>>, RankError> {
    let (rank, count) = (transport.rank(), transport.count());
    let to_others =
        |bytes| -> Vec<&[u8]> { (0..count).map(|other| if other == rank { &[][..] } else { bytes }).collect() };
    let length = (said.len() as u64).to_le_bytes();
    let mut lengths: Vec<Vec<u8>> =
        (0..count).map(|other| vec![0; if other == rank { 0 } else { length.len() }]).collect();
    exchange_into(transport, &to_others(&length), &mut lengths, missing)?;
    let length = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes) as usize;
    let mut heard: Vec<Vec<u8>> = lengths.iter().map(|bytes| vec![0; length(bytes)]).collect();
    exchange_into(transport, &to_others(said), &mut heard, missing)?;
    heard[rank] = said.to_vec();
    Ok(heard)
}

fn exchange_into(
    transport: &mut dyn Transport,
    sent: &[&[u8]],
    received: &mut [Vec<u8>],
    missing: &Missing,
) -> Result<(), RankError> {
    let mut places: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
    exchange(transport, sent, &mut places, missing)
}

fn exchange(
    transport: &mut dyn Transport,
    sent: &[&[u8]],
    received: &mut [&mut [u8]],
    missing: &Missing,
) -> Result<(), RankError> {
    let own = transport.rank();
    missing.expect((0..sent.len()).filter(|rank| *rank != own));
    transport.exchange(sent, received, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;
    use proptest::prelude::*;

    /// What each of some ranks finds, all at the same time.
    fn together<T: Send>(count: usize, found: impl Fn(&mut dyn Transport) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let found = &found;
            let ranks: Vec<_> =
                threads(count).into_iter().map(|mut rank| scope.spawn(move || found(&mut rank))).collect();
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
                sum(rank, &mut own, &Missing::default()).map(|()| own)
            });
            for sum in sums {
                prop_assert_eq!(sum.expect("a sum"), wanted.clone());
            }
        }

        #[test]
        fn what_each_rank_says_is_heard_by_all(said in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..6)) {
            for heard in together(said.len(), |rank| { let own = &said[rank.rank()]; gather(rank, own, &Missing::default()) }) {
                prop_assert_eq!(heard.expect("all are there"), said.clone());
            }
        }
    }

    #[test]
    fn ranks_that_do_not_do_the_same_are_told() {
        let found = together(2, |rank| {
            let mut values = vec![1.0; 2 + 2 * rank.rank()];
            sum(rank, &mut values, &Missing::default())
        });
        assert_eq!(found[0], Err(RankError::OutOfStep { rank: 1, found: 8, expected: 4 }));
    }
}
