//! Hardware measurements for a run's logs.

use super::{Hardware, HardwareSampler, measured_peak_flops, peak_flops};
use burn::tensor::Device;
use undertone_ops::{Compute, runs_ahead};

/// Samples the machine for a run, and holds the peak of its device.
#[derive(Debug)]
pub(crate) struct Meter {
    sampler: HardwareSampler,
    device: Device,
    compute: Compute,
    /// Peak, once it has been determined.
    peak: Option<Option<f64>>,
}

impl Meter {
    /// Starts sampling for a run on `device`.
    pub fn new(device: &Device, compute: Compute) -> Self {
        let sampler = HardwareSampler::start(HardwareSampler::INTERVAL);
        Self { sampler, device: device.clone().inner(), compute, peak: None }
    }

    /// Load of the machine since the last call.
    pub fn hardware(&self) -> Option<Hardware> {
        self.sampler.take()
    }

    /// Returns the peak in floating-point operations per second, the reference of MFU: for the first GPU in `hardware`
    /// that of its data sheet, for a CPU that of measured f32 products, whatever type is used.
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
