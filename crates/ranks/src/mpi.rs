//! Transport over MPI.

use crate::transport::{BEAT, Missing, Parcel};
use crate::{RankError, Transport};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::request::scope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Equivalence, Source};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The processes that `mpirun` or `srun` started.
pub struct Mpi {
    world: SimpleCommunicator,
    /// Time of this process's last heartbeat, if it has sent one.
    last_sign: Cell<Option<Instant>>,
    /// Finalizes MPI when dropped.
    _universe: Universe,
}

/// Time for which a waiting thread polls without a pause: MPI moves bytes only while it is polled.
const EAGER: Duration = Duration::from_millis(5);
/// Pause between polls after that, which leaves the core to computation.
const PAUSE: Duration = Duration::from_micros(50);

/// Tag of exchanged data. Receives name a tag, because without one MPI takes any message.
const DATA: i32 = 0;
/// Tag of heartbeats.
const SIGN: i32 = 1;

impl Mpi {
    /// Initializes MPI. Call it once in a process, and use the result in the same thread.
    ///
    /// # Errors
    /// When MPI is already initialized, or was built without support for threads.
    pub fn init() -> Result<Self, RankError> {
        let refused = |why: &str| RankError::Mpi(why.to_owned());
        let (universe, threading) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| refused("it has been begun before in this process"))?;
        if threading < Threading::Funneled {
            return Err(refused("it was built for programs without threads"));
        }
        Ok(Self { world: universe.world(), last_sign: Cell::new(None), _universe: universe })
    }

    /// Barrier over all ranks.
    pub(crate) fn meet(&self) {
        self.world.barrier();
    }

    /// Sum over all ranks by MPI's own all-reduce.
    pub(crate) fn sum_by_mpi(&self, values: &[f32], sums: &mut [f32]) {
        self.world.all_reduce_into(values, sums, SystemOperation::sum());
    }

    /// Sends a heartbeat to every other rank.
    fn give_sign(&self) {
        self.last_sign.set(Some(Instant::now()));
        let own = self.world.rank();
        for other in (0..self.world.size()).filter(|other| *other != own) {
            self.world.process_at_rank(other).send_with_tag(&[0_u8][..], SIGN);
        }
    }

    /// Records the heartbeats that others sent.
    fn note_signs(&self, missing: &Missing) {
        while let Some(sign) = self.world.any_process().immediate_probe_with_tag(SIGN) {
            let sender = self.world.process_at_rank(sign.source_rank());
            sender.receive_into_with_tag(&mut [0_u8][..], SIGN);
            missing.beat(sign.source_rank() as usize);
        }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn count(&self) -> usize {
        self.world.size() as usize
    }

    fn host(&self) -> String {
        mpi::environment::processor_name().unwrap_or_default()
    }

    fn beat(&mut self, missing: &Missing) {
        self.give_sign();
        self.note_signs(missing);
    }

    fn exchange(&mut self, parcels: &mut [Parcel<'_>], missing: &Missing) -> Result<(), RankError> {
        let due: Vec<(usize, usize)> = parcels.iter().map(|parcel| (parcel.rank, parcel.received.len())).collect();
        let mut found = vec![0; due.len()];
        scope(|scope| {
            let (mut receives, mut sends) = (Vec::new(), Vec::new());
            for (place, Parcel { rank, sent, received }) in parcels.iter_mut().enumerate() {
                let process = self.world.process_at_rank(*rank as i32);
                receives.push((place, process.immediate_receive_into_with_tag(scope, &mut **received, DATA)));
                sends.push((*rank, process.immediate_send_with_tag(scope, *sent, DATA)));
            }
            let began = Instant::now();
            while !receives.is_empty() || !sends.is_empty() {
                let mut still = Vec::with_capacity(receives.len());
                for (place, request) in receives {
                    match request.test() {
                        Ok(status) => {
                            found[place] = status.count(u8::equivalent_datatype()) as usize;
                            missing.received(due[place].0);
                        }
                        Err(request) => still.push((place, request)),
                    }
                }
                receives = still;
                sends = sends.into_iter().filter_map(|(rank, request)| Some((rank, request.test().err()?))).collect();
                if self.last_sign.get().is_none_or(|sign| sign.elapsed() > BEAT) {
                    self.give_sign();
                }
                if began.elapsed() > EAGER {
                    if receives.is_empty() {
                        // Only sends are left, so the receivers are the ones that are waited for.
                        missing.expect(sends.iter().map(|(rank, _)| *rank));
                    }
                    self.note_signs(missing);
                    std::thread::sleep(PAUSE);
                }
            }
        });
        missing.expect(std::iter::empty());
        match due.into_iter().zip(found).find(|((_, expected), found)| expected != found) {
            Some(((rank, expected), found)) => Err(RankError::OutOfStep { rank, found, expected }),
            None => Ok(()),
        }
    }
}
