//! Which kernels an accelerator was given.

use burn::tensor::Device;
use std::collections::BTreeMap;

/// Counts the kernels that CubeCL launches in this process, on all devices, for as long as it lives.
pub struct LaunchCounter(Counter);

impl LaunchCounter {
    /// Begins to count; nothing in a build without CubeCL. Only one counts at a time: the last that was started.
    pub fn start() -> Option<Self> {
        Counter::start().map(Self)
    }

    /// How many there were since the last call, once `device` has done its work, by the names that kernels give themselves.
    pub fn take(&mut self, device: &Device) -> BTreeMap<&'static str, usize> {
        // What failed is found where it is read.
        let _ = device.sync();
        self.0.take()
    }

    /// As [`take`](Self::take), of all kernels together.
    pub fn count(&mut self, device: &Device) -> usize {
        self.take(device).values().sum()
    }
}

#[cfg(feature = "cube")]
use observed::Counter;

#[cfg(feature = "cube")]
mod observed {
    use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};

    pub struct Counter {
        counts: Arc<Counts>,
        _observation: LaunchObservation,
    }

    #[derive(Default)]
    struct Counts(Mutex<BTreeMap<&'static str, usize>>);

    impl LaunchObserver for Counts {
        fn launched(&self, kernel: &'static str) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kernel).or_default() += 1;
        }
    }

    impl Counter {
        pub fn start() -> Option<Self> {
            let counts = Arc::<Counts>::default();
            Some(Self { _observation: LaunchObservation::new(counts.clone()), counts })
        }

        pub fn take(&self) -> BTreeMap<&'static str, usize> {
            std::mem::take(&mut *self.counts.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

#[cfg(not(feature = "cube"))]
enum Counter {}

#[cfg(not(feature = "cube"))]
impl Counter {
    fn start() -> Option<Self> {
        None
    }

    fn take(&self) -> BTreeMap<&'static str, usize> {
        match *self {}
    }
}
