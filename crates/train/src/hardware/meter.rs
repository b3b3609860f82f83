//! The machine, as a run's lines have it.

use super::{Hardware, HardwareSampler, measured_peak_flops, peak_flops};
use burn::tensor::Device;
use undertone_ops::{Compute, runs_ahead};

/// Samples the machine for a run, and knows what its device could do at most.
#[derive(Debug)]
pub(crate) struct Meter {
    sampler: HardwareSampler,
    device: Device,
    compute: Compute,
    /// Once it has been looked for.
    peak: Option<Option<f64>>,
}

impl Meter {
    /// For a run on `device`.
    pub fn new(device: &Device, compute: Compute) -> Self {
        let sampler = HardwareSampler::start(HardwareSampler::INTERVAL);
        Self { sampler, device: device.clone().inner(), compute, peak: None }
    }

    /// What the machine did since the last call.
    pub fn hardware(&self) -> Option<Hardware> {
        self.sampler.take()
    }

    /// Floating-point operations per second of which a share is a utilisation: of the first GPU in `hardware` by its data
    /// sheet, of a CPU as f32 products run on it, whatever they are computed in.
    pub fn peak_flops(&mut self, hardware: Option<&Hardware>) -> Option<f64> {
        if self.peak.is_none() {
            if !runs_ahead(&self.device) {
                self.peak = Some(measured_peak_flops(&self.device));
            } else if let Some(gpu) = hardware.and_then(|hardware| hardware.gpus.first()) {
                self.peak = Some(peak_flops(&gpu.name, self.compute));
            }
        }
        self.peak.flatten()
    }
}
