//! The network of a DYNAMO run.

use super::head_config::HeadConfig;
use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::heads::{ClassifyHead, SpanHead, TagHead};
use undertone_model::layers::{Linear, mean_pool};
use undertone_model::lora::{AdaptError, Adaptable, Gates, LoraConfig, Site, adapt};
use undertone_model::router::{Router, RouterConfig};
use undertone_model::text::TextEncoder;
use undertone_model::text_decoder::row_norm;
use undertone_model::whisper::{DecoderCache, Whisper, WhisperDecoder};

/// A frozen backbone with a bank of adapters above the tap, a head for each task, and a router.
#[derive(Module, Debug)]
pub struct Dynamo {
    /// The backbone, with the adapters in its linear maps.
    pub backbone: BackboneNetwork,
    /// One for each task; a baseline on a speech backbone has one for all.
    pub heads: Vec<Head>,
    /// From phase 2 on.
    pub router: Option<Router>,
    #[module(skip)]
    tap: usize,
    #[module(skip)]
    adapters: usize,
}

/// What reads the inputs of all tasks.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)] // there is one in a run
pub enum BackboneNetwork {
    /// Speech.
    Whisper(Whisper),
    /// Text.
    Text(TextEncoder),
}

/// What a task's answers are made by.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)] // there are as many as tasks
pub enum Head {
    /// The decoder of a speech backbone, told its task.
    Prompt(PromptHead),
    /// A label for a text.
    Classify(ClassifyHead),
    /// A span of a context.
    Span(SpanHead),
    /// A tag for each token.
    Tag(TagHead),
    /// Text, by a decoder over the backbone's own embeddings.
    Seq2seq(TextWriter),
}

/// A small decoder that reads, at every token of the source, the backbone's state and the token's own embedding beside
/// it: states of an encoder that was trained for something else say what a text is about rather than its words, and a
/// summary or a translation has to repeat some of those.
#[derive(Module, Debug)]
pub struct TextWriter {
    /// What writes.
    pub decoder: WhisperDecoder,
    /// Brings embeddings to the scale of a normed state: numbers of variance 1.
    #[module(skip)]
    scale: f64,
}

impl TextWriter {
    /// Around a fresh decoder, whose attention to the source begins as one that repeats: values pass through as they are,
    /// at the scale of embeddings, so that where it looks is what it says. Only where to look is left to be found, and
    /// that a few thousand texts can teach.
    fn new(mut decoder: WhisperDecoder, device: &Device) -> Self {
        let d_model = decoder.embed_tokens.weight.dims()[1];
        let norm = row_norm(&decoder.embed_tokens);
        let scale = if norm > 0.0 { (d_model as f64).sqrt() / norm } else { 1.0 };
        let passes = |factor: f64| Param::from_tensor(Tensor::<2>::eye(d_model, device).mul_scalar(factor));
        for layer in &mut decoder.layers {
            layer.encoder_attn.v_proj.weight = passes(scale.recip());
            layer.encoder_attn.out_proj.weight = passes(1.0);
        }
        Self { decoder, scale }
    }

    /// Ready to write: `states`, `[batch, tokens, d_model]`, are the backbone's for `ids`, `[batch, tokens]`.
    pub fn cache(&self, states: Tensor<3>, ids: Tensor<2, Int>, padding: Tensor<2, Bool>) -> DecoderCache {
        let words = self.decoder.embed_tokens.forward(ids).mul_scalar(self.scale);
        self.decoder.cache(states + words, None).with_padding(padding)
    }
}

/// What tells the decoder its task: a learned vector added to the embedding of the start token.
#[derive(Module, Debug)]
pub struct PromptHead {
    /// `[d_model]`; begins at 0.
    pub start: Param<Tensor<1>>,
}

/// What a backbone reads.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one in a batch
pub enum Input {
    /// Log-mel features, `[batch, mel bins, frames]`.
    Mel(Tensor<3>),
    /// Tokens and their types, `[batch, tokens]` each.
    Tokens(Tensor<2, Int>, Tensor<2, Int>),
}

/// A batch at the tap.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The residual stream, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// True where an input has ended, `[batch, time]`.
    pub padding: Tensor<2, Bool>,
    /// The mean of the states over valid positions, `[batch, d_model]`.
    pub pooled: Tensor<2>,
}

impl BackboneNetwork {
    /// The width of its states.
    pub fn d_model(&self) -> usize {
        match self {
            Self::Whisper(whisper) => whisper.decoder.embed_tokens.weight.dims()[1],
            Self::Text(encoder) => encoder.embeddings.word_embeddings.weight.dims()[1],
        }
    }

    /// How many encoder blocks it has.
    pub fn blocks(&self) -> usize {
        match self {
            Self::Whisper(whisper) => whisper.encoder.layers.len(),
            Self::Text(encoder) => encoder.encoder.layer.len(),
        }
    }

    /// A fresh head on it.
    pub fn head(&self, config: &HeadConfig, device: &Device) -> Head {
        let d_model = self.d_model();
        match (self, config) {
            (Self::Text(encoder), HeadConfig::Seq2seq(config)) => {
                let decoder = config.decoder().init(&encoder.embeddings.word_embeddings, device);
                Head::Seq2seq(TextWriter::new(decoder, device))
            }
            (_, HeadConfig::Seq2seq(_)) => {
                Head::Prompt(PromptHead { start: Param::from_tensor(Tensor::zeros([d_model], device)) })
            }
            (_, HeadConfig::Classify(config)) => {
                Head::Classify(config.head().init(d_model, config.labels.len(), device))
            }
            (_, HeadConfig::Span(config)) => Head::Span(config.head().init(d_model, device)),
            (_, HeadConfig::Tag(config)) => Head::Tag(config.head().init(d_model, config.labels.len(), device)),
        }
    }
}

impl Adaptable for BackboneNetwork {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        match self {
            Self::Whisper(whisper) => whisper.linears(),
            Self::Text(encoder) => encoder.linears(),
        }
    }
}

impl Dynamo {
    /// A model around `backbone`, which is frozen, with an adapter for each of `adapters` on the blocks above `tap`, and
    /// a fresh head for each of `heads`.
    ///
    /// # Errors
    /// When an adapter's target names no linear map.
    pub fn new(
        backbone: BackboneNetwork,
        adapters: &[LoraConfig],
        heads: &[&HeadConfig],
        tap: usize,
        device: &Device,
    ) -> Result<Self, AdaptError> {
        let mut backbone = backbone.no_grad();
        if !adapters.is_empty() {
            adapt(&mut backbone, adapters, tap, device)?;
        }
        let heads = heads.iter().map(|config| backbone.head(config, device)).collect();
        Ok(Self { backbone, heads, router: None, tap, adapters: adapters.len() })
    }

    /// Adds a fresh router over all heads.
    pub fn with_router(mut self, config: &RouterConfig, device: &Device) -> Self {
        self.router = Some(config.init(self.backbone.d_model(), self.heads.len(), device));
        self
    }

    /// Keeps only the input of every `every` blocks of backbone and decoders for the backward pass, which runs them again;
    /// none keeps everything.
    pub fn with_gradient_checkpointing(self, every: Option<NonZeroUsize>) -> Self {
        let backbone = match self.backbone {
            BackboneNetwork::Whisper(whisper) => BackboneNetwork::Whisper(whisper.with_gradient_checkpointing(every)),
            BackboneNetwork::Text(encoder) => BackboneNetwork::Text(encoder.with_gradient_checkpointing(every)),
        };
        let heads = self.heads.into_iter().map(|head| match head {
            Head::Seq2seq(writer) => {
                let decoder = writer.decoder.with_gradient_checkpointing(every);
                Head::Seq2seq(TextWriter { decoder, ..writer })
            }
            other => other,
        });
        Self { backbone, heads: heads.collect(), ..self }
    }

    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        self.adapters
    }

    /// What the router reads and the adapters begin from. `padding`: `[batch, positions]`, true where an input has ended.
    ///
    /// # Panics
    /// If the backbone reads something else.
    pub fn tap(&self, input: Input, padding: Tensor<2, Bool>) -> Tapped {
        let states = match (&self.backbone, input) {
            (BackboneNetwork::Whisper(whisper), Input::Mel(mel)) => {
                let encoder = &whisper.encoder;
                encoder.blocks(encoder.front_end(mel, 0), 0..self.tap, None)
            }
            (BackboneNetwork::Text(encoder), Input::Tokens(ids, types)) => {
                let x = encoder.embed(ids, Some(types), Some(&padding));
                encoder.blocks(x, 0..self.tap, Some(&padding), None)
            }
            _ => panic!("a speech backbone reads mel features, a text backbone tokens"),
        };
        // Nothing is trained below the tap, and the router must not be a way around that.
        let pooled = mean_pool(states.clone().detach(), Some(&padding));
        Tapped { states, padding, pooled }
    }

    /// The backbone's last states, `[batch, time, d_model]`.
    pub fn encode(&self, tapped: &Tapped, gates: Option<&Gates>) -> Tensor<3> {
        let (x, above) = (tapped.states.clone(), self.tap..self.backbone.blocks());
        match &self.backbone {
            BackboneNetwork::Whisper(whisper) => {
                whisper.encoder.layer_norm.forward(whisper.encoder.blocks(x, above, gates))
            }
            BackboneNetwork::Text(encoder) => encoder.blocks(x, above, Some(&tapped.padding), gates),
        }
    }
}

/// A speech backbone's decoder, ready to decode `states`, `[batch, time, d_model]`; `prompts` is each input's weight on each
/// of `heads`, `[batch, heads]`.
///
/// # Panics
/// If there is no head, or one that is no [`Head::Prompt`].
pub fn prompted(
    whisper: &Whisper,
    heads: &[Head],
    states: Tensor<3>,
    gates: Option<Gates>,
    prompts: Tensor<2>,
) -> DecoderCache {
    let starts = heads.iter().filter_map(|head| match head {
        Head::Prompt(prompt) => Some(prompt.start.val().unsqueeze_dim(0)),
        _ => None,
    });
    let start = undertone_ops::matmul(prompts, Tensor::cat(starts.collect(), 0));
    whisper.decoder.cache(states, gates).with_start(start)
}
