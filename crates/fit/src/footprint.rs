//! Estimate of the memory that training takes.
//!
//! `fixed + state + most(activations, gradients) + pieces`:
//! - state: 12 bytes for each trainable parameter (itself and AdamW's two moments in f32), 4 for a frozen one, or 2 if it is in a matrix
//!   that is held in half precision; 4 more for each trainable one in its state as loaded, which a run keeps; 4 more if gradients are
//!   accumulated over several batches; and 2 more for each parameter if products are in half precision;
//! - activations: the tensors of a sample's forward pass that its backward pass needs, counted one by one in [`Stack`];
//! - gradients: 4 bytes for each trainable parameter. The backward pass frees activations as it makes gradients, so what counts is the
//!   largest of three moments: all activations, those of the encoder beside the gradients of what comes after it, or all gradients; and in the
//!   first two also gradients of activations;
//! - pieces: the attention scores or logits that composed operations hold at a time, of the whole batch but at most 2²⁶; more
//!   scores on devices with more than 32 GiB.
//!
//! **What was measured**, without the copy of the parameters as loaded, which benchmarks do not keep (2026-11-28):
//! - CPU: `cargo xtask bench step --tokens 448 --device cpu`, peak of the process, tiny and base in f32 and bf16, batch 1 to 8: the
//!   estimate is 1 % lower to 9 % higher; with LoRA 12 to 15 % higher;
//! - CUDA: `cargo xtask bench host`, what CubeCL has reserved after some steps, on a driver that computes nothing: tiny to large-v3, batch 2 to 64, with
//!   and without LoRA, in f32, bf16 and f16, on nine cards: 2 % lower to 12 % higher. On a real H200 it reserved 25.4 GiB for Whisper
//!   small in bf16 with batch 32, and 22.7 with LoRA of rank 32; the estimates are 5 % and 10 % higher. With activation checkpointing (small and
//!   medium, bf16, batch 16 and 64; `bench step`) it is 5 % lower to 5 % higher;
//! - Vulkan: `cargo xtask bench device --size tiny --batch 1 --device wgpu` reserves 902 MiB with 32 tokens, as estimated.
//!
//! **What was not:** LibTorch's memory is only computed.

use crate::execution::Execution;
use crate::stack::Stack;
use undertone_model::frozen::FrozenDtype;
use undertone_model::text::TextEncoderConfig;
use undertone_model::whisper::{EncoderBlock, PositionEmbeddings, WhisperConfig};
use undertone_ops::Implementation;

/// Dimensions of a model that determine its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    /// Number of parameters.
    pub parameters: u64,
    /// Number of trainable parameters.
    pub trainable: u64,
    /// Whether any parameter of the encoder is trained; otherwise none of its activations are kept.
    pub trains_encoder: bool,
    /// Number of elements of linear maps and the token embedding.
    matrices: u64,
    /// Type in which those of them that are frozen are held.
    frozen: FrozenDtype,
    encoder: Stack,
    decoder: Option<Stack>,
    /// Number of elements kept in front of the first block.
    front: u64,
    vocabulary: u64,
    /// Bytes of another model in memory.
    beside: u64,
}

/// Maximum number of logits that composed operations hold at a time.
const PIECE: u64 = 1 << 26;

/// Bytes per trainable parameter for its copy as loaded.
const LOADED: u64 = 4;

/// Number of 10 ms frames per encoder position of 20 ms.
const FRAMES: u64 = 2;

impl Footprint {
    /// Returns the footprint of full training of a Whisper, on full windows and the longest texts.
    pub fn whisper(config: &WhisperConfig) -> Self {
        let [d, mel, window, texts, vocabulary] = [
            config.d_model,
            config.num_mel_bins,
            config.max_source_positions,
            config.max_target_positions,
            config.vocab_size,
        ]
        .map(|n| n as u64);
        let [encoder_keys, decoder_keys] = config.key_value_widths().map(|width| width as u64);
        let encoder = Stack {
            layers: config.encoder_layers as u64,
            width: d,
            keys: encoder_keys,
            ffn: config.encoder_ffn_dim as u64,
            heads: config.encoder_attention_heads as u64,
            attentions: 1,
            conformer: config.encoder_block == EncoderBlock::Conformer,
            positions: window,
            drops: config.attention_dropout > 0.0,
        };
        let decoder = Stack {
            layers: config.decoder_layers as u64,
            keys: decoder_keys,
            ffn: config.decoder_ffn_dim as u64,
            heads: config.decoder_attention_heads as u64,
            attentions: 2,
            conformer: false,
            positions: texts,
            ..encoder
        };
        let parameters = u64::try_from(config.parameters()).unwrap_or(u64::MAX);
        let is_absolute = config.position_embeddings_type == PositionEmbeddings::Absolute;
        let sinusoids = if is_absolute { window * d } else { 0 };
        // Mel features; the first convolution before and after its GELU; the same of the second, and with positions
        // added.
        let front = FRAMES * window * (mel + 2 * d) + 3 * window * d;
        Self {
            parameters,
            trainable: parameters - sinusoids,
            trains_encoder: true,
            matrices: vocabulary * config.embedding_width() as u64 + encoder.matrices() + decoder.matrices(),
            frozen: FrozenDtype::F32,
            encoder,
            decoder: Some(decoder),
            front,
            vocabulary,
            beside: 0,
        }
    }

    /// Returns the footprint of full training of a text encoder, on sequences of `tokens` tokens.
    pub fn text(config: &TextEncoderConfig, tokens: usize) -> Self {
        let [d, ffn, layers, heads, vocabulary] = [
            config.hidden_size,
            config.intermediate_size,
            config.num_hidden_layers,
            config.num_attention_heads,
            config.vocab_size,
        ]
        .map(|n| n as u64);
        let rows = vocabulary + (config.max_position_embeddings + config.type_vocab_size) as u64;
        let block = 4 * (d * d + d) + 2 * d * ffn + ffn + d + 4 * d;
        let parameters = rows * d + 2 * d + layers * block;
        let encoder = Stack {
            layers,
            width: d,
            keys: d,
            ffn,
            heads,
            attentions: 1,
            conformer: false,
            positions: tokens as u64,
            drops: config.attention_probs_dropout_prob > 0.0,
        };
        Self {
            parameters,
            trainable: parameters,
            trains_encoder: true,
            matrices: vocabulary * d + encoder.matrices(),
            frozen: FrozenDtype::F32,
            encoder,
            decoder: None,
            front: 3 * encoder.positions * d,
            vocabulary: 0,
            beside: 0,
        }
    }

    /// Returns the same model with `trainable` trainable parameters, some of them in the encoder if `trains_encoder`.
    pub fn training(self, trainable: u64, trains_encoder: bool) -> Self {
        Self { trainable, trains_encoder, ..self }
    }

    /// Returns the same model with its frozen matrices held in that type.
    pub fn holding(self, frozen: FrozenDtype) -> Self {
        Self { frozen, ..self }
    }

    /// Returns the same model beside another one of so many bytes, which is not trained.
    pub fn beside(self, bytes: u64) -> Self {
        Self { beside: bytes, ..self }
    }

    /// Type in which its frozen matrices are held.
    pub fn frozen(&self) -> FrozenDtype {
        self.frozen
    }

    /// Returns the same model on shorter sequences: encoder positions, and decoder tokens.
    pub fn on(mut self, positions: usize, tokens: usize) -> Self {
        self.front = self.front * positions as u64 / self.encoder.positions.max(1);
        self.encoder.positions = positions as u64;
        if let Some(decoder) = &mut self.decoder {
            decoder.positions = tokens as u64;
        }
        self
    }

    /// Returns the sum of `parameters(in, out)` over the linear maps in all blocks that a name refers to.
    pub(crate) fn adapted(&self, target: &str, parameters: impl Fn(u64, u64) -> u64) -> u64 {
        let [encoder, decoder] = [Some(&self.encoder), self.decoder.as_ref()];
        [encoder, decoder].into_iter().flatten().map(|stack| stack.adapted(target, &parameters)).sum()
    }

    /// Returns the number of parameters in the encoder's blocks.
    pub fn encoder_parameters(&self) -> u64 {
        self.encoder.matrices()
    }

    /// Returns the maximum sequence length of the encoder, in positions.
    pub fn positions(&self) -> usize {
        self.encoder.positions as usize
    }

    /// Returns the maximum text length of the decoder, in tokens; 0 without a decoder.
    pub fn labels(&self) -> usize {
        self.decoder.map_or(0, |decoder| decoder.positions as usize)
    }

    /// Returns the size of a batch's largest tensor, in bytes: that of the wide feed-forward layer of encoder or
    /// decoder.
    pub fn largest_tensor(&self, batch: usize) -> u64 {
        let wide = |stack: &Stack| 4 * stack.positions * stack.ffn;
        let sample = wide(&self.encoder).max(self.decoder.as_ref().map_or(0, wide));
        sample.saturating_mul(batch as u64)
    }

    /// Returns the peak memory of training with batches of `batch` samples and `accumulation` batches per step, in
    /// bytes.
    pub fn bytes(&self, batch: usize, accumulation: usize, execution: &Execution) -> u64 {
        let batch = batch as u64;
        let Activations { all, encoder, gradients } = self.activations(execution);
        let of_batch = |bytes: u64| batch.saturating_mul(bytes.saturating_add(gradients));
        let later = 4 * if self.trains_encoder {
            self.trainable.saturating_sub(self.encoder.matrices())
        } else {
            self.trainable
        };
        let most = of_batch(all).max(of_batch(encoder).saturating_add(later)).max(4 * self.trainable);
        let pieces = self.pieces_bytes(batch, execution);
        most.saturating_add(pieces).saturating_add(self.state_bytes(accumulation, execution))
    }

    /// Returns the part of [`bytes`](Self::bytes) that the copy of the trainable parameters as loaded takes, which a run keeps and steps
    /// alone do not.
    pub fn loaded_bytes(&self) -> u64 {
        LOADED * self.trainable
    }

    /// Returns the largest batch that fits into `bytes` bytes; 0 if not even one sample fits.
    pub fn largest_batch(&self, bytes: u64, accumulation: usize, execution: &Execution) -> usize {
        let left = bytes.saturating_sub(self.state_bytes(accumulation, execution));
        // Activations alone would allow this batch; with what is beside them it is smaller.
        let (mut fits, mut beyond) = (0, (left / self.activations(execution).all.max(1)) as usize + 1);
        while fits + 1 < beyond {
            let middle = fits.midpoint(beyond);
            if self.bytes(middle, accumulation, execution) <= bytes {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        fits
    }

    /// Returns the peak memory of scores or logits in composed operations, in bytes: scores, weights and their gradients,
    /// or logits and their gradient, always in f32.
    fn pieces_bytes(&self, batch: u64, execution: &Execution) -> u64 {
        if execution.implementation != Implementation::Composed {
            return 0;
        }
        let scores = |stack: &Stack, memory: u64| {
            let all = batch.saturating_mul(stack.heads * stack.positions * stack.positions.max(memory));
            12 * if stack.drops { all } else { all.min(execution.scores) }
        };
        let decoder = self.decoder.as_ref().map_or(0, |decoder| {
            let logits = batch.saturating_mul(decoder.positions * self.vocabulary);
            scores(decoder, self.encoder.positions).max(8 * logits.min(PIECE))
        });
        scores(&self.encoder, 0).max(decoder)
    }

    /// Returns the bytes of the program, parameters, optimizer state and summed gradients, and of a model beside them.
    fn state_bytes(&self, accumulation: usize, execution: &Execution) -> u64 {
        let summed = if accumulation > 1 { 4 } else { 0 };
        // A copy of the parameters in half precision for the passes.
        let copied = if execution.is_half() { execution.element_bytes } else { 0 };
        // Adapters and heads are additional parameters, not included in those of the model.
        let frozen = self.parameters.saturating_sub(self.trainable);
        let held = if self.frozen == FrozenDtype::F32 { 0 } else { frozen.min(self.matrices) };
        // What is held in half precision needs no such copy.
        let copies = copied * (self.parameters - held);
        execution.fitted().fixed
            + (12 + LOADED + summed) * self.trainable
            + 4 * (frozen - held)
            + self.frozen.bytes() * held
            + copies
            + self.beside
    }

    /// Returns the bytes that one sample takes between forward and backward pass.
    fn activations(&self, execution: &Execution) -> Activations {
        let encoder = self.encoder.kept(0, execution);
        let encoder = match self.trains_encoder {
            true => u128::from(execution.element_bytes * self.front) + encoder,
            // In a frozen encoder the tensors of about two blocks exist at the same time.
            false => 2 * encoder / u128::from(self.encoder.layers.max(1)),
        };
        // Keys and values of the encoder output, in each decoder block; in one at a time if blocks run again.
        let memory = self.decoder.map_or(0, |decoder| {
            let layers = if execution.checkpointed { 1 } else { decoder.layers };
            let [layers, keys, positions] = [layers, decoder.keys, self.encoder.positions].map(u128::from);
            u128::from(execution.element_bytes) * 2 * layers * keys * positions
        });
        let decoder = self.decoder.map_or(0, |decoder| decoder.kept(self.encoder.positions, execution));
        let reserved =
            |bytes: u128| u64::try_from(bytes * u128::from(execution.fitted().percent) / 100).unwrap_or(u64::MAX);
        let gradients = if self.trains_encoder { self.encoder.gradients(execution) } else { 0 };
        let gradients = gradients.max(self.decoder.map_or(0, |decoder| decoder.gradients(execution)));
        Activations { all: reserved(encoder + memory + decoder), encoder: reserved(encoder + memory), gradients }
    }
}

/// Bytes that one sample takes.
struct Activations {
    /// All that is kept at the end of the forward pass.
    all: u64,
    /// What is left of it when the backward pass reaches the encoder.
    encoder: u64,
    /// Gradients of activations that exist at the same time.
    gradients: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenAI's sizes: width, encoder and decoder blocks, heads, mel bins, vocabulary.
    fn whisper(size: (usize, usize, usize, usize, usize, usize)) -> WhisperConfig {
        let (d_model, encoder_layers, decoder_layers, heads, num_mel_bins, vocab_size) = size;
        WhisperConfig {
            d_model,
            encoder_layers,
            decoder_layers,
            encoder_attention_heads: heads,
            decoder_attention_heads: heads,
            encoder_ffn_dim: 4 * d_model,
            decoder_ffn_dim: 4 * d_model,
            num_mel_bins,
            vocab_size,
            ..Default::default()
        }
    }

    const TINY: (usize, usize, usize, usize, usize, usize) = (384, 4, 4, 6, 80, 51865);
    const BASE: (usize, usize, usize, usize, usize, usize) = (512, 6, 6, 8, 80, 51865);
    const SMALL: (usize, usize, usize, usize, usize, usize) = (768, 12, 12, 12, 80, 51865);
    const MEDIUM: (usize, usize, usize, usize, usize, usize) = (1024, 24, 24, 16, 80, 51865);
    const LARGE: (usize, usize, usize, usize, usize, usize) = (1280, 32, 32, 20, 128, 51866);

    #[test]
    fn parameters_are_those_of_the_published_models() {
        for (size, parameters) in [
            (TINY, 37_760_640),
            (BASE, 72_593_920),
            (SMALL, 241_734_912),
            (MEDIUM, 763_857_920),
            (LARGE, 1_543_490_560),
            ((1280, 32, 4, 20, 128, 51866), 808_878_080),
        ] {
            assert_eq!(Footprint::whisper(&whisper(size)).parameters, parameters, "{size:?}");
        }
        // bert-base-uncased without its pooler of 590,592.
        assert_eq!(Footprint::text(&TextEncoderConfig::default(), 512).parameters, 109_482_240 - 590_592);
    }

    /// Returns the estimate by what was measured, without the copy as loaded, which benchmarks do not keep.
    fn ratio(footprint: &Footprint, batch: usize, execution: &Execution, mib: u32) -> f64 {
        let bytes = footprint.bytes(batch, 1, execution) - footprint.loaded_bytes();
        bytes as f64 / 1_048_576.0 / f64::from(mib)
    }

    #[test]
    fn cpus_hold_what_was_measured() {
        let half = Execution::CPU.in_half();
        for (size, batch, execution, mib) in [
            (TINY, 1, Execution::CPU, 949),
            (TINY, 4, Execution::CPU, 1600),
            (TINY, 8, Execution::CPU, 2563),
            (BASE, 1, Execution::CPU, 1523),
            (TINY, 1, half, 859),
            (TINY, 2, half, 1011),
            (TINY, 4, half, 1280),
            (TINY, 8, half, 1836),
            (BASE, 2, half, 1714),
            (TINY, 1, Execution::COMPOSED, 1100),
            (TINY, 2, Execution::COMPOSED, 1563),
            (TINY, 4, Execution::COMPOSED, 2358),
        ] {
            let ratio = ratio(&Footprint::whisper(&whisper(size)), batch, &execution, mib);
            println!("{size:?} batch {batch} {execution:?}: {ratio:.3}");
            assert!(
                (0.96..1.1).contains(&ratio),
                "{size:?} batch {batch} {execution:?}: {ratio:.3} of what was measured"
            );
        }
        let run = Footprint::whisper(&whisper(TINY)).bytes(1, 2, &Execution::CPU) as f64 / 1.25e9;
        assert!((0.99..1.1).contains(&run), "{run} of what fine-tuning held");
    }

    #[test]
    fn cuda_reserves_what_was_measured() {
        let (full, half) = (Execution::GPU, Execution::GPU.in_half());
        let lora = crate::trained::tests::adapters(32, &["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]);
        for (size, batch, tokens, execution, all, adapters) in [
            (TINY, 16, 32, half, 2875, 2438),
            (TINY, 64, 32, half, 9449, 8380),
            (BASE, 16, 32, half, 4916, 4304),
            (SMALL, 8, 32, half, 9433, 7384),
            (SMALL, 8, 128, half, 9677, 0),
            (SMALL, 32, 32, half, 26437, 23173),
            (SMALL, 32, 128, half, 26870, 0),
            (MEDIUM, 4, 32, half, 19070, 12267),
            (MEDIUM, 16, 32, half, 41518, 33525),
            (LARGE, 2, 32, half, 0, 15832),
            (LARGE, 8, 32, half, 0, 35229),
            (TINY, 16, 32, full, 3868, 0),
            (TINY, 64, 32, full, 13477, 0),
            (SMALL, 4, 32, full, 7827, 5907),
            (SMALL, 16, 32, full, 21750, 19012),
        ] {
            let footprint = Footprint::whisper(&whisper(size)).on(1500, tokens);
            for (footprint, mib) in [(footprint, all), (footprint.training_part(&lora), adapters)] {
                if mib == 0 {
                    continue;
                }
                let ratio = ratio(&footprint, batch, &execution, mib);
                println!("{size:?} batch {batch} {}: {ratio:.3}", execution.element_bytes);
                assert!((0.97..1.12).contains(&ratio), "{size:?} batch {batch}: {ratio:.3} of what was reserved");
            }
        }
    }

    #[test]
    fn cuda_reserves_what_was_measured_where_blocks_run_again_or_gradients_are_summed() {
        let half = Execution::GPU.in_half();
        let again = Execution { checkpointed: true, ..half };
        for (size, batch, accumulation, execution, mib) in [
            (SMALL, 16, 1, again, 6259),
            (SMALL, 64, 1, again, 13431),
            (MEDIUM, 16, 1, again, 17634),
            (SMALL, 4, 2, half, 7746),
        ] {
            let footprint = Footprint::whisper(&whisper(size)).on(1500, 32);
            let bytes = footprint.bytes(batch, accumulation, &execution) - footprint.loaded_bytes();
            let ratio = bytes as f64 / 1_048_576.0 / f64::from(mib);
            println!("{size:?} batch {batch}: {ratio:.3}");
            assert!((0.94..1.1).contains(&ratio), "{size:?} batch {batch}: {ratio:.3} of what was reserved");
        }
    }

    #[test]
    fn vulkan_reserves_what_was_measured() {
        let ratio = ratio(&Footprint::whisper(&whisper(TINY)).on(1500, 32), 1, &Execution::GPU, 902);
        assert!((0.97..1.1).contains(&ratio), "{ratio} of what was reserved");
    }

    #[test]
    fn less_of_everything_takes_less() {
        let tiny = Footprint::whisper(&whisper(TINY));
        let all = tiny.bytes(4, 1, &Execution::GPU);
        let with = |execution: Execution| tiny.bytes(4, 1, &execution);
        assert!(with(Execution::CPU) < all, "fused kernels");
        assert!(with(Execution::GPU.in_half()) < all, "bf16");
        assert!(with(Execution { checkpointed: true, ..Execution::GPU }) < all, "checkpointing");
        assert!(tiny.training(tiny.trainable / 2, false).bytes(4, 1, &Execution::GPU) < all, "a frozen encoder");
        assert!(tiny.on(300, 64).bytes(4, 1, &Execution::GPU) < all, "short samples");
        assert!(tiny.bytes(4, 2, &Execution::GPU) > all, "summed gradients");
    }

    #[test]
    fn the_largest_batch_is_the_last_that_fits() {
        let tiny = Footprint::whisper(&whisper(TINY));
        for execution in [Execution::CPU, Execution::GPU] {
            for bytes in [1_000_000_000, 8_000_000_000, 24_000_000_000] {
                let batch = tiny.largest_batch(bytes, 1, &execution);
                assert!(batch == 0 || tiny.bytes(batch, 1, &execution) <= bytes);
                assert!(tiny.bytes(batch + 1, 1, &execution) > bytes);
            }
        }
        assert_eq!(tiny.largest_batch(500_000_000, 1, &Execution::CPU), 0);
    }

    #[test]
    fn what_is_frozen_takes_half_where_it_is_held_in_half_precision() {
        let large = Footprint::whisper(&whisper((1280, 32, 4, 20, 128, 51866)));
        let adapted = large.training(1_000_000, true);
        let held = adapted.holding(FrozenDtype::Bf16);
        let saved = |execution: &Execution| adapted.bytes(1, 1, execution) - held.bytes(1, 1, execution);
        // Nearly all parameters are in matrices of linear maps or in the vocabulary.
        let share = saved(&Execution::CPU) as f64 / (2.0 * large.parameters as f64);
        assert!((0.98..1.0).contains(&share), "{share}");
        // It is also its own copy for products in half precision.
        let half = Execution::GPU.in_half();
        assert_eq!(saved(&half), 2 * saved(&Execution::CPU));
        assert!(held.largest_batch(8_000_000_000, 1, &half) > adapted.largest_batch(8_000_000_000, 1, &half));
        // Of a model that is trained as a whole, only positions are frozen.
        assert!(large.bytes(1, 1, &half) - large.holding(FrozenDtype::F16).bytes(1, 1, &half) < 10_000_000);
        let bert = Footprint::text(&TextEncoderConfig::default(), 128).training(300_000, true);
        assert!(bert.holding(FrozenDtype::Bf16).bytes(8, 1, &half) + 200_000_000 < bert.bytes(8, 1, &half));
    }
}
