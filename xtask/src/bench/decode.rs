//! `cargo xtask bench decode`: the time of a token that a Whisper writes, beside that of reading what it is computed from.

use super::names::name;
use super::numbers::{median, rounded};
use super::step::{Size, resolve};
use burn::tensor::{Device, Distribution, Tensor};
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::time::Instant;
use undertone::kernels::roofline;
use undertone::model::whisper::{GenerateOptions, Whisper, WhisperConfig};
use undertone_cli::{Failure, say};

/// What is measured.
#[derive(clap::Args)]
pub struct Args {
    /// Whispers
    #[arg(long, value_delimiter = ',', default_value = "tiny")]
    size: Vec<Size>,
    /// Clips that are decoded together
    #[arg(long, value_delimiter = ',', default_value = "1,4,8,16", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: Vec<usize>,
    /// Tokens of each clip that count, after the first eight
    #[arg(long, default_value = "48", value_parser = RangedU64ValueParser::<usize>::new().range(1..=96))]
    tokens: usize,
    /// How often each of them is measured
    #[arg(long, default_value = "5", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// cpu, wgpu:0 or cuda:0; the time of reading is that of this machine's memory
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// Tokens before those that count: what is made once for a batch is in their time.
const FIRST: usize = 8;

pub fn run(args: &Args) -> Result<(), Failure> {
    let (spec, device) = resolve(&args.device)?;
    let bandwidth = roofline::bytes_per_second();
    for size in &args.size {
        let config = size.config();
        let model = config.init(&device);
        for batch in &args.batch {
            let bytes = read_bytes(&config, *batch);
            let seconds = seconds_per_position(&model, &config, *batch, args, &device);
            let mut line = report(seconds, *batch, bytes, bandwidth);
            line["size"] = json!(name(*size));
            line["device"] = json!(spec.to_string());
            say!("{line}")?;
        }
    }
    Ok(())
}

/// Bytes that the tokens at one position of all clips are computed from: the decoder's matrices and embeddings, once for all clips, and the
/// encoder's states of each clip, once a layer.
fn read_bytes(config: &WhisperConfig, batch: usize) -> [f64; 2] {
    let [d, layers, ffn] = [config.d_model, config.decoder_layers, config.decoder_ffn_dim].map(|n| n as f64);
    let [vocabulary, positions] = [config.vocab_size, config.max_source_positions].map(|n| n as f64);
    // Two attentions of four maps, and the feed-forward layer's two.
    let weights = layers * (8.0 * d * d + 2.0 * d * ffn) + vocabulary * d;
    let states = layers * positions * d * batch as f64;
    [4.0 * weights, 4.0 * states]
}

/// Median time of the tokens at one position of all clips, in seconds.
fn seconds_per_position(model: &Whisper, config: &WhisperConfig, batch: usize, args: &Args, device: &Device) -> f64 {
    let shape = [batch, config.max_source_positions, config.d_model];
    let states = Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), device);
    let seconds = |tokens: usize| {
        let end = 0;
        let options = GenerateOptions { suppress: vec![end], ..GenerateOptions::new(end, 1 + tokens) };
        let started = Instant::now();
        let written =
            model.decoder.generate(model.decoder.cache(states.clone(), None), &vec![vec![1]; batch], &options);
        assert!(written.iter().all(|ids| ids.len() == tokens), "no text ends where its end is suppressed");
        started.elapsed().as_secs_f64()
    };
    seconds(FIRST);
    let rounds = (0..args.rounds).map(|_| (seconds(FIRST + args.tokens) - seconds(FIRST)) / args.tokens as f64);
    median(&rounds.collect::<Vec<f64>>())
}

fn report(seconds: f64, batch: usize, [weights, states]: [f64; 2], bandwidth: f64) -> Value {
    json!({
        "batch": batch,
        "ms_per_position": rounded(seconds * 1e3, 3),
        "ms_per_token": rounded(seconds * 1e3 / batch as f64, 3),
        "tokens_per_second": rounded(batch as f64 / seconds, 0),
        "weights_mb": rounded(weights / 1e6, 1),
        "states_mb": rounded(states / 1e6, 1),
        "memory_gb_per_second": rounded(bandwidth / 1e9, 1),
        "bound_ms_per_position": rounded((weights + states) / bandwidth * 1e3, 3),
        "share_of_bound": rounded((weights + states) / bandwidth / seconds, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_once_and_states_for_each_clip() {
        let config = Size::Tiny.config();
        let [[weights, one], [same, four]] = [1, 4].map(|batch| read_bytes(&config, batch));
        assert_eq!((weights, 4.0 * one), (same, four));
        // Four layers of 8 · 384² + 2 · 384 · 1536 numbers, and 51,865 embeddings.
        assert_eq!(weights, 4.0 * (4.0 * 2_359_296.0 + 51_865.0 * 384.0));
    }

    #[test]
    fn twice_the_time_of_reading_is_half_of_what_is_possible() {
        let line = report(0.02, 4, [60e6, 40e6], 10e9);
        assert_eq!((&line["bound_ms_per_position"], &line["share_of_bound"]), (&json!(10.0), &json!(0.5)));
        assert_eq!((&line["ms_per_token"], &line["tokens_per_second"]), (&json!(5.0), &json!(200.0)));
    }
}
