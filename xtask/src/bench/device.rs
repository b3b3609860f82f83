//! `cargo xtask bench device`: what a step of the Learner asks of an accelerator.

use super::names::name;
use super::numbers::{median, rounded};
use super::step::{Size, resolve};
use super::training::{adapted, adapter, decoded_sum, text_sum, text_term};
use crate::process::work_folder;
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use clap::builder::RangedU64ValueParser;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Instant;
use undertone::fit::{Execution, Footprint, TrainedPart, usable_bytes};
use undertone::model::adapters::Gates;
use undertone::model::backbone::{BackboneInput, BoxedBackbone};
use undertone::model::router::{GateKind, RouterConfig};
use undertone::model::whisper::{Whisper, WhisperConfig};
use undertone::ops::{Capacity, Compute, DeviceSpec, LaunchCounter, Launched, waits};
use undertone::phases::config::RoutingWeights;
use undertone::phases::run::{TaskModel, routing_sums, routing_terms, task_vectors};
use undertone::tasks::HeadConfig;
use undertone::train::{
    BatchStream, Batches, BoxError, Evaluation, Learner, LossSum, LossTerm, Objective, TrainConfig,
};
use undertone_cli::{Failure, say};

/// What is measured.
#[derive(clap::Args)]
pub struct Args {
    /// Whose dimensions
    #[arg(long, default_value = "nano")]
    size: Size,
    /// The same blocks, but narrow ones on short windows: as many kernels and waits for little work, so that they can be
    /// counted on drivers that compute on the CPU
    #[arg(long)]
    narrow: bool,
    /// Clips that fill the model's window; or `fit`, the largest of 16, 8, 4, 2 and 1 that fits by the memory model
    #[arg(long, default_value = "4")]
    batch: Batch,
    /// Tokens of each clip
    #[arg(long, default_value = "32", value_parser = RangedU64ValueParser::<usize>::new().range(1..=128))]
    tokens: usize,
    /// What products are computed in: f32, tf32, bf16 or f16
    #[arg(long, default_value = "f32", value_parser = compute)]
    compute: Compute,
    /// wgpu:0, cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// Rank of a LoRA adapter (q, k, v, out_proj, fc1, fc2; alpha twice the rank); 0 trains the model itself
    #[arg(long, default_value = "0")]
    lora: usize,
    /// Adapters of that rank in a bank, above the first block; above 1 the step is one of DYNAMO's phase 3, with a router
    /// over them that is trained beside them by all its losses
    #[arg(long, default_value = "1", requires = "lora", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    adapters: usize,
    /// Batches whose gradients are added up in one step
    #[arg(long, default_value = "1", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    accumulation: usize,
    /// Steps that count, after three that warm up
    #[arg(long, default_value = "3", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    steps: usize,
    /// How many kinds of kernels are listed, those that are launched most
    #[arg(long, default_value = "12")]
    list: usize,
}

const WARM_UPS: usize = 3;

/// Number of clips in a batch.
#[derive(Clone, Copy, Debug)]
enum Batch {
    Of(usize),
    Fit,
}

impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("fit", _) => Ok(Self::Fit),
            (_, Ok(batch)) if batch > 0 => Ok(Self::Of(batch)),
            _ => Err("it is a number above 0, or fit".to_owned()),
        }
    }
}

/// The memory model of these steps.
struct Modelled {
    footprint: Footprint,
    execution: Execution,
}

impl Modelled {
    fn new(args: &Args, config: &WhisperConfig, device: &Device) -> Self {
        let trained = match args.lora {
            0 => TrainedPart::All,
            rank => TrainedPart::Adapters(vec![adapter(rank).into(); args.adapters]),
        };
        let footprint = Footprint::whisper(config).on(config.max_source_positions, args.tokens);
        Self { footprint: footprint.training_part(&trained), execution: Execution::on(device, args.compute) }
    }

    /// Returns the largest batch that a preset would take on this device; 16 if its memory is unknown.
    fn largest(&self, accumulation: usize, device: &Device) -> usize {
        let fits = Capacity::of(device)
            .total
            .map_or(16, |bytes| self.footprint.largest_batch(usable_bytes(bytes), accumulation, &self.execution));
        [16, 8, 4, 2, 1].into_iter().find(|batch| *batch <= fits).unwrap_or(0)
    }
}

fn compute(name: &str) -> Result<Compute, String> {
    serde_json::from_value(json!(name)).map_err(|_| "it is f32, tf32, bf16 or f16".to_owned())
}

fn narrow(config: WhisperConfig) -> WhisperConfig {
    let d_model = 8 * config.encoder_attention_heads;
    let (encoder_ffn_dim, decoder_ffn_dim) = (4 * d_model, 4 * d_model);
    // Windows are long enough for half precision to use matrix units in the encoder's attention.
    let (vocab_size, max_source_positions) = (500, 264);
    WhisperConfig { d_model, encoder_ffn_dim, decoder_ffn_dim, vocab_size, max_source_positions, ..config }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if args.adapters > 1 && args.lora == 0 {
        return Err(Failure::BadInput("--adapters needs a rank: add --lora 8".into()));
    }
    let (spec, device) = resolve(&args.device)?;
    let counter = LaunchCounter::start().ok_or_else(|| {
        Failure::BadInput("nothing counts kernels in this build: build with --features wgpu or --features cuda".into())
    })?;
    let config = if args.narrow { narrow(args.size.config()) } else { args.size.config() };
    undertone::ops::seed(0);
    let modelled = Modelled::new(args, &config, &device);
    let batch = match args.batch {
        Batch::Of(batch) => batch,
        Batch::Fit => modelled.largest(args.accumulation, &device),
    };
    let Modelled { footprint, execution } = modelled;
    let modelled_bytes = footprint.bytes(batch.max(1), args.accumulation, &execution) - footprint.loaded_bytes();
    if batch == 0 {
        // By the memory model not even one clip fits: this is what it would take.
        return say!("{}", json!({ "size": name(args.size), "batch": 0, "modelled_mib": mib(modelled_bytes) }));
    }
    let model = config.init(&device);
    let numbers = batch * config.num_mel_bins * config.max_frames();
    let counting = Counting {
        mel: (0..numbers).map(|i| (i * 37 % 1000) as f32 / 500.0 - 1.0).collect(),
        shape: [batch, args.tokens],
        features: [config.num_mel_bins, config.max_frames()],
        words: config.vocab_size.min(50_000),
        device: device.clone(),
        modelled_bytes,
        seen: Mutex::new(Seen { counter, moments: Vec::new(), uploads: Vec::new() }),
    };
    if args.adapters > 1 {
        let routed = Routed { counting, weights: RoutingWeights::default() };
        return count(args, spec, routed, dynamo(model, args, &device));
    }
    let model = if args.lora > 0 { adapted(model, args.lora, 1, &device) } else { model };
    count(args, spec, Plain { counting, adapted: args.lora > 0 }, model)
}

/// A frozen Whisper with adapters above its first block, a task for each of them, and a router.
fn dynamo(model: Whisper, args: &Args, device: &Device) -> TaskModel {
    let (adapters, router) = (vec![adapter(args.lora).into(); args.adapters], RouterConfig::default());
    let head = HeadConfig::default();
    let heads = vec![&head; args.adapters];
    let backbone = BoxedBackbone::new("Whisper", model);
    let dynamo = TaskModel::new(backbone, &adapters, &heads, router.tap, device).expect("Whisper has these maps");
    dynamo.with_router(&router, device)
}

/// Trains `model` for a few steps and prints what they asked for.
fn count<M: Measured>(args: &Args, spec: DeviceSpec, measured: M, model: M::Model) -> Result<(), Failure> {
    let device = measured.counting().device.clone();
    let steps = WARM_UPS + args.steps + 1;
    let mut train = TrainConfig {
        max_steps: Some(steps as u64),
        epochs: None,
        accumulation: args.accumulation,
        compute: args.compute.into(),
        log_every: steps as u64,
        tensorboard: false,
        ..Default::default()
    };
    (train.evaluate.every, train.checkpoint.every, train.optimizer.warmup_steps) = (0, 0, Some(0));
    let dir = work_folder()?;
    let mut learner =
        Learner::builder(train, Benched(measured), model, dir.path()).with_device(device.clone()).with_seed(0).build();
    learner.train(&Same).map_err(|e| Failure::Machine(e.to_string()))?;
    let mut seen = learner.objective().0.counting().seen.lock().expect("nobody panicked with it");
    let moments = std::mem::take(&mut seen.moments);
    let uploads = &seen.uploads[WARM_UPS * args.accumulation..(WARM_UPS + args.steps) * args.accumulation];
    let counted = &moments[WARM_UPS * args.accumulation..(WARM_UPS + args.steps) * args.accumulation];
    let after = &moments[(WARM_UPS + args.steps) * args.accumulation];
    let per_step = |total: usize| rounded(total as f64 / args.steps as f64, 1);
    let mut kernels = BTreeMap::<String, usize>::new();
    // What was launched until a moment belongs to the step before it.
    let ended = counted[1..].iter().chain([after]);
    ended
        .flat_map(|moment| &moment.kernels)
        .for_each(|(kernel, launched)| *kernels.entry(short(kernel)).or_default() += launched.count);
    let mut most: Vec<(String, f64)> =
        kernels.iter().map(|(kernel, count)| (kernel.clone(), per_step(*count))).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    most.truncate(args.list);
    let seconds: Vec<f64> = counted
        .iter()
        .zip(counted[1..].iter().chain([after]))
        .map(|(before, after)| (after.time - before.time).as_secs_f64() * args.accumulation as f64)
        .collect();
    let usage = device.memory_pool_usage();
    let (batch, modelled_bytes) =
        (learner.objective().0.counting().shape[0], learner.objective().0.counting().modelled_bytes);
    let line = json!({
        "size": name(args.size), "narrow": args.narrow, "batch": batch, "tokens": args.tokens, "compute": args.compute.on(&device).to_string(),
        "lora": args.lora, "adapters": args.adapters, "accumulation": args.accumulation, "device": spec.to_string(),
        "kernels_per_step": per_step(kernels.values().sum()),
        "waits_per_step": per_step((after.waits - counted[0].waits) as usize),
        "reserved_mib": usage.map(|usage| mib(usage.bytes_reserved)),
        "modelled_mib": mib(modelled_bytes),
        "seconds_per_step": rounded(median(&seconds), 3),
        "upload_seconds": rounded(median(uploads), 5),
        "most_launched": most.into_iter().map(|(kernel, count)| json!([kernel, count])).collect::<Vec<_>>(),
    });
    say!("{line}")
}

fn mib(bytes: u64) -> f64 {
    (bytes as f64 / 1_048_576.0).round()
}

/// The last part of a kernel's path, without what it was made for.
pub fn short(kernel: &str) -> String {
    let plain = kernel.split('<').next().unwrap_or(kernel);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

/// Random data, and what has been counted whenever a batch of it was asked for.
struct Counting {
    /// `[batch, tokens]`.
    shape: [usize; 2],
    /// Mel bins and frames.
    features: [usize; 2],
    /// Of every batch, made once: what a step asks of the host is measured, too.
    mel: Vec<f32>,
    words: usize,
    device: Device,
    /// Memory that the model expects, in bytes.
    modelled_bytes: u64,
    seen: Mutex<Seen>,
}

struct Seen {
    counter: LaunchCounter,
    moments: Vec<Moment>,
    /// Seconds that bringing a batch to the device kept the training thread.
    uploads: Vec<f64>,
}

/// The moment that a batch is brought to the device.
struct Moment {
    /// Launched since the moment before.
    kernels: BTreeMap<&'static str, Launched>,
    /// Since the process began.
    waits: u64,
    time: Instant,
}

/// Features, `[batch, mel bins, frames]`, and tokens, `[batch, tokens]`.
type Uploaded = (Tensor<3>, Tensor<2, Int>);

impl Counting {
    fn upload(&self, number: usize, device: &Device) -> Uploaded {
        let mut seen = self.seen.lock().expect("nobody panicked with it");
        let kernels = seen.counter.take(&self.device);
        let ([batch, tokens], [bins, frames]) = (self.shape, self.features);
        let mel = self.mel.clone();
        let ids: Vec<i64> = (0..batch * tokens).map(|i| ((i * 7919 + number) % self.words) as i64).collect();
        let time = Instant::now();
        seen.moments.push(Moment { kernels, waits: waits(), time });
        let mel = Tensor::from_data(TensorData::new(mel, [batch, bins, frames]), device);
        let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), device).reshape([batch, tokens]);
        seen.uploads.push(time.elapsed().as_secs_f64());
        (mel, ids)
    }
}

/// A model and its losses on random data.
trait Measured: Sync {
    type Model: Module;

    fn counting(&self) -> &Counting;

    fn loss_terms(&self) -> Vec<LossTerm>;

    fn losses(&self, model: &Self::Model, uploaded: Uploaded) -> Vec<LossSum>;
}

/// Whisper, or an adapter on it.
struct Plain {
    counting: Counting,
    adapted: bool,
}

impl Measured for Plain {
    type Model = Whisper;

    fn counting(&self) -> &Counting {
        &self.counting
    }

    fn loss_terms(&self) -> Vec<LossTerm> {
        vec![text_term(self.counting.shape)]
    }

    fn losses(&self, model: &Whisper, (mel, tokens): Uploaded) -> Vec<LossSum> {
        vec![text_sum(model, mel, tokens, self.adapted.then_some(Gates::One(0)))]
    }
}

/// Whisper with a router over adapters. Each sample of a batch belongs to another task.
struct Routed {
    counting: Counting,
    weights: RoutingWeights,
}

impl Routed {
    fn tasks(&self, model: &TaskModel) -> Vec<usize> {
        (0..self.counting.shape[0]).map(|sample| sample % model.adapters()).collect()
    }
}

impl Measured for Routed {
    type Model = TaskModel;

    fn counting(&self) -> &Counting {
        &self.counting
    }

    fn loss_terms(&self) -> Vec<LossTerm> {
        let samples = self.counting.shape[0];
        std::iter::once(text_term(self.counting.shape)).chain(routing_terms(&self.weights, samples)).collect()
    }

    fn losses(&self, model: &TaskModel, (mel, tokens): Uploaded) -> Vec<LossSum> {
        let (device, batch) = (mel.device(), mel.dims()[0]);
        let positions = mel.dims()[2].div_ceil(2);
        let padding = Tensor::<2, Bool>::full([batch, positions], false, &device);
        let tapped = model.tap(BackboneInput::Mel(mel, 0), padding).expect("Whisper reads mel features");
        let router = model.router.as_ref().expect("it was given one");
        let pooled = tapped.pooled();
        let routing = router.forward(pooled.clone());
        let prompts = routing.training_gates(GateKind::Gumbel, 1.0);
        let gates = Gates::Each(prompts.clone());
        let states = model.encode(&tapped, Some(&gates));
        let decoder = model.backbone.decoder().expect("Whisper has a decoder");
        let task = task_vectors(&model.heads, prompts).expect("it has a head for each task");
        let cache = decoder.cache(states.states, Some(gates)).with_start(task);
        let mut sums = vec![decoded_sum(decoder, cache, tokens)];
        let tasks = self.tasks(model);
        sums.extend(routing_sums(&self.weights, &routing, pooled, router.temperature(), &tasks, &device));
        sums
    }
}

/// What the Learner is told.
struct Benched<M>(M);

impl<M: Measured> Objective for Benched<M> {
    type Model = M::Model;
    type Batch = usize;
    type Input = Uploaded;

    fn samples(&self, _: &usize) -> usize {
        self.0.counting().shape[0]
    }

    fn upload(&self, number: &mut usize, device: &Device) -> Result<Uploaded, BoxError> {
        Ok(self.0.counting().upload(*number, device))
    }

    fn loss_terms(&self, _: &usize) -> Vec<LossTerm> {
        self.0.loss_terms()
    }

    fn losses(&self, model: &M::Model, _: &usize, input: Uploaded, _: &Device) -> Result<Vec<LossSum>, BoxError> {
        Ok(self.0.losses(model, input))
    }

    fn evaluate(&self, _: &M::Model, _: &[String]) -> Result<Evaluation, BoxError> {
        Ok(Evaluation { metrics: [("cer".to_owned(), 0.0)].into(), ..Default::default() })
    }

    fn export(&self, _: &M::Model, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

/// As many batches as are wanted.
struct Same;

impl Batches for Same {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        1_000_000
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new((start..1_000_000).map(|batch| Ok((batch + 1, batch))))
    }
}
