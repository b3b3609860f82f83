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
//!   medium, bf16, batch 16 and 64; `bench step`) it is 5 % lower to 5 % higher. For RoBERTa base with LoRA on 128 tokens (bf16, batch 32 and 64)
//!   it is 18 and 23 % higher;
//! - Vulkan: `cargo xtask bench device --size tiny --batch 1 --device wgpu` reserves 902 MiB with 32 tokens, as estimated.
//!
//! A CTC loss on tiny in f32 on the CPU (batch 4) takes 0.66 GB more than steps without, and 7 % less by the estimate.
//!
//! **What was not:** LibTorch's memory, and that of a CTC loss on a GPU, are only computed.

use crate::execution::Execution;
use crate::stack::Stack;
use undertone_model::frozen::FrozenDtype;
use undertone_model::target::Target;
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
    /// Number of classes of a CTC loss on the encoder's states; 0 without one.
    ctc: u64,
    /// Bytes of the optimizer's state for a trainable parameter.
    optimizer_state: u64,
    /// Bytes of another model in memory.
    beside: u64,
}

/// Maximum number of logits that composed operations hold at a time.
const PIECE: u64 = 1 << 26;

/// Bytes of AdamW's two moments of a parameter.
const ADAMW: u64 = 8;

/// Bytes per trainable parameter for its copy as loaded.
const LOADED: u64 = 4;

/// Number of 10 ms frames per encoder position of 20 ms.
const FRAMES: u64 = 2;

impl Footprint {
    /// Returns the footprint of full training of a Whisper, on full windows and the longest texts.
    pub fn whisper(config: &WhisperConfig) -> Self {
        let [d, mel, window, texts, vocabulary] = [
            config.d_model, config.num_mel_bins, config.max_source_positions, config.max_target_positions,
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
            ctc: 0,
            optimizer_state: ADAMW,
            beside: 0,
        }
    }

    /// Returns the footprint of full training of a text encoder, on sequences of `tokens` tokens.
    pub fn text(config: &TextEncoderConfig, tokens: usize) -> Self {
        let [d, ffn, layers, heads, vocabulary] = [
            config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
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
            ctc: 0,
            optimizer_state: ADAMW,
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

    /// Returns the same model with a CTC loss over `classes` classes on the encoder's states. The parameters of its output layer are not added.
    pub fn with_ctc(self, classes: usize) -> Self {
        Self { ctc: classes as u64, ..self }
    }

    /// Returns the same model with an optimizer that keeps so many bytes for each trainable parameter: AdamW 8, for two moments, which
    /// is assumed without it; Adafactor next to none, for it keeps a row and a column of each matrix.
    pub fn with_optimizer_state(self, bytes: u64) -> Self {
        Self { optimizer_state: bytes, ..self }
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

    /// Returns the sum of `parameters(in, out)` over the linear maps in all blocks that one of the targets names.
    pub(crate) fn adapted(&self, targets: &[Target], parameters: impl Fn(u64, u64) -> u64) -> u64 {
        let [encoder, decoder] = [Some(&self.encoder), self.decoder.as_ref()];
        [encoder, decoder].into_iter().flatten().map(|stack| stack.adapted(targets, &parameters)).sum()
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
        let logits = |classes: u64| 8 * batch.saturating_mul(classes).min(PIECE);
        let decoder = self.decoder.as_ref().map_or(0, |decoder| {
            scores(decoder, self.encoder.positions).max(logits(decoder.positions * self.vocabulary))
        });
        scores(&self.encoder, 0).max(decoder).max(logits(self.encoder.positions * self.ctc))
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
            + (4 + self.optimizer_state + LOADED + summed) * self.trainable
            + 4 * (frozen - held)
            + self.frozen.bytes() * held
            + copies
            // Gradients of the CTC loss's output layer that exist beside their sum: as the forward pass computes it, the same scaled, and that
            // of the classes of a text.
            + 12 * self.ctc * self.encoder.width
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
        // What exists beside the encoder's activations at the end of the forward pass, and is gone when the backward pass reaches the encoder.
        let after_encoder = decoder + self.ctc_bytes();
        let reserved =
            |bytes: u128| u64::try_from(bytes * u128::from(execution.fitted().percent) / 100).unwrap_or(u64::MAX);
        let gradients = if self.trains_encoder { self.encoder.gradients(execution) } else { 0 };
        let gradients = gradients.max(self.decoder.map_or(0, |decoder| decoder.gradients(execution)));
        Activations { all: reserved(encoder + memory + after_encoder), encoder: reserved(encoder + memory), gradients }
    }

    /// Returns the bytes that the CTC loss of one sample takes: the gradient of the encoder's states, and about eight tensors over the classes
    /// of its own text at each position, all in f32.
    fn ctc_bytes(&self) -> u128 {
        let own = self.ctc.min(1 + self.labels() as u64);
        let states = if self.ctc > 0 { self.encoder.width } else { 0 };
        4 * u128::from(self.encoder.positions) * u128::from(states + 8 * own)
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
mod tests;
