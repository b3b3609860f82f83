//! Load of a machine during training, and the peak of its processors.

mod gpus;
mod machine;
mod meter;
mod peak;
mod sampler;

pub use gpus::{gpu, gpu_driver};
pub(crate) use meter::Meter;
pub use peak::{measured_peak_flops, peak_flops};
pub use sampler::HardwareSampler;

use serde::{Deserialize, Serialize};

/// Load and memory of the processors over some time. Values that the machine does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// Load of the machine, as a share of all its cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Load by this process, as a share of all cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_cpu: Option<f64>,
    /// Maximum resident memory of the process, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Total memory for the process in bytes: the machine's, or the limit of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Minimum of the memory that was available, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    /// GPUs that the process computes on, or all GPUs if the driver does not report which it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// Load and memory of a GPU over some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Name by its driver.
    pub name: String,
    /// Share of the time in which any kernel ran, even if it used little of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Maximum of its memory in use, by any process, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Total memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Electrical power in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Temperature in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
}

impl Hardware {
    /// Combines samples: the mean, and for memory the largest use. `None` without samples. GPUs are those of the latest
    /// sample.
    pub fn mean<'a>(samples: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let samples: Vec<&Self> = samples.into_iter().collect();
        let latest = samples.last()?;
        let gpus = (0..latest.gpus.len()).map(|index| {
            let name = latest.gpus[index].name.as_str();
            let same = samples.iter().filter(|s| s.gpus.len() == latest.gpus.len());
            Gpu::mean(name, &same.map(|s| &s.gpus[index]).filter(|gpu| gpu.name == name).collect::<Vec<_>>())
        });
        Some(Self {
            cpu: mean(samples.iter().filter_map(|s| s.cpu)),
            process_cpu: mean(samples.iter().filter_map(|s| s.process_cpu)),
            memory_bytes: samples.iter().filter_map(|s| s.memory_bytes).max(),
            memory_total_bytes: samples.iter().filter_map(|s| s.memory_total_bytes).max(),
            memory_available_bytes: samples.iter().filter_map(|s| s.memory_available_bytes).min(),
            gpus: gpus.collect(),
        })
    }

    /// Whether there is no value.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Gpu {
    fn mean(name: &str, samples: &[&Self]) -> Self {
        Self {
            name: name.to_owned(),
            utilization: mean(samples.iter().filter_map(|s| s.utilization)),
            memory_bytes: samples.iter().filter_map(|s| s.memory_bytes).max(),
            memory_total_bytes: samples.iter().filter_map(|s| s.memory_total_bytes).max(),
            power_watts: mean(samples.iter().filter_map(|s| s.power_watts)),
            temperature_celsius: mean(samples.iter().filter_map(|s| s.temperature_celsius)),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, utilization: f64, memory: u64) -> Gpu {
        Gpu { name: name.into(), utilization: Some(utilization), memory_bytes: Some(memory), ..Gpu::default() }
    }

    #[test]
    fn shares_are_averaged_and_memory_is_the_most_that_was_used() {
        let sample = |cpu, memory, available, gpus| Hardware {
            cpu,
            memory_bytes: Some(memory),
            memory_available_bytes: Some(available),
            gpus,
            ..Hardware::default()
        };
        let samples = [
            // The first reading of a counter gives no share, and which GPUs the process uses is not known yet.
            sample(None, 3, 9, vec![gpu("b", 1.0, 9), gpu("a", 1.0, 9)]),
            sample(Some(0.25), 7, 5, vec![gpu("a", 0.5, 4)]),
            sample(Some(0.75), 4, 6, vec![gpu("a", 0.75, 3)]),
        ];
        assert_eq!(Hardware::mean(&samples), Some(sample(Some(0.5), 7, 5, vec![gpu("a", 0.625, 4)])));
        assert_eq!(Hardware::mean([]), None);
    }

    #[test]
    fn what_is_not_known_is_not_written() {
        assert_eq!(serde_json::to_string(&Hardware::default()).expect("JSON"), "{}");
        let known = Hardware { cpu: Some(0.5), gpus: vec![gpu("NVIDIA L4", 0.5, 1)], ..Hardware::default() };
        let json = serde_json::to_string(&known).expect("JSON");
        assert_eq!(json, r#"{"cpu":0.5,"gpus":[{"name":"NVIDIA L4","utilization":0.5,"memory_bytes":1}]}"#);
        assert_eq!(serde_json::from_str::<Hardware>(&json).expect("read"), known);
    }
}
