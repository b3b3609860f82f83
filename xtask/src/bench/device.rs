//! `cargo xtask bench device`: what a step of the Learner asks of an accelerator.

use super::step::{Size, adapted, resolve};
use super::{median, name, rounded};
use crate::Failure;
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::builder::RangedU64ValueParser;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use undertone::model::lora::Gates;
use undertone::model::whisper::{Whisper, WhisperConfig};
use undertone::ops::{Compute, LaunchCounter, linear_cross_entropy, waits};
use undertone::train::{BatchStream, Batches, BoxError, Evaluation, Learner, LossTerm, Objective, TrainConfig};

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
    /// Clips that fill the model's window
    #[arg(long, default_value = "4", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
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

fn compute(name: &str) -> Result<Compute, String> {
    serde_json::from_value(json!(name)).map_err(|_| "it is f32, tf32, bf16 or f16".to_owned())
}

fn narrow(config: WhisperConfig) -> WhisperConfig {
    let d_model = 8 * config.encoder_attention_heads;
    let (encoder_ffn_dim, decoder_ffn_dim) = (4 * d_model, 4 * d_model);
    WhisperConfig { d_model, encoder_ffn_dim, decoder_ffn_dim, vocab_size: 500, max_source_positions: 100, ..config }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let (spec, device) = resolve(&args.device)?;
    let counter = LaunchCounter::start().ok_or_else(|| {
        Failure::BadInput("nothing counts kernels in this build: build with --features wgpu or --features cuda".into())
    })?;
    let config = if args.narrow { narrow(args.size.config()) } else { args.size.config() };
    undertone::ops::seed(0);
    let model = config.init(&device);
    let model = if args.lora > 0 { adapted(model, args.lora, 1, &device) } else { model };
    let counting = Counting {
        shape: [args.batch, args.tokens],
        features: [config.num_mel_bins, config.max_frames()],
        words: config.vocab_size.min(50_000),
        adapted: args.lora > 0,
        device: device.clone(),
        seen: RefCell::new(Seen { counter, moments: Vec::new() }),
    };
    let steps = WARM_UPS + args.steps + 1;
    let mut train = TrainConfig {
        max_steps: Some(steps as u64),
        epochs: None,
        accumulation: args.accumulation,
        compute: args.compute,
        log_every: steps as u64,
        tensorboard: false,
        ..Default::default()
    };
    (train.evaluate.every, train.checkpoint.every, train.optimizer.warmup_steps) = (0, 0, 0);
    let dir = tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot make a temporary directory: {e}")))?;
    let mut learner = Learner::new(train, counting, model, device.clone(), dir.path(), 0);
    learner.train(&Same).map_err(|e| Failure::Machine(e.to_string()))?;
    let moments = std::mem::take(&mut learner.objective().seen.borrow_mut().moments);
    let counted = &moments[WARM_UPS * args.accumulation..(WARM_UPS + args.steps) * args.accumulation];
    let after = &moments[(WARM_UPS + args.steps) * args.accumulation];
    let per_step = |total: usize| rounded(total as f64 / args.steps as f64, 1);
    let mut kernels = BTreeMap::<String, usize>::new();
    // What was launched until a moment belongs to the step before it.
    let ended = counted[1..].iter().chain([after]);
    ended
        .flat_map(|moment| &moment.kernels)
        .for_each(|(kernel, count)| *kernels.entry(short(kernel)).or_default() += count);
    let mut most: Vec<(String, f64)> =
        kernels.iter().map(|(kernel, count)| (kernel.clone(), per_step(*count))).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    most.truncate(args.list);
    let seconds: Vec<f64> = counted
        .iter()
        .zip(counted[1..].iter().chain([after]))
        .map(|(before, after)| (after.time - before.time).as_secs_f64() * args.accumulation as f64)
        .collect();
    let mib = |bytes: u64| (bytes as f64 / 1_048_576.0).round();
    let usage = device.memory_pool_usage();
    let line = json!({
        "size": name(args.size), "narrow": args.narrow, "batch": args.batch, "tokens": args.tokens, "compute": args.compute.on(&device).to_string(),
        "lora": args.lora, "accumulation": args.accumulation, "device": spec.to_string(),
        "kernels_per_step": per_step(kernels.values().sum()),
        "waits_per_step": per_step((after.waits - counted[0].waits) as usize),
        "reserved_mib": usage.map(|usage| mib(usage.bytes_reserved)),
        "seconds_per_step": rounded(median(&seconds), 3),
        "most_launched": most.into_iter().map(|(kernel, count)| json!([kernel, count])).collect::<Vec<_>>(),
    });
    println!("{line}");
    Ok(())
}

/// The last part of a kernel's path, without what it was made for.
fn short(kernel: &str) -> String {
    let plain = kernel.split('<').next().unwrap_or(kernel);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

/// A random Whisper on random data, and what has been counted whenever a batch was asked for.
struct Counting {
    /// `[batch, tokens]`.
    shape: [usize; 2],
    /// Mel bins and frames.
    features: [usize; 2],
    words: usize,
    adapted: bool,
    device: Device,
    seen: RefCell<Seen>,
}

struct Seen {
    counter: LaunchCounter,
    moments: Vec<Moment>,
}

/// The moment that a batch is brought to the device.
struct Moment {
    /// Launched since the moment before.
    kernels: BTreeMap<&'static str, usize>,
    /// Since the process began.
    waits: u64,
    time: Instant,
}

impl Objective for Counting {
    type Model = Whisper;
    type Batch = usize;
    /// Features and tokens.
    type Input = (Tensor<3>, Tensor<2, Int>);

    fn samples(&self, _: &usize) -> usize {
        self.shape[0]
    }

    fn upload(&self, number: &mut usize, device: &Device) -> Result<Self::Input, BoxError> {
        let mut seen = self.seen.borrow_mut();
        let kernels = seen.counter.take(&self.device);
        seen.moments.push(Moment { kernels, waits: waits(), time: Instant::now() });
        let ([batch, tokens], [bins, frames]) = (self.shape, self.features);
        let mel: Vec<f32> =
            (0..batch * bins * frames).map(|i| ((i * 37 + *number) % 1000) as f32 / 500.0 - 1.0).collect();
        let ids: Vec<i64> = (0..batch * tokens).map(|i| ((i * 7919 + *number) % self.words) as i64).collect();
        let mel = Tensor::from_data(TensorData::new(mel, [batch, bins, frames]), device);
        Ok((mel, Tensor::<1, Int>::from_ints(ids.as_slice(), device).reshape([batch, tokens])))
    }

    fn counts(&self, _: &usize) -> Vec<f64> {
        vec![(self.shape[0] * self.shape[1]) as f64]
    }

    fn losses(
        &self,
        model: &Whisper,
        _: &usize,
        (mel, tokens): Self::Input,
        _: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let gates = self.adapted.then_some(Gates::One(0));
        let encoder = &model.encoder;
        let x = encoder.blocks(encoder.front_end(mel, 0), 0..encoder.layers.len(), gates.as_ref());
        let cache = model.decoder.cache(encoder.layer_norm.forward(x), gates);
        let hidden = model.decoder.forward_all(tokens.clone(), cache);
        let [batch, time, d_model] = hidden.dims();
        let (hidden, targets) = (hidden.reshape([batch * time, d_model]), tokens.reshape([batch * time]));
        let embedding = model.decoder.embed_tokens.weight.val();
        let sum = linear_cross_entropy(hidden, embedding, None, targets, Default::default()).sum;
        Ok(vec![LossTerm { name: "text".into(), weight: 1.0, sum }])
    }

    fn evaluate(&self, _: &Whisper, _: &[String]) -> Result<Evaluation, BoxError> {
        Ok(Evaluation { metrics: [("cer".to_owned(), 0.0)].into(), ..Default::default() })
    }

    fn export(&self, _: &Whisper, _: &Path) -> Result<(), BoxError> {
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
