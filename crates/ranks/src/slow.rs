//! Transport with the speed of a network link.

use crate::transport::{Missing, Parcel};
use crate::{RankError, Transport};
use std::time::{Duration, Instant};

/// A transport whose exchanges take at least as long as over a network link, for measuring a cluster on one machine.
#[derive(Debug)]
pub struct Slow<T> {
    transport: T,
    latency: Duration,
    bytes_per_second: f64,
}

impl<T: Transport> Slow<T> {
    /// Wraps `transport` in a link with this latency per exchange and this send bandwidth per rank.
    pub fn new(transport: T, latency: Duration, bytes_per_second: f64) -> Self {
        Self { transport, latency, bytes_per_second }
    }
}

impl<T: Transport> Transport for Slow<T> {
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn count(&self) -> usize {
        self.transport.count()
    }

    fn host(&self) -> String {
        self.transport.host()
    }

    fn beat(&mut self, missing: &Missing) {
        self.transport.beat(missing);
    }

    fn exchange(&mut self, parcels: &mut [Parcel<'_>], missing: &Missing) -> Result<(), RankError> {
        let began = Instant::now();
        self.transport.exchange(parcels, missing)?;
        let bytes: usize = parcels.iter().map(|parcel| parcel.sent.len()).sum();
        let least = self.latency + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        std::thread::sleep(least.saturating_sub(began.elapsed()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ranks, Timeouts, threads};

    #[test]
    fn a_sum_takes_its_bytes_and_its_messages() {
        let began = Instant::now();
        let ranks: Vec<_> = threads(2)
            .into_iter()
            .map(|transport| {
                std::thread::spawn(|| {
                    let slow = Slow::new(transport, Duration::from_millis(10), 1e6);
                    let ranks = Ranks::over(|| Ok(slow)).expect("a rank");
                    let began = Instant::now();
                    let sum = ranks
                        .all_reduce(vec![1.0; 10_000])
                        .and_then(|sum| sum.wait(Timeouts::default()))
                        .expect("a sum");
                    (sum[9_999], began.elapsed())
                })
            })
            .collect();
        for rank in ranks {
            // Two exchanges of 10 ms and of 20 kB at a megabyte a second.
            let (sum, took) = rank.join().expect("no panic");
            assert!(sum == 2.0 && took >= Duration::from_millis(60), "{took:?}");
        }
        assert!(began.elapsed() >= Duration::from_millis(80), "the names of the hosts are exchanged before");
    }
}
