//! `cargo xtask bench hardware`.

use super::numbers::rounded;
use std::time::{Duration, Instant};
use undertone::ops::DeviceSpec;
use undertone::train::{HardwareSampler, measured_peak_flops};
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    /// How long to sample, at the interval that training uses
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let peak = measured_peak_flops(&device);
    let sampler = HardwareSampler::start(HardwareSampler::INTERVAL);
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(args.seconds));
    let (cost, elapsed) = (sampler.cost().map(|cost| cost.as_secs_f64()), started.elapsed().as_secs_f64());
    let line = serde_json::json!({
        "bench": "hardware",
        "seconds": rounded(elapsed, 3),
        "cpu_seconds": cost.map(|cost| rounded(cost, 6)),
        "share_of_a_core": cost.map(|cost| rounded(cost / elapsed, 6)),
        "peak_gflops": peak.map(|peak| rounded(peak / 1e9, 1)),
        "hardware": sampler.take(),
    });
    say!("{line}")
}
