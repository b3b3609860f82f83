//! The Learner with a random model on random clips: what `bench step` times, and parts of what `bench device` counts.

use crate::process::work_folder;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::num::NonZeroUsize;
use std::path::Path;
use tempfile::TempDir;
use undertone::model::adaptable::adapt;
use undertone::model::adapters::Gates;
use undertone::model::adapters::lora::LoraConfig;
use undertone::model::backbone::Backbone;
use undertone::model::whisper::{DecoderCache, Whisper, WhisperConfig, WhisperDecoder};
use undertone::ops::{Compute, linear_cross_entropy, settle};
use undertone::phases::Trainable;
use undertone::store::set_trainable;
use undertone::train::{
    AdamWConfig, Algorithm, BoxError, Evaluation, Learner, LossSum, LossTerm, Objective, OptimizerConfig, ProcessGroup,
    Schedule, TrainConfig,
};
use undertone_cli::Failure;

const LEARNING_RATE: f64 = 1e-4;

/// The Learner with a random model, and the clips that every step is on.
pub struct Training {
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
    /// `shape` is `[batch, tokens]` of each of `parts` batches; every clip fills the model's window. Each rank of the process_group has
    /// batches of its own.
    pub fn new(
        config: &WhisperConfig,
        (shape, parts): ([usize; 2], usize),
        trained: Trained,
        compute: Compute,
        checkpointing: Option<NonZeroUsize>,
        device: &Device,
        process_group: ProcessGroup,
    ) -> Result<Self, Failure> {
        undertone::ops::seed(0);
        let model = match trained {
            Trained::Part(part) => {
                let model = settle(config.init(device));
                let constants = model.constants();
                set_trainable(model, |path| part.includes(path, constants))
            }
            Trained::Adapters { r, count } => adapted(settle(config.init(device)), r, count, device),
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
            warmup_steps: Some(0),
            algorithm: Algorithm::AdamW(AdamWConfig { beta2: 0.999, ..Default::default() }),
            weight_decay: 0.01,
            clip_norm: 0.0,
            ..Default::default()
        };
        let train = TrainConfig { max_steps: Some(1000), compute: compute.into(), optimizer, ..Default::default() };
        let directory = work_folder()?;
        let model = model.with_gradient_checkpointing(checkpointing);
        let learner = Learner::builder(train, Clips { adapters }, model, directory.path())
            .with_device(device)
            .with_seed(0)
            .with_process_group(process_group)
            .build();
        Ok(Self { learner, batches, _directory: directory })
    }

    /// How many parameters are trained.
    pub fn parameters(&self) -> usize {
        let infos = undertone::store::parameter_infos(self.learner.model());
        infos.iter().filter(|p| p.trainable).map(|p| p.shape.iter().product::<usize>()).sum()
    }

    /// Floating-point operations of the forward pass over one clip of `frames` with so many tokens.
    pub fn forward_flops(&self, frames: usize, tokens: usize) -> f64 {
        self.learner.model().forward_flops(frames, tokens)
    }

    /// One step; and the loss before it.
    pub fn step(&mut self) -> Result<f64, Failure> {
        self.numbers().map(|[loss, _]| loss)
    }

    /// One step; the loss before it, and the length of its gradient.
    pub fn numbers(&mut self) -> Result<[f64; 2], Failure> {
        let (_, report) = self.learner.step(&mut self.batches).map_err(|e| Failure::Machine(e.to_string()))?;
        Ok([report.loss, report.norm])
    }
}

impl Objective for Clips {
    type Model = Whisper;
    type Batch = Batch;
    type Input = Batch;

    fn samples(&self, (mel, _): &Batch) -> usize {
        mel.dims()[0]
    }

    fn loss_terms(&self, (_, tokens): &Batch) -> Vec<LossTerm> {
        vec![text_term(tokens.dims())]
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
    ) -> Result<Vec<LossSum>, BoxError> {
        let gates = self.adapters.map(|count| gates(count, mel.dims()[0], device));
        Ok(vec![text_sum(model, mel, tokens, gates)])
    }

    fn evaluate(&self, _: &Whisper, _: &[String]) -> Result<Evaluation, BoxError> {
        Err("nothing is judged here".into())
    }

    fn export(&self, _: &Whisper, _: &Path) -> Result<(), BoxError> {
        Err("nothing is exported here".into())
    }
}

/// Name of the one loss term of text.
const TEXT: &str = "text";

/// Loss term of so many samples and tokens of each.
pub fn text_term(shape: [usize; 2]) -> LossTerm {
    LossTerm { name: TEXT.into(), weight: 1.0, count: shape.iter().product::<usize>() as f64 }
}

/// Summed cross-entropy of the tokens given the same tokens.
pub fn text_sum(model: &Whisper, mel: Tensor<3>, tokens: Tensor<2, Int>, gates: Option<Gates>) -> LossSum {
    let encoder = &model.encoder;
    let x = encoder.blocks(encoder.front_end(mel, 0), 0..encoder.layers.len(), gates.as_ref());
    let cache = model.decoder.cache(encoder.layer_norm.forward(x), gates);
    decoded_sum(&model.decoder, cache, tokens)
}

/// The same from the encoder's states on.
pub fn decoded_sum(decoder: &WhisperDecoder, cache: DecoderCache, tokens: Tensor<2, Int>) -> LossSum {
    let hidden = decoder.forward_all(tokens.clone(), cache);
    let [batch, time, d_model] = hidden.dims();
    let (hidden, targets) = (hidden.reshape([batch * time, d_model]), tokens.reshape([batch * time]));
    let embedding = decoder.embed_tokens.weight.val();
    let sum = linear_cross_entropy(hidden, embedding, None, targets, Default::default()).sum;
    (TEXT.into(), sum)
}

/// What receives gradients.
#[derive(Clone, Copy)]
pub enum Trained {
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

#[cfg(test)]
mod tests {
    use super::*;
    use undertone::ops::DeviceSpec;
    use undertone::store::parameters;

    fn training(trained: Trained, compute: Compute) -> Training {
        let config = WhisperConfig {
            num_mel_bins: 8,
            vocab_size: 60,
            max_source_positions: 20,
            ..WhisperConfig::new(16, 32, 2, [1, 1])
        };
        let device = DeviceSpec::Cpu.resolve().expect("the CPU");
        Training::new(&config, ([2, 5], 2), trained, compute, None, &device, ProcessGroup::default())
            .ok()
            .expect("a model")
    }

    fn step(training: &mut Training) -> f64 {
        training.step().ok().expect("a step")
    }

    #[test]
    fn steps_lower_the_loss_in_either_type() {
        for compute in [Compute::F32, Compute::Bf16] {
            let mut training = training(Trained::Part(Trainable::All), compute);
            let losses: Vec<f64> = (0..21).map(|_| step(&mut training)).collect();
            let (first, last) = (losses[0], losses[20]);
            assert!((first - 60_f64.ln()).abs() < 0.5, "{first} is not what guessing costs");
            assert!(last < first - 0.01, "{first} became {last} in {compute:?}");
        }
    }

    #[test]
    fn what_is_frozen_does_not_move() {
        for compute in [Compute::F32, Compute::Bf16] {
            let mut training = training(Trained::Part(Trainable::Decoder), compute);
            let before = parameters(training.learner.model());
            step(&mut training);
            for (name, value) in parameters(training.learner.model()) {
                assert_eq!(value == before[&name], name.starts_with("encoder."), "{name}");
            }
        }
    }

    #[test]
    fn adapters_move_alone() {
        let mut training = training(Trained::Adapters { r: 2, count: 2 }, Compute::F32);
        let before = parameters(training.learner.model());
        // In the first step `lora_b` is zero, and so is the gradient of `lora_a`.
        for _ in 0..2 {
            step(&mut training);
        }
        for (name, value) in parameters(training.learner.model()) {
            assert_eq!(value == before[&name], !name.contains(".lora."), "{name}");
        }
    }
}
