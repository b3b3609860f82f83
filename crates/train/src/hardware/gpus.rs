//! NVIDIA GPUs, through the library of their driver (NVML).

use super::Gpu;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::{Device, Nvml};

/// Value of NVML's mode of a divided card (`NVML_DEVICE_MIG_ENABLE`).
const MIG_ON: u32 = 1;

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

/// Returns name and memory in bytes of the NVIDIA GPU that CUDA gives this index, as far as `CUDA_VISIBLE_DEVICES` tells; of one
/// that is divided (MIG), those of its first part. `None` if there is none.
pub fn gpu(index: usize) -> Option<(String, u64)> {
    let nvml = Nvml::init().ok()?;
    let device = visible(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), index)?.find(&nvml)?;
    let is_divided = device.mig_mode().is_ok_and(|mode| mode.current == MIG_ON);
    let device = if is_divided { device.mig_device_by_index(0).unwrap_or(device) } else { device };
    Some((device.name().ok()?, device.memory_info().ok()?.total))
}

/// Name of a card in `CUDA_VISIBLE_DEVICES`.
#[derive(Debug, PartialEq, Eq)]
enum Card {
    /// Index in the driver.
    Index(u32),
    /// Identifier of a card (`GPU-…`) or of a part of one (`MIG-…`), or its beginning.
    Uuid(String),
}

impl Card {
    fn find<'a>(&self, nvml: &'a Nvml) -> Option<Device<'a>> {
        match self {
            Self::Index(index) => nvml.device_by_index(*index).ok(),
            Self::Uuid(uuid) => nvml.device_by_uuid(uuid.as_str()).ok().or_else(|| {
                let mut all = (0..nvml.device_count().ok()?).filter_map(|index| nvml.device_by_index(index).ok());
                all.find(|device| device.uuid().is_ok_and(|whole| whole.starts_with(uuid.as_str())))
            }),
        }
    }
}

/// Returns the card of CUDA's index, by the value of `CUDA_VISIBLE_DEVICES`, which lists the cards that a process sees. `None` if
/// it lists fewer.
fn visible(list: Option<&str>, index: usize) -> Option<Card> {
    let Some(list) = list else { return u32::try_from(index).ok().map(Card::Index) };
    let card = list.split(',').nth(index)?.trim();
    match card.parse() {
        Ok(index) => Some(Card::Index(index)),
        Err(_) => ["GPU-", "MIG-"].iter().any(|kind| card.starts_with(kind)).then(|| Card::Uuid(card.to_owned())),
    }
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

#[cfg(test)]
mod tests {
    use super::{Card, visible};

    #[test]
    fn the_card_is_the_one_that_cuda_sees() {
        assert_eq!(visible(None, 1), Some(Card::Index(1)));
        assert_eq!(visible(Some("3, 1"), 0), Some(Card::Index(3)));
        assert_eq!(visible(Some("3, 1"), 1), Some(Card::Index(1)));
        for (list, index) in [("3,1", 2), ("", 0), ("-1", 0), ("none", 0)] {
            assert_eq!(visible(Some(list), index), None, "{list}");
        }
        assert_eq!(visible(Some("0,GPU-8932f937"), 1), Some(Card::Uuid("GPU-8932f937".into())));
        assert_eq!(visible(Some("MIG-b1b0"), 0), Some(Card::Uuid("MIG-b1b0".into())));
    }
}
