//! What a machine does while a run trains on it, and what it could do at most.

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

/// What the processors and their memories did over a while. What the machine does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// How busy the machine was, as a share of all its cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// How busy this process kept it, as a share of all cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_cpu: Option<f64>,
    /// The most memory that the process had resident, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// All memory there is for the process: the machine's, or what its container may have of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// The least that was left of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    /// The GPUs that the process computes on, or all of the machine's where the driver does not tell whose they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// What a GPU did over a while.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// What its driver calls it.
    pub name: String,
    /// The share of the time in which it computed anything at all, however little of it was busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// The most of its memory that was taken, by whomever, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// All of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Electrical power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// How warm it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
}

impl Hardware {
    /// The mean of several, of memory the largest use; nothing of nothing. GPUs are those of the latest.
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

    /// Whether nothing is known.
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
            // The first reading of a counter says nothing, and whose the GPUs are is not known yet.
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
