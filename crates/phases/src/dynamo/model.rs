//! The network of a DYNAMO run.

use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::num::NonZeroUsize;
use undertone_model::layers::{Linear, mean_pool};
use undertone_model::lora::{AdaptError, Adaptable, Gates, LoraConfig, Site, adapt};
use undertone_model::router::{Router, RouterConfig};
use undertone_model::text::TextEncoder;
use undertone_model::whisper::{DecoderCache, Whisper};
use undertone_tasks::{Answer, AnswerContext, BoxedHead, HeadConfig, HeadInput, TaskHead};
use undertone_train::BoxError;

/// A frozen backbone with a bank of adapters above the tap, a head for each task, and a router.
#[derive(Module, Debug)]
pub struct Dynamo {
    /// The backbone, with the adapters in its linear maps.
    pub backbone: BackboneNetwork,
    /// One for each task; a baseline on a speech backbone has one for all.
    pub heads: Vec<BoxedHead>,
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

/// What tells the decoder its task: a learned vector added to the embedding of the start token.
#[derive(Module, Debug)]
pub struct PromptHead {
    /// `[d_model]`; begins at 0.
    pub start: Param<Tensor<1>>,
}

/// Its backbone's decoder writes, and [`prompted`] is how.
impl TaskHead for PromptHead {
    fn loss(&self, _: HeadInput) -> Result<Tensor<1>, BoxError> {
        Err(PROMPTS_ONLY.into())
    }

    fn answer(&self, _: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        Err(PROMPTS_ONLY.into())
    }
}

const PROMPTS_ONLY: &str = "a head that tells a speech backbone's decoder its task makes nothing of states by itself";

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
    pub fn head(&self, config: &HeadConfig, device: &Device) -> BoxedHead {
        match self {
            Self::Whisper(_) => {
                let start = Param::from_tensor(Tensor::zeros([self.d_model()], device));
                BoxedHead::new("Prompt", PromptHead { start })
            }
            Self::Text(encoder) => config.head(&encoder.embeddings.word_embeddings, device),
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
        let mut heads = self.heads;
        heads.iter_mut().for_each(|head| head.set_gradient_checkpointing(every));
        Self { backbone, heads, ..self }
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
/// If there is no head, or one that is no [`PromptHead`].
pub fn prompted(
    whisper: &Whisper,
    heads: &[BoxedHead],
    states: Tensor<3>,
    gates: Option<Gates>,
    prompts: Tensor<2>,
) -> DecoderCache {
    let prompts_of = heads.iter().filter_map(|head| head.downcast_ref::<PromptHead>());
    let starts = prompts_of.map(|prompt| prompt.start.val().unsqueeze_dim(0));
    let start = undertone_ops::matmul(prompts, Tensor::cat(starts.collect(), 0));
    whisper.decoder.cache(states, gates).with_start(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use undertone_model::text::TextEncoderConfig;
    use undertone_store::parameter_infos;

    /// Checkpoints, parameter groups and what is frozen go by these paths, optimizers by their order.
    #[test]
    fn parameters_have_the_paths_that_checkpoints_know() {
        let device = Device::default();
        let config = TextEncoderConfig {
            vocab_size: 20,
            hidden_size: 8,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            intermediate_size: 16,
            max_position_embeddings: 16,
            ..Default::default()
        };
        let heads = [
            json!({"type": "classify", "labels": ["a", "b"]}),
            json!({"type": "span"}),
            json!({"type": "tag", "labels": ["O", "B-x"]}),
            json!({"type": "seq2seq", "layers": 1, "heads": 2, "ffn": 16, "max_target": 8}),
        ];
        let heads = heads.map(|head| serde_json::from_value::<HeadConfig>(head).expect("a head"));
        let lora = LoraConfig { r: 1, target_modules: vec!["query".into()], ..Default::default() };
        let backbone = BackboneNetwork::Text(config.init(&device));
        let model = Dynamo::new(backbone, &vec![lora; 4], &heads.each_ref(), 0, &device).expect("a model");
        let model = model.with_router(&RouterConfig { hidden: vec![4], ..Default::default() }, &device);
        let names: Vec<String> = parameter_infos(&model).into_iter().map(|parameter| parameter.name).collect();
        assert_eq!(names, include_str!("fixtures/paths.txt").lines().collect::<Vec<_>>());
    }
}
