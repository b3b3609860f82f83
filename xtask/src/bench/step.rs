//! `cargo xtask bench step`: the training step that the Learner runs, timed on a random model and a random batch.

use super::names::name;
use super::numbers::{median, rounded};
use super::training::{Trained, Training};
use burn::tensor::Device;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::time::Instant;
use undertone::model::whisper::WhisperConfig;
use undertone::ops::{Compute, DeviceSpec, Kernels, set_kernels};
use undertone::phases::Trainable;
use undertone::train::{ProcessGroup, peak_bytes};
use undertone_cli::{Failure, say};

/// What is measured. A peer's script has the same options, but for `--accumulation`, `--kernels` and `--checkpointing`.
#[derive(Clone, clap::Args)]
pub struct Workload {
    /// Whose dimensions
    #[arg(long, default_value = "tiny")]
    size: Size,
    /// Clips of 30 s
    #[arg(long, default_value = "4", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    /// In how many batches the clips of a step are computed; on the CPU they are computed side by side
    #[arg(long, default_value = "1", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub accumulation: usize,
    /// Tokens of each clip
    #[arg(long, default_value = "32", value_parser = RangedU64ValueParser::<usize>::new().range(1..=448))]
    tokens: usize,
    /// What the forward and backward pass compute in; parameters and optimizer stay in f32
    #[arg(long, default_value = "f32")]
    pub dtype: Dtype,
    /// cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Rank of LoRA adapters (q, k, v, out_proj, fc1, fc2; alpha twice the rank); 0 trains the model itself
    #[arg(long, default_value = "0")]
    lora: usize,
    /// Adapters in the bank; above 1, each clip of a batch goes through another one
    #[arg(long, default_value = "1", requires = "lora", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    adapters: usize,
    /// Steps that count, after two that warm up
    #[arg(long, default_value = "5", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    steps: usize,
    /// What is not trained; everything is, if not given
    #[arg(long, conflicts_with = "lora")]
    freeze: Option<Part>,
    /// The device's own kernels, or operations composed of Burn's
    #[arg(long, default_value = "auto")]
    pub kernels: KernelChoice,
    /// How many blocks run again together in the backward pass, of which only the input is kept; 0 keeps everything
    #[arg(long, default_value = "0")]
    pub checkpointing: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Size {
    /// As the bundled whisper-nano-cw
    Nano,
    Tiny,
    Base,
    Small,
    Medium,
    LargeV3,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dtype {
    F32,
    Bf16,
    F16,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Part {
    Encoder,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KernelChoice {
    Auto,
    Composed,
}

const WARM_UPS: usize = 2;

impl Workload {
    /// The options that say the same to a child process, ours or the peer's.
    pub fn options(&self, dtype: Dtype, device: &str) -> Vec<String> {
        let given = [
            ("--size", name(self.size)),
            ("--batch", self.batch.to_string()),
            ("--tokens", self.tokens.to_string()),
            ("--steps", self.steps.to_string()),
            ("--dtype", name(dtype)),
            ("--device", device.to_owned()),
        ];
        let freeze = self.freeze.map(|part| ("--freeze", name(part)));
        let lora = (self.lora > 0).then(|| ("--lora", self.lora.to_string()));
        let adapters = (self.adapters > 1).then(|| ("--adapters", self.adapters.to_string()));
        let options = given.into_iter().chain(freeze).chain(lora).chain(adapters);
        options.flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// The same with so many blocks that run again together.
    pub fn checkpointed(&self, every: usize) -> Self {
        Self { checkpointing: every, ..self.clone() }
    }

    /// `[clips, tokens]` of each batch of a step, and how many there are.
    fn split(&self) -> Result<([usize; 2], usize), Failure> {
        let parts = self.accumulation;
        if !self.batch.is_multiple_of(parts) {
            let clips = self.batch;
            return Err(Failure::BadInput(format!(
                "{clips} clips are not {parts} batches of the same size: choose an --accumulation that divides --batch"
            )));
        }
        Ok(([self.batch / parts, self.tokens], parts))
    }

    fn trained(&self) -> Trained {
        match self.freeze {
            _ if self.lora > 0 => Trained::Adapters { r: self.lora, count: self.adapters },
            None => Trained::Part(Trainable::All),
            Some(Part::Encoder) => Trained::Part(Trainable::Decoder),
        }
    }
}

impl Size {
    pub fn config(self) -> WhisperConfig {
        let (d_model, layers, heads, num_mel_bins, vocab_size) = match self {
            Self::Nano => {
                return WhisperConfig {
                    vocab_size: 56,
                    max_source_positions: 400,
                    max_target_positions: 128,
                    ..WhisperConfig::new(128, 512, 4, [4, 2])
                };
            }
            Self::Tiny => (384, 4, 6, 80, 51865),
            Self::Base => (512, 6, 8, 80, 51865),
            Self::Small => (768, 12, 12, 80, 51865),
            Self::Medium => (1024, 24, 16, 80, 51865),
            Self::LargeV3 => (1280, 32, 20, 128, 51866),
        };
        WhisperConfig { num_mel_bins, vocab_size, ..WhisperConfig::new(d_model, 4 * d_model, heads, [layers, layers]) }
    }
}

impl Dtype {
    pub fn compute(self) -> Result<Compute, Failure> {
        match self {
            Self::F32 => Ok(Compute::F32),
            Self::Bf16 => Ok(Compute::Bf16),
            Self::F16 => Err(Failure::BadInput(
                "`--dtype f16` needs a scaled loss, which this measurement does not have: use bf16 or f32".into(),
            )),
        }
    }
}

pub fn run(workload: &Workload) -> Result<(), Failure> {
    let compute = workload.dtype.compute()?;
    let (spec, device) = resolve(&workload.device)?;
    if workload.kernels == KernelChoice::Composed {
        set_kernels(Kernels::Composed);
    }
    let (shape, parts) = workload.split()?;
    let checkpointing = NonZeroUsize::new(workload.checkpointing);
    let (config, trained) = (workload.size.config(), workload.trained());
    let mut training =
        Training::new(&config, (shape, parts), trained, compute, checkpointing, &device, ProcessGroup::default())?;
    let (mut seconds, mut loss) = (Vec::new(), f64::NAN);
    for _ in 0..WARM_UPS + workload.steps {
        wait(&device)?;
        let started = Instant::now();
        loss = training.step()?;
        wait(&device)?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    let mut line = report(workload, spec, median(&seconds[WARM_UPS..]), peak_bytes(&device), loss);
    line["forward_flops"] = json!(training.forward_flops(config.max_frames(), workload.tokens) * workload.batch as f64);
    line["trainable"] = json!(training.parameters());
    say!("{line}")
}

/// The device, and what it is called: `auto` would not say what was measured.
pub fn resolve(name: &str) -> Result<(DeviceSpec, Device), Failure> {
    let given: DeviceSpec = name.parse().map_err(Failure::bad_input)?;
    let device = given.resolve().map_err(Failure::bad_input)?;
    Ok((DeviceSpec::of(&device).unwrap_or(given), device))
}

/// Returns when the device has done all it was told to.
fn wait(device: &Device) -> Result<(), Failure> {
    device.sync().map_err(|e| Failure::Machine(format!("the device failed during a step: {e}")))
}

fn report(workload: &Workload, spec: DeviceSpec, seconds: f64, peak_bytes: Option<u64>, loss: f64) -> Value {
    json!({
        "peer": concat!("undertone ", env!("CARGO_PKG_VERSION")),
        "size": name(workload.size),
        "batch": workload.batch,
        "accumulation": workload.accumulation,
        "tokens": workload.tokens,
        "dtype": name(workload.dtype),
        "lora": workload.lora,
        "adapters": workload.adapters,
        "device": spec.to_string(),
        "seconds_per_step": rounded(seconds, 4),
        "samples_per_second": rounded(workload.batch as f64 / seconds, 3),
        "peak_mib": peak_bytes.map(|bytes| (bytes as f64 / 1_048_576.0).round() as u64),
        "loss": rounded(loss, 4),
        "threads": rayon::current_num_threads(),
        "frozen": workload.freeze.map(name),
        "kernels": name(workload.kernels),
        "checkpointing": workload.checkpointing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_device_is_named() {
        let (spec, device) = resolve("auto").ok().expect("some device");
        assert_ne!(spec, DeviceSpec::Auto);
        assert_eq!(spec.resolve().expect("the same device"), device);
    }
}
