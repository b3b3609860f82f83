//! Transport between threads of one process, for tests.

use crate::transport::{Missing, Parcel};
use crate::{RankError, Transport};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Endpoint of one rank, which is a thread. Channels connect it to the others.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// Returns connected endpoints for `count` threads.
pub fn threads(count: usize) -> Vec<Threads> {
    let mut ranks: Vec<Threads> = (0..count).map(|rank| Threads { rank, to: Vec::new(), from: Vec::new() }).collect();
    for sender in 0..count {
        for receiver in 0..count {
            let (to, from) = channel();
            ranks[sender].to.push(to);
            ranks[receiver].from.push(from);
        }
    }
    ranks
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.to.len()
    }

    fn exchange(&mut self, parcels: &mut [Parcel<'_>], missing: &Missing) -> Result<(), RankError> {
        for Parcel { rank, sent, .. } in &*parcels {
            self.to[*rank].send(sent.to_vec()).map_err(|_| RankError::Gone(*rank))?;
        }
        for Parcel { rank, received, .. } in parcels {
            let bytes = self.from[*rank].recv().map_err(|_| RankError::Gone(*rank))?;
            let (found, expected) = (bytes.len(), received.len());
            if found != expected {
                return Err(RankError::OutOfStep { rank: *rank, found, expected });
            }
            received.copy_from_slice(&bytes);
            missing.received(*rank);
        }
        Ok(())
    }
}
