//! A program with a custom speech backbone and every command of Undertone: an encoder without a decoder that is
//! trained by CTC.
//!
//! The folder of the model has a `config.json`: `{"model_type": "ctc", "d_model": 64, "blocks": 2, "max_frames": 500}`.
//! Without a `model.safetensors` in it the weights are new. Training, evaluation and predictions are as with a Whisper:
//!
//! ```text
//! cargo run -p undertone-cli --example ctc -- train --config ctc.yaml
//! cargo run -p undertone-cli --example ctc -- eval --run runs/ctc
//! cargo run -p undertone-cli --example ctc -- predict --run runs/ctc --audio FILE.wav
//! ```
//!
//! `ctc.yaml` is in `docs/library.md`.

use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Tensor};
use serde::Deserialize;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use undertone::cw::morse;
use undertone::model::adaptable::{Adaptable, Site};
use undertone::model::adapters::Gates;
use undertone::model::backbone::{Backbone, BackboneInput, BoxedBackbone, WrongInput};
use undertone::model::layers::{Conv1d, Embedding, LayerNorm, Linear};
use undertone::model::whisper::TokenizerError;
use undertone::ops::{self, AttentionOptions, gelu};
use undertone::phases::backbone::{Ctc, SpeechBackbone, SpeechTokenizer};
use undertone::store::{TensorFile, load_parameters};
use undertone::train::BoxError;

fn main() -> std::process::ExitCode {
    undertone_cli::main(|kinds| kinds.speech_backbone("ctc", load))
}

/// `config.json` of the model.
#[derive(Deserialize)]
#[serde(default)]
struct Config {
    d_model: usize,
    heads: usize,
    blocks: usize,
    mel_bins: usize,
    /// Stride of the first convolution; that of the second is 2.
    stride: NonZeroUsize,
    /// Length of the window, in frames of 10 ms.
    max_frames: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { d_model: 64, heads: 4, blocks: 2, mel_bins: 80, stride: NonZeroUsize::MIN, max_frames: 1000 }
    }
}

/// Reads the model that `model: {backbone: ctc, path: folder}` names.
fn load(folder: &Path, device: &Device) -> Result<SpeechBackbone, BoxError> {
    let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
    if config.d_model == 0 || config.heads == 0 || !config.d_model.is_multiple_of(config.heads) {
        return Err(format!("`d_model` is {}, which {} heads do not divide", config.d_model, config.heads).into());
    }
    let frames_per_position = 2 * config.stride.get();
    // At most a character at each position.
    let longest = config.max_frames / frames_per_position;
    let tokenizer = Characters { characters: morse::alphabet().collect(), longest };
    let mut network = Encoder::new(&config, 1 + tokenizer.characters.len(), device);
    let weights = folder.join("model.safetensors");
    if weights.exists() {
        let weights = TensorFile::open(&weights)?;
        network = load_parameters(network, |name| weights.read(name))?;
    }
    let network = BoxedBackbone::new("Encoder", network);
    let speech = SpeechBackbone::new(network, tokenizer, Ctc { blank: BLANK }, config.mel_bins, config.max_frames);
    Ok(SpeechBackbone { frames_per_position, ..speech })
}

/// Token of the blank; those of the characters follow.
const BLANK: usize = 0;

/// A vocabulary of characters.
struct Characters {
    characters: Vec<char>,
    longest: usize,
}

impl SpeechTokenizer for Characters {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let token = |character: char| match self.characters.iter().position(|known| *known == character) {
            Some(index) => Ok(1 + index as u32),
            None => Err(TokenizerError::Unspellable { character, text: text.to_owned() }),
        };
        text.chars().map(token).collect()
    }

    fn decode(&self, tokens: &[u32]) -> String {
        tokens.iter().filter_map(|token| self.characters.get((*token as usize).checked_sub(1)?)).collect()
    }

    fn max_tokens(&self) -> usize {
        self.longest
    }
}

/// Two convolutions, blocks with self-attention, and the output layer.
#[derive(Module, Debug)]
struct Encoder {
    conv1: Conv1d,
    conv2: Conv1d,
    blocks: Vec<Block>,
    norm: LayerNorm,
    output: Embedding,
    output_bias: Param<Tensor<1>>,
}

/// `x + attention(norm(x))`, then `x + linear(gelu(convolution(norm(x))))`: the convolution tells the order of positions.
#[derive(Module, Debug)]
struct Block {
    attention_norm: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    norm: LayerNorm,
    convolution: Conv1d,
    linear: Linear,
    #[module(skip)]
    heads: usize,
}

impl Encoder {
    fn new(config: &Config, vocabulary: usize, device: &Device) -> Self {
        let (d, std) = (config.d_model, (config.d_model as f64).powf(-0.5));
        let conv = |d_in: usize, stride| Conv1d::init(d_in, d, stride, (3.0 * d_in as f64).powf(-0.5), device);
        Self {
            conv1: conv(config.mel_bins, config.stride.get()),
            conv2: conv(d, 2),
            blocks: (0..config.blocks).map(|_| Block::new(d, config.heads, device)).collect(),
            norm: LayerNorm::init(d, device),
            output: Embedding::init(vocabulary, d, std, device),
            output_bias: Param::from_tensor(Tensor::zeros([vocabulary], device)),
        }
    }
}

impl Block {
    fn new(d: usize, heads: usize, device: &Device) -> Self {
        let linear = || Linear::init(d, d, true, (d as f64).powf(-0.5), device);
        Self {
            attention_norm: LayerNorm::init(d, device),
            query: linear(),
            key: linear(),
            value: linear(),
            out: linear(),
            norm: LayerNorm::init(d, device),
            convolution: Conv1d::init(d, d, 1, (3.0 * d as f64).powf(-0.5), device),
            linear: linear(),
            heads,
        }
    }

    /// `x`: `[batch, time, d_model]`.
    fn forward(&self, x: Tensor<3>, padding: &Tensor<2, Bool>, gates: Option<&Gates>) -> Tensor<3> {
        let h = self.attention_norm.forward(x.clone());
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|map| map.forward_gated(h.clone(), gates));
        let options = AttentionOptions::new(self.heads).with_key_padding(Some(padding.clone()));
        let x = x + self.out.forward_gated(ops::attention(query, key, value, options), gates);
        let h = gelu(self.convolution.forward(self.norm.forward(x.clone())));
        x + self.linear.forward_gated(h, gates)
    }
}

impl Backbone for Encoder {
    /// The output layer: a row for each token.
    fn token_embedding(&self) -> &Embedding {
        &self.output
    }

    fn block_count(&self) -> usize {
        self.blocks.len()
    }

    fn embed(&self, input: BackboneInput, _: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput> {
        let (mel, _) = input.mel()?;
        let x = gelu(self.conv1.forward(mel.swap_dims(1, 2)));
        Ok(gelu(self.conv2.forward(x)))
    }

    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        self.blocks[blocks].iter().fold(x, |x, block| block.forward(x, padding, gates))
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        self.norm.forward(x)
    }

    fn writes_text(&self) -> bool {
        true
    }

    fn logits(&self, states: Tensor<3>) -> Tensor<3> {
        ops::linear(states, self.output.weight.val(), Some(self.output_bias.val()))
    }
}

/// Linear maps that adapters can target, by the last part of their path.
impl Adaptable for Encoder {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        let blocks = self.blocks.iter_mut().enumerate();
        let maps = blocks.flat_map(|(block, Block { query, key, value, out, linear, .. })| {
            [("query", query), ("key", key), ("value", value), ("out", out), ("linear", linear)]
                .map(|(name, linear)| (Site { path: format!("blocks.{block}.{name}"), block }, linear))
        });
        maps.collect()
    }
}
