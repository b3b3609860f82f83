//! NVIDIA GPUs, through the library of their driver (NVML).

use super::Gpu;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::{Device, Nvml};

/// The driver's library, if there is one.
#[derive(Debug)]
pub(super) struct Gpus {
    nvml: Option<Nvml>,
    process: u32,
}

impl Gpus {
    /// Loads the library. Without it there are no GPUs.
    pub fn open() -> Self {
        Self { nvml: Nvml::init().ok(), process: std::process::id() }
    }

    /// Samples the GPUs that this process computes on. It samples all GPUs as long as the driver lists none for this
    /// process: before the first kernel, or in a container, where the driver sees other process numbers.
    pub fn sample(&self) -> Vec<Gpu> {
        let Some(nvml) = &self.nvml else { return Vec::new() };
        let count = nvml.device_count().unwrap_or(0);
        let all: Vec<Device> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
        let own: Vec<&Device> = all.iter().filter(|device| self.computes_on(device)).collect();
        if own.is_empty() { all.iter().map(read).collect() } else { own.into_iter().map(read).collect() }
    }

    fn computes_on(&self, device: &Device) -> bool {
        device.running_compute_processes().is_ok_and(|all| all.iter().any(|process| process.pid == self.process))
    }
}

/// Returns name and memory in bytes of the NVIDIA GPU with this index in its driver. `None` if there is none.
pub fn gpu(index: usize) -> Option<(String, u64)> {
    let nvml = Nvml::init().ok()?;
    let device = nvml.device_by_index(u32::try_from(index).ok()?).ok()?;
    Some((device.name().ok()?, device.memory_info().ok()?.total))
}

/// Returns the version of NVIDIA's driver, such as `535.161.08`. `None` if there is none.
pub fn gpu_driver() -> Option<String> {
    Nvml::init().ok()?.sys_driver_version().ok()
}

/// Reads the sensors of a card. A card does not have every sensor, and what it lacks is left out.
fn read(device: &Device) -> Gpu {
    let memory = device.memory_info().ok();
    Gpu {
        name: device.name().unwrap_or_default(),
        utilization: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
        memory_bytes: memory.as_ref().map(|memory| memory.used),
        memory_total_bytes: memory.map(|memory| memory.total),
        power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
    }
}
