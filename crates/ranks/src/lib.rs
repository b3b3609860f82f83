//! Collective communication between the processes of one training run.
//!
//! Each process is a rank, counted from 0. [`Ranks`] provides all-reduce, reduce-scatter and all-gather over all ranks.
//! A sum is added up in rank order: the same number of ranks gives the same bits every time, and every rank gets the
//! same ones. A [`Transport`] carries the bytes: MPI with the feature `mpi`, or channels between threads of one
//! process, which tests use.
//!
//! This is not a general-purpose library of collectives. It has what training needs, and every rank has to call the
//! same collectives in the same order.
//!
//! ```
//! use undertone_ranks::{Timeouts, Ranks, threads};
//!
//! let sums = threads(2).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let ranks = Ranks::over(|| Ok(transport)).expect("a rank");
//!         let sum = ranks.all_reduce(vec![1.0 + ranks.rank() as f32]).expect("asked");
//!         sum.wait(Timeouts::default()).expect("all ranks are there")
//!     })
//! });
//! for sum in sums.collect::<Vec<_>>() {
//!     assert_eq!(sum.join().expect("no panic"), [3.0]);
//! }
//! ```

mod error;
mod launcher;
#[cfg(feature = "mpi")]
mod mpi;
mod ranks;
mod slow;
mod sum;
mod threads;
#[cfg(feature = "mpi")]
mod timing;
mod transport;

#[cfg(feature = "mpi")]
pub use crate::mpi::Mpi;
pub use error::{Peer, RankError};
pub use launcher::{Launched, launched};
pub use ranks::{Pending, Ranks, Timeouts};
pub use slow::Slow;
pub use threads::{Threads, threads};
#[cfg(feature = "mpi")]
pub use timing::{SumTimes, time_sums};
pub use transport::{BEAT, Missing, Parcel, Transport};
