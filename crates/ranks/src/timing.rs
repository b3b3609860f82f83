//! Benchmark of all-reduce against MPI's own.

use crate::mpi::Mpi;
use crate::sum::{Group, sum};
use crate::transport::Missing;
use crate::{RankError, Transport};
use std::time::{Duration, Instant};

/// Times of the same all-reduce, one per round.
#[derive(Clone, Debug, Default)]
pub struct SumTimes {
    /// [`Ranks::all_reduce`](crate::Ranks::all_reduce)'s algorithm, which adds in rank order, as training does.
    pub ours: Vec<Duration>,
    /// `MPI_Allreduce`, which adds in an order of its choice.
    pub bare: Vec<Duration>,
}

/// Times all-reduces of each number of values over the processes that were launched together, by this crate and by MPI
/// in turn. Returns this rank, the number of ranks, and the times for each size.
///
/// # Errors
/// When MPI cannot be used, or a rank is out of step.
pub fn time_sums(sizes: &[usize], rounds: usize) -> Result<(usize, usize, Vec<SumTimes>), RankError> {
    let mut mpi = Mpi::init()?;
    let members: Vec<usize> = (0..mpi.count()).collect();
    let (mut all, mut scratch) = (Vec::with_capacity(sizes.len()), Vec::new());
    for size in sizes {
        let mut times = SumTimes::default();
        let mut values = vec![1.0_f32; *size];
        let mut sums = vec![0.0_f32; *size];
        // The first round is a warm-up.
        for round in 0..=rounds {
            mpi.meet();
            let began = Instant::now();
            sum(&mut Group { transport: &mut mpi, members: &members }, &mut values, &mut scratch, &Missing::default())?;
            let ours = began.elapsed();
            mpi.meet();
            let began = Instant::now();
            mpi.sum_by_mpi(&values, &mut sums);
            let bare = began.elapsed();
            if round > 0 {
                times.ours.push(ours);
                times.bare.push(bare);
            }
            values.fill(1.0);
        }
        all.push(times);
    }
    Ok((mpi.rank(), mpi.count(), all))
}
