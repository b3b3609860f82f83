//! `cargo xtask bench step`: the training step that the Learner runs, timed on a random model and a random batch.

use super::names::name;
use super::numbers::{median, rounded};
use crate::failure::Failure;
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::time::Instant;
use undertone::model::lora::{Gates, LoraConfig, adapt};
use undertone::model::whisper::{Whisper, WhisperConfig};
use undertone::ops::{
    DeviceSpec, Kernels, MatmulPrecision, linear_cross_entropy, runs_on_host, set_kernels, set_matmul_precision,
};
use undertone::phases::Trainable;
use undertone::store::set_trainable;
use undertone::train::{GradientSum, Optimizer, OptimizerConfig, peak_memory_bytes};

/// What is measured. A peer's script has the same options, but for `--kernels` and `--checkpointing`.
#[derive(Clone, clap::Args)]
pub struct Workload {
    /// Whose dimensions
    #[arg(long, default_value = "tiny")]
    size: Size,
    /// Clips of 30 s
    #[arg(long, default_value = "4", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
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
const LEARNING_RATE: f64 = 1e-4;

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

    fn trained(&self) -> Trained {
        match self.freeze {
            _ if self.lora > 0 => Trained::Adapters { r: self.lora, count: self.adapters },
            None => Trained::Part(Trainable::All),
            Some(Part::Encoder) => Trained::Part(Trainable::Decoder),
        }
    }
}

/// What receives gradients.
#[derive(Clone, Copy)]
enum Trained {
    Part(Trainable),
    Adapters { r: usize, count: usize },
}

/// Adapters on every linear map of every block of a model that is otherwise frozen.
pub fn adapted(model: Whisper, r: usize, count: usize, device: &Device) -> Whisper {
    let mut model = model.no_grad();
    adapt(&mut model, &vec![adapter(r); count], 0, device).expect("Whisper has these maps");
    model
}

/// An adapter of rank `r` on every linear map of a block.
pub fn adapter(r: usize) -> LoraConfig {
    let target_modules = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"].map(str::to_owned).to_vec();
    LoraConfig { r, lora_alpha: 2.0 * r as f64, target_modules, ..Default::default() }
}

/// The only adapter, or for each row of a batch another one.
fn gates(count: usize, batch: usize, device: &Device) -> Gates {
    if count == 1 {
        return Gates::One(0);
    }
    let rows: Vec<f32> = (0..batch).flat_map(|row| (0..count).map(move |k| f32::from(row % count == k))).collect();
    Gates::Each(Tensor::from_data(TensorData::new(rows, [batch, count]), device))
}

impl Size {
    pub fn config(self) -> WhisperConfig {
        let (d_model, layers, heads, num_mel_bins, vocab_size) = match self {
            Self::Nano => {
                return WhisperConfig {
                    d_model: 128,
                    encoder_layers: 4,
                    decoder_layers: 2,
                    encoder_attention_heads: 4,
                    decoder_attention_heads: 4,
                    encoder_ffn_dim: 512,
                    decoder_ffn_dim: 512,
                    vocab_size: 56,
                    max_source_positions: 400,
                    max_target_positions: 128,
                    ..Default::default()
                };
            }
            Self::Tiny => (384, 4, 6, 80, 51865),
            Self::Base => (512, 6, 8, 80, 51865),
            Self::Small => (768, 12, 12, 80, 51865),
            Self::Medium => (1024, 24, 16, 80, 51865),
            Self::LargeV3 => (1280, 32, 20, 128, 51866),
        };
        WhisperConfig {
            d_model,
            encoder_layers: layers,
            decoder_layers: layers,
            encoder_attention_heads: heads,
            decoder_attention_heads: heads,
            encoder_ffn_dim: 4 * d_model,
            decoder_ffn_dim: 4 * d_model,
            num_mel_bins,
            vocab_size,
            ..Default::default()
        }
    }
}

impl Dtype {
    fn compute(self) -> Result<DType, Failure> {
        match self {
            Self::F32 => Ok(DType::F32),
            Self::Bf16 => Ok(DType::BF16),
            Self::F16 => Err(Failure::BadInput(
                "`--dtype f16` needs loss scaling, which training does not have yet: use bf16 or f32".into(),
            )),
        }
    }
}

pub fn run(workload: &Workload) -> Result<(), Failure> {
    let mut dtype = workload.dtype.compute()?;
    let (spec, device) = resolve(&workload.device)?;
    if spec == DeviceSpec::Cpu && dtype == DType::BF16 && workload.kernels == KernelChoice::Auto {
        // The CPU's kernels have bf16 in their products alone; tensors stay in f32. Compositions have tensors in bf16.
        set_matmul_precision(MatmulPrecision::Medium).map_err(Failure::bad_input)?;
        dtype = DType::F32;
    }
    if workload.kernels == KernelChoice::Composed {
        set_kernels(Kernels::Composed);
    }
    let shape = [workload.batch, workload.tokens];
    let mut training = Training::new(&workload.size.config(), shape, workload.trained(), dtype, &device)
        .with_checkpointing(NonZeroUsize::new(workload.checkpointing));
    let (mut seconds, mut loss) = (Vec::new(), f64::NAN);
    for _ in 0..WARM_UPS + workload.steps {
        wait(&device)?;
        let started = Instant::now();
        let (stepped, value) = training.step();
        wait(&device)?;
        seconds.push(started.elapsed().as_secs_f64());
        training = stepped;
        loss = f64::from(value.into_scalar::<f32>());
    }
    println!("{}", report(workload, spec, median(&seconds[WARM_UPS..]), peak_bytes(&device), loss));
    Ok(())
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

/// Of the process for a CPU. Of an accelerator, what its allocator has reserved, where that is known: it keeps what it
/// once had, so in the end this is close to the most it needed.
fn peak_bytes(device: &Device) -> Option<u64> {
    match runs_on_host(device) {
        true => peak_memory_bytes(),
        false => device.memory_pool_usage().map(|usage| usage.bytes_reserved),
    }
}

fn report(workload: &Workload, spec: DeviceSpec, seconds: f64, peak_bytes: Option<u64>, loss: f64) -> Value {
    json!({
        "peer": concat!("undertone ", env!("CARGO_PKG_VERSION")),
        "size": name(workload.size),
        "batch": workload.batch,
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

/// A model, its optimizer, and the one batch it is trained on.
struct Training {
    model: Whisper,
    optimizer: Optimizer,
    mel: Tensor<3>,
    tokens: Tensor<2, Int>,
    gates: Option<Gates>,
    dtype: DType,
}

impl Training {
    /// `shape` is `[batch, tokens]`; every clip fills the model's window.
    fn new(config: &WhisperConfig, shape: [usize; 2], trained: Trained, dtype: DType, device: &Device) -> Self {
        undertone::ops::seed(0);
        let model = match trained {
            Trained::Part(part) => set_trainable(config.init(device), |name| part.includes(name)),
            Trained::Adapters { r, count } => adapted(config.init(device), r, count, device),
        };
        let device = device.clone().autodiff();
        let gates = match trained {
            Trained::Part(_) => None,
            Trained::Adapters { count, .. } => Some(gates(count, shape[0], &device)),
        };
        let mel = [shape[0], config.num_mel_bins, config.max_frames()];
        // Words only: Whisper's special tokens begin above.
        let words = config.vocab_size.min(50_000) as f64;
        // What PyTorch's AdamW does if it is told nothing.
        let optimizer = OptimizerConfig { beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01, ..Default::default() };
        Self {
            model: model.train(),
            optimizer: Optimizer::new(&optimizer),
            mel: undertone::ops::normal(mel, 1.0, &device).cast(dtype),
            tokens: undertone::ops::uniform(shape, 0.0, words, &device).int(),
            gates,
            dtype,
        }
    }

    fn with_checkpointing(self, every: Option<NonZeroUsize>) -> Self {
        Self { model: self.model.with_gradient_checkpointing(every), ..self }
    }

    /// One step as the Learner takes it, but for clipping, which the peer has not; and the loss before it.
    fn step(mut self) -> (Self, Tensor<1>) {
        let (mut gradients, loss) = self.forward_backward();
        // Moved, not cloned, and with no graph left: a parameter that nothing else holds is changed where it lies.
        self.model = self.optimizer.step(self.model, &mut gradients, LEARNING_RATE);
        (self, loss)
    }

    fn forward_backward(&self) -> (GradientSum, Tensor<1>) {
        let loss = self.loss();
        let mut gradients = GradientSum::default();
        gradients.add(&self.model, loss.backward());
        (gradients, loss.inner())
    }

    /// Mean cross-entropy of the tokens given the same tokens.
    fn loss(&self) -> Tensor<1> {
        let model = self.cast_model();
        let gates = self.gates.as_ref();
        let encoder = &model.encoder;
        let x = encoder.blocks(encoder.front_end(self.mel.clone(), 0), 0..encoder.layers.len(), gates);
        let cache = model.decoder.cache(encoder.layer_norm.forward(x), self.gates.clone());
        let hidden = model.decoder.forward_all(self.tokens.clone(), cache);
        let [batch, tokens, d_model] = hidden.dims();
        let rows = batch * tokens;
        let (hidden, targets) = (hidden.reshape([rows, d_model]), self.tokens.clone().reshape([rows]));
        let embedding = model.decoder.embed_tokens.weight.val();
        linear_cross_entropy(hidden, embedding, None, targets, Default::default()).sum.div_scalar(rows as f64)
    }

    /// The model in the type to compute in; gradients flow through the cast to the model's own f32 parameters.
    fn cast_model(&self) -> Whisper {
        let model = self.model.clone();
        if self.dtype == DType::F32 { model } else { model.map(&mut Cast(self.dtype)) }
    }
}

struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        Param::from_mapped_value(id, value.cast(self.0), mapper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone::store::parameters;

    const ALL: Trained = Trained::Part(Trainable::All);

    fn training(trained: Trained, dtype: DType) -> Training {
        let config = WhisperConfig {
            d_model: 16,
            encoder_layers: 1,
            decoder_layers: 1,
            encoder_attention_heads: 2,
            decoder_attention_heads: 2,
            encoder_ffn_dim: 32,
            decoder_ffn_dim: 32,
            num_mel_bins: 8,
            vocab_size: 60,
            max_source_positions: 20,
            ..Default::default()
        };
        let device = DeviceSpec::Cpu.resolve().expect("the CPU");
        Training::new(&config, [2, 5], trained, dtype, &device)
    }

    #[test]
    fn steps_lower_the_loss_in_either_type() {
        for dtype in [DType::F32, DType::BF16] {
            let (mut training, first) = training(ALL, dtype).step();
            for _ in 0..20 {
                training = training.step().0;
            }
            let [first, last]: [f32; 2] = [first, training.loss()].map(Tensor::into_scalar);
            assert!((first - 60_f32.ln()).abs() < 0.5, "{first} is not what guessing costs");
            assert!(last < first - 0.01, "{first} became {last} in {dtype:?}");
            assert_eq!(training.model.decoder.embed_tokens.weight.val().dtype(), DType::F32);
        }
    }

    #[test]
    fn a_frozen_encoder_is_neither_moved_nor_tracked() {
        for dtype in [DType::F32, DType::BF16] {
            let training = training(Trained::Part(Trainable::Decoder), dtype);
            let before = parameters(&training.model);
            assert!(!training.cast_model().encoder.forward(training.mel.clone()).is_tracked());
            for (name, value) in parameters(&training.step().0.model) {
                assert_eq!(value == before[&name], name.starts_with("encoder."), "{name}");
            }
        }
    }

    #[test]
    fn adapters_move_alone() {
        let mut training = training(Trained::Adapters { r: 2, count: 2 }, DType::F32);
        let before = parameters(&training.model);
        // In the first step `lora_b` is zero, and so is the gradient of `lora_a`.
        for _ in 0..2 {
            (training, _) = training.step();
        }
        let after = parameters(&training.model);
        for (name, value) in after {
            assert_eq!(value == before[&name], !name.contains(".lora."), "{name}");
        }
    }

    #[test]
    fn running_blocks_again_moves_everything_to_the_same_bits() {
        for trained in [ALL, Trained::Part(Trainable::Decoder), Trained::Adapters { r: 2, count: 2 }] {
            for dtype in [DType::F32, DType::BF16] {
                let plain = training(trained, dtype).step().0;
                let again = training(trained, dtype).with_checkpointing(NonZeroUsize::new(1)).step().0;
                assert!(parameters(&plain.model) == parameters(&again.model), "{dtype:?}");
            }
        }
    }

    #[test]
    fn everything_but_the_sinusoids_moves() {
        let training = training(ALL, DType::F32);
        let before = parameters(&training.model);
        for (name, value) in parameters(&training.step().0.model) {
            assert_eq!(value == before[&name], name == "encoder.embed_positions.weight", "{name}");
        }
    }

    #[test]
    fn the_default_device_is_named() {
        let (spec, device) = resolve("auto").ok().expect("some device");
        assert_ne!(spec, DeviceSpec::Auto);
        assert_eq!(spec.resolve().expect("the same device"), device);
    }
}
