//! Measurements that need code of their own: each is a process of `bench gpu`.

use super::bench::{Bench, s};
use super::report::Part;
use crate::bench::device::short;
use crate::bench::names::name;
use crate::bench::step::{Dtype, Size, resolve};
use crate::bench::training::{Trained, Training};
use burn::tensor::Device;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use undertone::ops::{Compute, DeviceSpec, LaunchCounter, Launched};
use undertone::phases::Trainable;
use undertone::train::ProcessGroup;
use undertone_cli::{Failure, say};

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
    /// The rank of an adapter; 0 trains everything
    #[arg(long, default_value = "0")]
    lora: usize,
}

impl ChildArgs {
    fn trained(&self) -> Trained {
        if self.lora > 0 { Trained::Adapters { r: self.lora, count: 1 } } else { Trained::Part(Trainable::All) }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ChildPart {
    Parity,
    Kernels,
}

const PARITY_STEPS: usize = 4;
/// Kernels that have a line of their own.
const KERNELS: usize = 14;

impl Bench<'_> {
    /// The same steps here and on the CPU.
    pub fn parity(&mut self) -> Result<(), Failure> {
        for lora in ["0", "8"] {
            for dtype in ["f32", "bf16"] {
                let device = self.device.to_string();
                let arguments = ["gpu-child", "parity", "--device", &device, "--lora", lora, "--dtype", dtype];
                let what = format!("parity in {dtype}, LoRA of rank {lora}");
                let text = self.our(&what, &arguments.map(str::to_owned), [s(5), s(600)])?;
                let Some(line) = text.as_deref().and_then(Self::line) else { continue };
                let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
                let steps = line["steps"].to_string();
                let trained = if lora == "0" { "everything".to_owned() } else { format!("LoRA {lora}") };
                self.report.row(Part::Parity, vec![trained, text("type"), steps, text("loss"), text("norm")])?;
            }
        }
        Ok(())
    }

    /// The kernels of a step of the first size.
    pub fn kernels(&mut self) -> Result<(), Failure> {
        let Some(size) = self.args.sizes.first().copied() else { return Ok(()) };
        let (device, size_name) = (self.device.to_string(), name(size));
        // What fitted.
        let timed = self.report.row_mut(Part::Steps, std::slice::from_ref(&size_name)).map(|row| row[2].clone());
        let batch = timed.unwrap_or_else(|| self.batch(size).to_string());
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
        ChildPart::Parity => parity(args, &device)?,
        ChildPart::Kernels => json!({ "kernels": kernels(args, &device)? }),
    };
    say!("{line}")
}

fn parity(args: &ChildArgs, device: &Device) -> Result<Value, Failure> {
    let cpu = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let trained = args.trained();
    let compute = args.dtype.compute()?;
    let expected = steps(trained, Compute::F32, &cpu)?;
    let found = steps(trained, compute, device)?;
    // The largest, as text: JSON has no numbers that are not finite.
    let far = |number: fn(&[f64; 2]) -> f64| {
        let pairs = found.iter().zip(&expected).map(|(a, b)| (number(a), number(b)));
        let shares: Vec<f64> = pairs.map(|(a, b)| ((a - b) / b).abs()).collect();
        match shares.iter().all(|share| share.is_finite()) {
            true => format!("{:.0e}", shares.iter().fold(0.0_f64, |most, share| most.max(*share))),
            false => "not finite".to_owned(),
        }
    };
    let computed = compute.on(device).to_string();
    Ok(json!({"type": computed, "steps": PARITY_STEPS, "loss": far(|n| n[0]), "norm": far(|n| n[1])}))
}

/// Loss and length of the gradient of each step.
fn steps(trained: Trained, compute: Compute, device: &Device) -> Result<Vec<[f64; 2]>, Failure> {
    let config = Size::Nano.config();
    let mut training = Training::new(&config, ([2, 16], 1), trained, compute, None, device, ProcessGroup::default())?;
    (0..PARITY_STEPS).map(|_| training.numbers()).collect()
}

/// The kinds of kernels of one step, the longest first.
fn kernels(args: &ChildArgs, device: &Device) -> Result<Vec<Value>, Failure> {
    let compute = args.dtype.compute()?;
    let (config, shape) = (args.size.config(), [args.batch, 32]);
    let mut training =
        Training::new(&config, (shape, 1), args.trained(), compute, None, device, ProcessGroup::default())?;
    for _ in 0..2 {
        training.step()?;
    }
    let nothing = || Failure::BadInput("nothing times kernels on this device: CubeCL does, on cuda and wgpu".into());
    let mut timer = LaunchCounter::start_timing().ok_or_else(nothing)?;
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
