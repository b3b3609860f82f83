//! `cargo xtask bench step`: the training step that the Learner runs, timed on a random model and a random batch.

use super::names::name;
use super::numbers::{median, rounded};
use crate::failure::Failure;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;
use undertone::model::lora::{Gates, LoraConfig, adapt};
use undertone::model::whisper::{DecoderCache, Whisper, WhisperConfig, WhisperDecoder};
use undertone::ops::{Compute, DeviceSpec, Kernels, linear_cross_entropy, runs_on_host, set_kernels};
use undertone::phases::Trainable;
use undertone::store::set_trainable;
use undertone::train::{
    BoxError, Evaluation, Learner, LossTerm, Objective, OptimizerConfig, Schedule, TrainConfig, peak_memory_bytes,
};

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

    /// `[clips, tokens]` of each batch of a step, and how many there are.
    fn split(&self) -> Result<([usize; 2], usize), Failure> {
        let parts = self.accumulation;
        if !self.batch.is_multiple_of(parts) {
            let clips = self.batch;
            return Err(Failure::BadInput(format!(
                "{clips} clips are no {parts} batches of the same size: choose an --accumulation that divides --batch"
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
    fn compute(self) -> Result<Compute, Failure> {
        match self {
            Self::F32 => Ok(Compute::F32),
            Self::Bf16 => Ok(Compute::Bf16),
            Self::F16 => Err(Failure::BadInput(
                "`--dtype f16` needs loss scaling, which training does not have yet: use bf16 or f32".into(),
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
    let mut training =
        Training::new(&workload.size.config(), (shape, parts), workload.trained(), compute, checkpointing, &device)?;
    let (mut seconds, mut loss) = (Vec::new(), f64::NAN);
    for _ in 0..WARM_UPS + workload.steps {
        wait(&device)?;
        let started = Instant::now();
        loss = training.step()?;
        wait(&device)?;
        seconds.push(started.elapsed().as_secs_f64());
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

/// The Learner with a random model, and the clips that every step is on.
struct Training {
    learner: Learner<Clips>,
    /// In as many batches as are accumulated.
    batches: Vec<Batch>,
    /// The learner's, which writes nothing there.
    _directory: TempDir,
}

/// Log-mel features and tokens, where they are computed on.
type Batch = (Tensor<3>, Tensor<2, Int>);

/// Cross-entropy of the tokens given the same tokens.
struct Clips {
    /// How many adapters there are, where there are any.
    adapters: Option<usize>,
}

impl Training {
    /// `shape` is `[batch, tokens]` of each of `parts` batches; every clip fills the model's window.
    fn new(
        config: &WhisperConfig,
        (shape, parts): ([usize; 2], usize),
        trained: Trained,
        compute: Compute,
        checkpointing: Option<NonZeroUsize>,
        device: &Device,
    ) -> Result<Self, Failure> {
        undertone::ops::seed(0);
        let model = match trained {
            Trained::Part(part) => set_trainable(config.init(device), |name| part.includes(name)),
            Trained::Adapters { r, count } => adapted(config.init(device), r, count, device),
        };
        let adapters = match trained {
            Trained::Part(_) => None,
            Trained::Adapters { count, .. } => Some(count),
        };
        let mel = [shape[0], config.num_mel_bins, config.max_frames()];
        // Words only: Whisper's special tokens begin above.
        let words = config.vocab_size.min(50_000) as f64;
        let device = device.clone().autodiff();
        let batch = |_| {
            let mel = undertone::ops::normal(mel, 1.0, &device);
            (mel, undertone::ops::uniform(shape, 0.0, words, &device).int())
        };
        let batches = (0..parts).map(batch).collect();
        // What PyTorch's AdamW does if it is told nothing; and no clipping, which the peer has not.
        let optimizer = OptimizerConfig {
            lr: LEARNING_RATE,
            schedule: Schedule::Constant,
            warmup_steps: 0,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            clip_norm: 0.0,
            ..Default::default()
        };
        let train = TrainConfig { max_steps: Some(1000), compute, optimizer, ..Default::default() };
        let directory =
            tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot make a temporary directory: {e}")))?;
        let model = model.with_gradient_checkpointing(checkpointing);
        let learner = Learner::builder(train, Clips { adapters }, model, directory.path())
            .with_device(device)
            .with_seed(0)
            .build();
        Ok(Self { learner, batches, _directory: directory })
    }

    /// One step; and the loss before it.
    fn step(&mut self) -> Result<f64, Failure> {
        let (_, report) = self.learner.step(&mut self.batches).map_err(|e| Failure::Machine(e.to_string()))?;
        Ok(report.loss)
    }
}

impl Objective for Clips {
    type Model = Whisper;
    type Batch = Batch;
    type Input = Batch;

    fn samples(&self, (mel, _): &Batch) -> usize {
        mel.dims()[0]
    }

    fn counts(&self, (_, tokens): &Batch) -> Vec<f64> {
        vec![tokens.dims().iter().product::<usize>() as f64]
    }

    fn upload(&self, batch: &mut Batch, _: &Device) -> Result<Batch, BoxError> {
        Ok(batch.clone())
    }

    fn losses(
        &self,
        model: &Whisper,
        _: &Batch,
        (mel, tokens): Batch,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let gates = self.adapters.map(|count| gates(count, mel.dims()[0], device));
        Ok(vec![text_term(model, mel, tokens, gates)])
    }

    fn evaluate(&self, _: &Whisper, _: &[String]) -> Result<Evaluation, BoxError> {
        Err("nothing is judged here".into())
    }

    fn export(&self, _: &Whisper, _: &Path) -> Result<(), BoxError> {
        Err("nothing is exported here".into())
    }
}

/// Summed cross-entropy of the tokens given the same tokens.
pub fn text_term(model: &Whisper, mel: Tensor<3>, tokens: Tensor<2, Int>, gates: Option<Gates>) -> LossTerm {
    let encoder = &model.encoder;
    let x = encoder.blocks(encoder.front_end(mel, 0), 0..encoder.layers.len(), gates.as_ref());
    let cache = model.decoder.cache(encoder.layer_norm.forward(x), gates);
    decoded_term(&model.decoder, cache, tokens)
}

/// The same from the encoder's states on.
pub fn decoded_term(decoder: &WhisperDecoder, cache: DecoderCache, tokens: Tensor<2, Int>) -> LossTerm {
    let hidden = decoder.forward_all(tokens.clone(), cache);
    let [batch, time, d_model] = hidden.dims();
    let (hidden, targets) = (hidden.reshape([batch * time, d_model]), tokens.reshape([batch * time]));
    let embedding = decoder.embed_tokens.weight.val();
    let sum = linear_cross_entropy(hidden, embedding, None, targets, Default::default()).sum;
    LossTerm { name: "text".into(), weight: 1.0, sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone::store::parameters;

    const ALL: Trained = Trained::Part(Trainable::All);

    fn training(trained: Trained, compute: Compute, checkpointing: Option<NonZeroUsize>) -> Training {
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
        Training::new(&config, ([2, 5], 2), trained, compute, checkpointing, &device).ok().expect("a model")
    }

    fn step(training: &mut Training) -> f64 {
        training.step().ok().expect("a step")
    }

    #[test]
    fn steps_lower_the_loss_in_either_type() {
        for compute in [Compute::F32, Compute::Bf16] {
            let mut training = training(ALL, compute, None);
            let losses: Vec<f64> = (0..21).map(|_| step(&mut training)).collect();
            let (first, last) = (losses[0], losses[20]);
            assert!((first - 60_f64.ln()).abs() < 0.5, "{first} is not what guessing costs");
            assert!(last < first - 0.01, "{first} became {last} in {compute:?}");
        }
    }

    #[test]
    fn what_is_frozen_does_not_move() {
        for compute in [Compute::F32, Compute::Bf16] {
            let mut training = training(Trained::Part(Trainable::Decoder), compute, None);
            let before = parameters(training.learner.model());
            step(&mut training);
            for (name, value) in parameters(training.learner.model()) {
                assert_eq!(value == before[&name], name.starts_with("encoder."), "{name}");
            }
        }
    }

    #[test]
    fn adapters_move_alone() {
        let mut training = training(Trained::Adapters { r: 2, count: 2 }, Compute::F32, None);
        let before = parameters(training.learner.model());
        // In the first step `lora_b` is zero, and so is the gradient of `lora_a`.
        for _ in 0..2 {
            step(&mut training);
        }
        for (name, value) in parameters(training.learner.model()) {
            assert_eq!(value == before[&name], !name.contains(".lora."), "{name}");
        }
    }

    #[test]
    fn running_blocks_again_moves_everything_to_the_same_bits() {
        for trained in [ALL, Trained::Part(Trainable::Decoder), Trained::Adapters { r: 2, count: 2 }] {
            for compute in [Compute::F32, Compute::Bf16] {
                let [plain, again] = [None, NonZeroUsize::new(1)].map(|checkpointing| {
                    let mut training = training(trained, compute, checkpointing);
                    step(&mut training);
                    parameters(training.learner.model())
                });
                assert!(plain == again, "{compute:?}");
            }
        }
    }

    #[test]
    fn everything_but_the_sinusoids_moves() {
        let mut training = training(ALL, Compute::F32, None);
        let before = parameters(training.learner.model());
        step(&mut training);
        for (name, value) in parameters(training.learner.model()) {
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
