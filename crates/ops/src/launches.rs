//! Counters of kernel launches.

use burn::tensor::Device;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counter of the kernels that CubeCL launches in this process, on all devices, during its lifetime.
pub struct LaunchCounter(Counter);

/// Launches of kernels of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// Number of launches.
    pub count: usize,
    /// Total time; zero if they were only counted.
    pub time: Duration,
}

impl LaunchCounter {
    /// Begins to count; `None` in a build without CubeCL. Only one counter is active at a time: the one started last.
    pub fn start() -> Option<Self> {
        Counter::new(false).map(Self)
    }

    /// Begins to count and time. Each launch is waited for, so the sum exceeds the time that the kernels take together.
    pub fn start_timing() -> Option<Self> {
        Counter::new(true).map(Self)
    }

    /// Waits for `device` and returns the launches since the last call, by kernel name.
    pub fn take(&mut self, device: &Device) -> BTreeMap<&'static str, Launched> {
        // A failure of the device is reported by the next read.
        let _ = device.sync();
        self.0.take()
    }

    /// Waits for `device` and returns the number of launches since the last call, of all kernels together.
    pub fn count(&mut self, device: &Device) -> usize {
        self.take(device).values().map(|launched| launched.count).sum()
    }
}

#[cfg(feature = "cube")]
use observed::Counter;

#[cfg(feature = "cube")]
mod observed {
    use super::Launched;
    use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver, TimingMethod, TimingRequest};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    pub struct Counter {
        counts: Arc<Counts>,
        _observation: LaunchObservation,
    }

    struct Counts {
        kernels: Mutex<BTreeMap<&'static str, Launched>>,
        timing: TimingRequest,
    }

    impl Counts {
        fn change(&self, kernel: &'static str, change: impl FnOnce(&mut Launched)) {
            change(self.kernels.lock().unwrap_or_else(PoisonError::into_inner).entry(kernel).or_default());
        }
    }

    impl LaunchObserver for Counts {
        fn launched(&self, kernel: &'static str) {
            self.change(kernel, |launched| launched.count += 1);
        }

        fn timing(&self) -> TimingRequest {
            self.timing
        }

        fn timed(&self, kernel: &'static str, duration: Duration, _: TimingMethod) {
            self.change(kernel, |launched| launched.time += duration);
        }
    }

    impl Counter {
        pub fn new(timed: bool) -> Option<Self> {
            let timing = if timed { TimingRequest::Resolved } else { TimingRequest::None };
            let counts = Arc::new(Counts { kernels: Mutex::default(), timing });
            Some(Self { _observation: LaunchObservation::new(counts.clone()), counts })
        }

        pub fn take(&self) -> BTreeMap<&'static str, Launched> {
            std::mem::take(&mut *self.counts.kernels.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

#[cfg(not(feature = "cube"))]
enum Counter {}

#[cfg(not(feature = "cube"))]
impl Counter {
    fn new(_timed: bool) -> Option<Self> {
        None
    }

    fn take(&self) -> BTreeMap<&'static str, Launched> {
        match *self {}
    }
}

#[cfg(all(test, feature = "cube"))]
mod tests {
    use super::*;
    use crate::testing::device;
    use burn::tensor::Tensor;

    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn kernels_are_counted_and_timed() {
        let product = || Tensor::<2>::ones([64, 64], &device()).matmul(Tensor::ones([64, 64], &device()));
        let mut timer = LaunchCounter::start_timing().expect("CubeCL");
        let y = product();
        let timed = timer.take(&device());
        drop(y);
        assert!(timed.values().any(|kernel| kernel.count > 0 && kernel.time > Duration::ZERO), "{timed:?}");
        drop(timer);
        let mut counter = LaunchCounter::start().expect("CubeCL");
        let y = product();
        assert!(counter.count(&device()) > 0);
        drop(y);
    }
}
