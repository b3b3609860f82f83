//! Why ranks cannot go on together.

use std::time::Duration;

/// Why ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// Others have said nothing for too long.
    #[error(
        "rank {rank} has heard nothing of {} for {} s: it has died, hangs, or computes for longer than that",
        named(missing), after.as_secs()
    )]
    Silent {
        /// Who waited.
        rank: usize,
        /// Of whom nothing was heard.
        missing: Vec<usize>,
        /// How long.
        after: Duration,
    },
    /// Another rank has left.
    #[error("rank {0} has ended before the others")]
    Gone(usize),
    /// A rank asks for something else than the others.
    #[error("rank {rank} sent {found} bytes where {expected} were due: ranks no longer do the same")]
    OutOfStep {
        /// Who sent them.
        rank: usize,
        /// How many came.
        found: usize,
        /// How many were due.
        expected: usize,
    },
    /// MPI cannot be used.
    #[error("MPI cannot be used: {0}")]
    Mpi(String),
}

fn named(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_ranks_are_named() {
        let error = |missing| RankError::Silent { rank: 0, missing, after: Duration::from_secs(60) }.to_string();
        assert!(error(vec![3]).starts_with("rank 0 has heard nothing of rank 3 for 60 s"));
        assert!(error(vec![1, 2]).contains("of ranks 1, 2 for"));
    }
}
