//! Errors of collectives.

use std::fmt;
use std::time::Duration;

/// A rank as messages name it: its number, and its host where that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Number of the rank, from 0.
    pub rank: usize,
    host: String,
}

impl Peer {
    pub(crate) fn new(rank: usize, hosts: &[String]) -> Self {
        Self { rank, host: hosts.get(rank).cloned().unwrap_or_default() }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            "" => write!(f, "rank {}", self.rank),
            host => write!(f, "rank {} on {host}", self.rank),
        }
    }
}

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// No data or heartbeat came from other ranks for too long.
    #[error(
        "rank {rank} has received nothing from {} for {} s: it has died, hangs, or computes for longer than that",
        named(missing), after.as_secs()
    )]
    Silent {
        /// Rank that waited.
        rank: usize,
        /// Ranks that were silent.
        missing: Vec<Peer>,
        /// Time waited.
        after: Duration,
    },
    /// This process was stopped for longer than the others wait.
    #[error("{rank} was stopped for {} s, and the others have ended without it", stopped.as_secs())]
    Stopped {
        /// Rank that was stopped.
        rank: Peer,
        /// Approximate duration.
        stopped: Duration,
    },
    /// Another rank has ended.
    #[error("rank {0} has ended before the others")]
    Gone(usize),
    /// A rank calls another collective than the others, or with another length.
    #[error("rank {rank} sent {found} bytes where {expected} were due: ranks no longer do the same")]
    OutOfStep {
        /// Rank that sent the bytes.
        rank: usize,
        /// Number of bytes received.
        found: usize,
        /// Number of bytes expected.
        expected: usize,
    },
    /// MPI cannot be used.
    #[error("MPI cannot be used: {0}")]
    Mpi(String),
}

fn named(missing: &[Peer]) -> String {
    let names: Vec<String> = missing.iter().map(Peer::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_ranks_are_named() {
        let hosts = ["", "", "", "node7"].map(str::to_owned);
        let error = |missing: &[usize]| {
            let missing = missing.iter().map(|rank| Peer::new(*rank, &hosts)).collect();
            RankError::Silent { rank: 0, missing, after: Duration::from_secs(60) }.to_string()
        };
        assert!(error(&[3]).starts_with("rank 0 has received nothing from rank 3 on node7 for 60 s"));
        assert!(error(&[1, 2]).contains("from rank 1, rank 2 for"));
    }
}
