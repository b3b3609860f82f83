//! Measurements that need code of their own: each is a process of `bench gpu`.

use super::bench::{Bench, s};
use super::report::Part;
use crate::bench::device::short;
use crate::bench::names::name;
use crate::bench::step::{Dtype, Size, resolve};
use crate::bench::training::{Trained, Training};
use crate::failure::Failure;
use burn::tensor::Device;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use undertone::ops::{Compute, DeviceSpec, LaunchTimer, Launched};
use undertone::phases::Trainable;
use undertone::train::Team;

#[derive(clap::Args)]
pub struct ChildArgs {
    part: ChildPart,
    #[arg(long)]
    device: String,
    #[arg(long, default_value = "nano")]
    size: Size,
    #[arg(long, default_value = "2")]
    batch: usize,
    #[arg(long, default_value = "bf16")]
    dtype: Dtype,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ChildPart {
    Parity,
    Kernels,
}

const ALL: Trained = Trained::Part(Trainable::All);
const LORA: Trained = Trained::Adapters { r: 8, count: 1 };
const PARITY_STEPS: usize = 4;
/// Kernels that have a line of their own.
const KERNELS: usize = 14;

impl Bench<'_> {
    /// The same steps here and on the CPU.
    pub fn parity(&mut self) -> Result<(), Failure> {
        let device = self.device.to_string();
        let arguments = ["gpu-child", "parity", "--device", &device].map(str::to_owned);
        let text = self.our("parity", &arguments, [s(5), s(600)])?;
        let Some(line) = text.as_deref().and_then(Self::line) else { return Ok(()) };
        for row in line["rows"].as_array().into_iter().flatten() {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let share = |key: &str| row[key].as_f64().map_or("?".to_owned(), |share| format!("{share:.0e}"));
            let steps = row["steps"].to_string();
            self.report.row(Part::Parity, vec![text("trained"), text("type"), steps, share("loss"), share("norm")])?;
        }
        Ok(())
    }

    /// The kernels of a step of the first size.
    pub fn kernels(&mut self) -> Result<(), Failure> {
        let Some(size) = self.args.sizes.first().copied() else { return Ok(()) };
        let (device, size_name, batch) = (self.device.to_string(), name(size), self.batch(size).to_string());
        let arguments = ["gpu-child", "kernels", "--device", &device, "--size", &size_name, "--batch", &batch];
        let text = self.our(&format!("kernels of {size_name}"), &arguments.map(str::to_owned), [s(10), s(600)])?;
        let Some(line) = text.as_deref().and_then(Self::line) else { return Ok(()) };
        let kernels: Vec<Value> = line["kernels"].as_array().cloned().unwrap_or_default();
        let all: f64 = kernels.iter().filter_map(|kernel| kernel["seconds"].as_f64()).sum();
        let (listed, others) = kernels.split_at(kernels.len().min(KERNELS));
        let sum = |key: &str| others.iter().filter_map(|kernel| kernel[key].as_f64()).sum::<f64>();
        let rest = json!({"kernel": format!("{} others", others.len()), "launches": sum("launches"), "seconds": sum("seconds")});
        for kernel in listed.iter().chain((!others.is_empty()).then_some(&rest)) {
            let [launches, seconds] = ["launches", "seconds"].map(|key| kernel[key].as_f64().unwrap_or(f64::NAN));
            let title = kernel["kernel"].as_str().unwrap_or_default();
            self.report.row(
                Part::Kernels,
                vec![
                    format!("`{title}`"),
                    format!("{launches}"),
                    format!("{:.2}", 1e3 * seconds),
                    format!("{:.1} %", 100.0 * seconds / all),
                ],
            )?;
        }
        Ok(())
    }
}

/// One of the measurements; a line of JSON.
pub fn run_child(args: &ChildArgs) -> Result<(), Failure> {
    let (_, device) = resolve(&args.device)?;
    let line = match args.part {
        ChildPart::Parity => json!({ "rows": parity(&device)? }),
        ChildPart::Kernels => json!({ "kernels": kernels(args, &device)? }),
    };
    println!("{line}");
    Ok(())
}

fn parity(device: &Device) -> Result<Vec<Value>, Failure> {
    let cpu = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let mut rows = Vec::new();
    for (what, trained) in [("everything", ALL), ("LoRA", LORA)] {
        let expected = steps(trained, Compute::F32, &cpu)?;
        for compute in [Compute::F32, Compute::Bf16] {
            let found = steps(trained, compute, device)?;
            let far = |number: fn(&[f64; 2]) -> f64| {
                let pairs = found.iter().zip(&expected).map(|(a, b)| (number(a), number(b)));
                // `max` would pass over what is no number.
                let shares = pairs.map(|(a, b)| ((a - b) / b).abs());
                shares.fold(0.0, |most, share| if share.is_nan() { f64::INFINITY } else { share.max(most) })
            };
            let computed = compute.on(device).to_string();
            rows.push(json!({"trained": what, "type": computed, "steps": PARITY_STEPS, "loss": far(|n| n[0]), "norm": far(|n| n[1])}));
        }
    }
    Ok(rows)
}

/// Loss and length of the gradient of each step.
fn steps(trained: Trained, compute: Compute, device: &Device) -> Result<Vec<[f64; 2]>, Failure> {
    let config = Size::Nano.config();
    let mut training = Training::new(&config, ([2, 16], 1), trained, compute, None, device, Team::default())?;
    (0..PARITY_STEPS).map(|_| training.numbers()).collect()
}

/// The kinds of kernels of one step, the longest first.
fn kernels(args: &ChildArgs, device: &Device) -> Result<Vec<Value>, Failure> {
    let compute = args.dtype.compute()?;
    let (config, shape) = (args.size.config(), [args.batch, 32]);
    let mut training = Training::new(&config, (shape, 1), ALL, compute, None, device, Team::default())?;
    for _ in 0..2 {
        training.step()?;
    }
    let nothing = || {
        Failure::BadInput("nothing times kernels in this build: CubeCL does, with the features cuda and wgpu".into())
    };
    let mut timer = LaunchTimer::start().ok_or_else(nothing)?;
    timer.take(device);
    training.step()?;
    let mut kinds = BTreeMap::<String, Launched>::new();
    for (kernel, launched) in timer.take(device) {
        let kind = kinds.entry(short(kernel)).or_default();
        kind.count += launched.count;
        kind.time += launched.time;
    }
    if kinds.is_empty() {
        return Err(nothing());
    }
    let mut kinds: Vec<(String, Launched)> = kinds.into_iter().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.1.time));
    let line = |(kernel, launched): (String, Launched)| json!({"kernel": kernel, "launches": launched.count, "seconds": launched.time.as_secs_f64()});
    Ok(kinds.into_iter().map(line).collect())
}
