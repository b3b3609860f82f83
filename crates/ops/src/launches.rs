//! How many kernels an accelerator was given.

use burn::tensor::Device;
use burn_cubecl::cubecl::config::profiling::ProfilingLogLevel;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Counts the kernels that CubeCL launches in this process, on all devices, by a log that CubeCL writes.
#[derive(Debug)]
pub struct LaunchCounter {
    log: PathBuf,
    counted: usize,
}

impl LaunchCounter {
    /// Begins to write the log. Nothing where CubeCL has already read its configuration: that is when a device is first
    /// used.
    pub fn start(log: &Path) -> Option<Self> {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.profiling.logger.level = ProfilingLogLevel::Minimal;
        config.profiling.logger.file = Some(log.to_owned());
        CubeClRuntimeConfig::try_set(config).then(|| Self { log: log.to_owned(), counted: 0 })
    }

    /// How many there were since the last call, once `device` has done its work.
    pub fn count(&mut self, device: &Device) -> usize {
        // What failed is found where it is read.
        let _ = device.sync();
        let lines = || std::fs::read_to_string(&self.log).map_or(0, |text| text.lines().count());
        let mut total = lines();
        // A thread writes the log. It has long been idle when nothing comes for so long.
        loop {
            std::thread::sleep(Duration::from_millis(30));
            match lines() {
                now if now == total => break,
                now => total = now,
            }
        }
        let new = total - self.counted;
        self.counted = total;
        new
    }
}
