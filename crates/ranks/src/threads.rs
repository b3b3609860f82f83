//! Ranks that are threads of one process, for tests.

use crate::transport::Missing;
use crate::{RankError, Transport};
use std::sync::mpsc::{Receiver, Sender, channel};

/// One end of channels between threads, each of which is a rank.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// Ranks for so many threads.
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

    fn exchange(
        &mut self,
        members: &[usize],
        sent: &[&[u8]],
        received: &mut [&mut [u8]],
        missing: &Missing,
    ) -> Result<(), RankError> {
        let others = || members.iter().copied().enumerate().filter(|(_, other)| *other != self.rank);
        for (place, other) in others() {
            self.to[other].send(sent[place].to_vec()).map_err(|_| RankError::Gone(other))?;
        }
        for (place, other) in others() {
            let bytes = self.from[other].recv().map_err(|_| RankError::Gone(other))?;
            let (found, expected) = (bytes.len(), received[place].len());
            if found != expected {
                return Err(RankError::OutOfStep { rank: other, found, expected });
            }
            received[place].copy_from_slice(&bytes);
            missing.heard(other);
        }
        Ok(())
    }
}
