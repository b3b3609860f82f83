//! Injected faults.

use crate::abi::{ECC_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_FAILED, Status};
use std::time::Duration;

/// Number of launches that succeed after a failed one before the driver reports it: work is queued, and errors arrive
/// late.
const UNNOTICED_LAUNCHES: u64 = 20;

/// Fault that `FAKECUDA_FAULT` injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `out-of-memory@N`: allocation N and all after it fail.
    OutOfMemory(u64),
    /// `illegal-address@N`: launch N accesses an invalid address.
    IllegalAddress(u64),
    /// `launch-failed@N`: launch N ends by a hardware fault.
    LaunchFailed(u64),
    /// `lost@N`: the card is lost with launch N.
    Lost(u64),
    /// `slow-copy@N`: every copy to the device blocks the host for N milliseconds.
    SlowCopy(u64),
}

impl Fault {
    /// Parses a value of `FAKECUDA_FAULT`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.split_once('@')?;
        let number = number.parse().ok()?;
        Some(match kind {
            "out-of-memory" => Self::OutOfMemory(number),
            "illegal-address" => Self::IllegalAddress(number),
            "launch-failed" => Self::LaunchFailed(number),
            "lost" => Self::Lost(number),
            "slow-copy" => Self::SlowCopy(number),
            _ => return None,
        })
    }

    /// Whether allocation `number`, counted from 1, fails.
    pub(crate) fn refuses_allocation(self, number: u64) -> bool {
        matches!(self, Self::OutOfMemory(from) if number >= from)
    }

    /// Time for which a copy to the device blocks the host.
    pub(crate) fn copy_delay(self) -> Option<Duration> {
        if let Self::SlowCopy(milliseconds) = self { Some(Duration::from_millis(milliseconds)) } else { None }
    }

    /// Returns the error of every call after `launches` launches; a call that `waits` for the device reports it at
    /// once.
    pub(crate) fn poison(self, launches: u64, waits: bool) -> Option<Status> {
        let (at, status) = match self {
            Self::IllegalAddress(at) => (at, ILLEGAL_ADDRESS),
            Self::LaunchFailed(at) => (at, LAUNCH_FAILED),
            Self::Lost(at) => (at, ECC_UNCORRECTABLE),
            Self::OutOfMemory(_) | Self::SlowCopy(_) => return None,
        };
        let known_from = if waits { at } else { at + UNNOTICED_LAUNCHES };
        (launches >= known_from).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_anything_else_is_none() {
        assert_eq!(Fault::parse("out-of-memory@3"), Some(Fault::OutOfMemory(3)));
        assert_eq!(Fault::parse("slow-copy@20").and_then(Fault::copy_delay), Some(Duration::from_millis(20)));
        for odd in ["", "lost", "lost@", "lost@x", "fire@3"] {
            assert_eq!(Fault::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_error_of_the_device_is_heard_of_late_and_stays() {
        let fault = Fault::IllegalAddress(10);
        let known = |launches, waits| fault.poison(launches, waits);
        assert_eq!([known(9, true), known(10, false), known(29, false)], [None; 3]);
        assert_eq!([known(10, true), known(30, false), known(99, true)], [Some(ILLEGAL_ADDRESS); 3]);
    }
}
