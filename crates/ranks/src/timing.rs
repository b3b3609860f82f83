//! How long sums take beside MPI's own.

use crate::mpi::Mpi;
use crate::sum::{Group, sum};
use crate::transport::Missing;
use crate::{RankError, Transport};
use std::time::{Duration, Instant};

/// How long the same sum over all ranks took, round by round.
#[derive(Clone, Debug, Default)]
pub struct SumTimes {
    /// In the order of ranks, as training adds gradients up.
    pub ours: Vec<Duration>,
    /// By MPI's `MPI_Allreduce`, in whatever order it likes.
    pub bare: Vec<Duration>,
}

/// Times sums of so many numbers over the processes that were started together, here and by MPI, in turn.
///
/// # Errors
/// When there is no MPI, or a rank does something else.
pub fn time_sums(sizes: &[usize], rounds: usize) -> Result<(usize, usize, Vec<SumTimes>), RankError> {
    let mut mpi = Mpi::init()?;
    let members: Vec<usize> = (0..mpi.count()).collect();
    let (mut all, mut scratch) = (Vec::with_capacity(sizes.len()), Vec::new());
    for size in sizes {
        let mut times = SumTimes::default();
        let mut values = vec![1.0_f32; *size];
        let mut sums = vec![0.0_f32; *size];
        // The first round warms up.
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
