//! What the model says of clusters that nobody here has.

use super::super::step::Size;
use super::model::{Link, Setting};
use undertone::model::whisper::WhisperConfig;
use undertone_cli::Failure;
use undertone_cli::say;

/// NVIDIA's H100: bf16 products in a second at most, of which training is taken to reach so much.
const PEAK: f64 = 989e12;
const MFU: f64 = 0.4;
/// Clips of 30 s and tokens that each GPU has in a batch.
const CLIPS: f64 = 16.0;
const TOKENS: f64 = 128.0;
/// PCIe 5: gradients to the host and sums back, each at 25 GB/s, and the adding at 10 GB/s.
const HOST: f64 = 2.0 / 25e9 + 1.0 / 10e9;
/// Between two hosts.
const LATENCY: f64 = 20e-6;
/// A rank sends a message to every other one in each exchange.
const MESSAGE: f64 = 1e-6;

const GPUS: [usize; 5] = [1, 8, 64, 256, 1024];
/// Bytes a second for each GPU.
const LINKS: [(&str, f64); 2] = [("25 Gbit/s for each GPU", 3.125e9), ("400 Gbit/s for each GPU", 50e9)];

pub fn print() -> Result<(), Failure> {
    say!(
        "Share of a step in which GPUs compute. Each has {CLIPS} clips of 30 s and {TOKENS} tokens in a batch and reaches {:.0} % of \
         {:.0} TFLOP/s; gradients are f32 and pass the host at {:.1} GB/s in all; {:.0} µs for an exchange and {:.0} µs for each of its \
         messages; that sums and backward passes overlap is left out.\n",
        100.0 * MFU,
        PEAK / 1e12,
        1.0 / HOST / 1e9,
        LATENCY * 1e6,
        MESSAGE * 1e6
    )?;
    let heads: Vec<String> = GPUS.iter().map(|gpus| format!(" {gpus} |")).collect();
    say!("| model | accumulation | link |{}\n|---|---|---|{}", heads.concat(), "---|".repeat(GPUS.len()))?;
    for (title, size, adapters) in [
        ("small", Size::Small, None),
        ("large-v3", Size::LargeV3, None),
        ("large-v3, LoRA of rank 32 on q and v", Size::LargeV3, Some(32.0)),
    ] {
        for accumulation in [1.0, 8.0] {
            for (link, bandwidth) in LINKS {
                let shares: Vec<String> = GPUS
                    .iter()
                    .map(|gpus| {
                        format!(" {:.0} % |", 100.0 * share(&size.config(), adapters, accumulation, *gpus, bandwidth))
                    })
                    .collect();
                say!("| {title} | {accumulation} | {link} |{}", shares.concat())?;
            }
        }
    }
    Ok(())
}

/// The share of a step in which a GPU computes.
fn share(config: &WhisperConfig, adapters: Option<f64>, accumulation: f64, gpus: usize, bandwidth: f64) -> f64 {
    let (parameters, passes) = match adapters {
        // The backward pass is twice the forward pass, or as much where no weights have gradients.
        None => (parameters(config), 3.0),
        Some(r) => (adapter_parameters(config, r), 2.0),
    };
    let alone = accumulation * CLIPS * passes * forward_flops(config) / (MFU * PEAK);
    let latency = LATENCY + MESSAGE * (gpus - 1) as f64;
    let setting = Setting { ranks: gpus, bytes: 4.0 * parameters, alone };
    alone / Link { host: HOST, bandwidth, latency }.step(&setting)
}

/// Of all matrices; biases and norms are a thousandth of them.
fn parameters(config: &WhisperConfig) -> f64 {
    let [d, vocabulary] = [config.d_model, config.vocab_size].map(|n| n as f64);
    let [encoder, decoder] = [config.encoder_layers, config.decoder_layers].map(|n| n as f64);
    let ffn = config.encoder_ffn_dim as f64;
    encoder * (4.0 * d * d + 2.0 * d * ffn) + decoder * (8.0 * d * d + 2.0 * d * ffn) + vocabulary * d
}

/// Two matrices for the queries and the values of each attention.
fn adapter_parameters(config: &WhisperConfig, r: f64) -> f64 {
    let attentions = (config.encoder_layers + 2 * config.decoder_layers) as f64;
    attentions * 2.0 * 2.0 * r * config.d_model as f64
}

/// Of a clip of 30 s, as `Whisper::forward_flops` counts them.
fn forward_flops(config: &WhisperConfig) -> f64 {
    let [d, vocabulary, mel] = [config.d_model, config.vocab_size, config.num_mel_bins].map(|n| n as f64);
    let [encoder, decoder] = [config.encoder_layers, config.decoder_layers].map(|n| n as f64);
    let (ffn, positions) = (config.encoder_ffn_dim as f64, config.max_source_positions as f64);
    let front = 2.0 * 3.0 * (mel * d * 2.0 * positions + d * d * positions);
    let block = 2.0 * positions * (4.0 * d * d + 2.0 * d * ffn) + 4.0 * positions * positions * d;
    let cross = 2.0 * positions * 2.0 * d * d;
    let written = 2.0 * TOKENS * (6.0 * d * d + 2.0 * d * ffn) + 4.0 * TOKENS * (TOKENS + positions) * d;
    front + encoder * block + decoder * (cross + written) + 2.0 * TOKENS * d * vocabulary
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn what_is_counted_by_hand_is_what_the_network_counts() {
        let config = WhisperConfig { encoder_layers: 1, decoder_layers: 1, ..Size::Tiny.config() };
        let network = config.init(&Device::default());
        let counted = network.forward_flops(3000, TOKENS as usize);
        assert!((forward_flops(&config) / counted - 1.0).abs() < 0.01, "{} and {counted}", forward_flops(&config));
        let infos = undertone::store::parameter_infos(&network);
        let all: usize = infos.iter().map(|p| p.shape.iter().product::<usize>()).sum();
        // Positions, convolutions, biases and norms are left out.
        assert!((parameters(&config) / all as f64 - 1.0).abs() < 0.06, "{} and {all}", parameters(&config));
    }

    #[test]
    fn more_gpus_compute_for_a_smaller_share_and_accumulation_for_a_larger_one() {
        let share = |accumulation, gpus| share(&Size::Small.config(), None, accumulation, gpus, 3e9);
        assert_eq!(share(1.0, 1), 1.0);
        assert!(share(1.0, 8) > share(1.0, 1024) && share(8.0, 1024) > share(1.0, 1024));
    }
}
