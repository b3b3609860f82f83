//! The network of a run: a backbone, and what is trained on it.

use crate::{AlignmentConfig, ELEMENTS};
use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Device, Tensor};
use std::num::NonZeroUsize;
use undertone_model::backbone::{BackboneInput, BoxedBackbone, WrongInput};
use undertone_model::layers::{Linear, mean_pool};
use undertone_model::lora::{AdaptError, Gates, LoraConfig, adapt, set_adapters_trainable};
use undertone_model::router::{Router, RouterConfig};
use undertone_model::whisper::{DecoderCache, WhisperDecoder};
use undertone_store::set_trainable;
use undertone_tasks::{Answer, AnswerContext, BoxedHead, HeadConfig, HeadInput, TaskHead};
use undertone_train::BoxError;

/// A backbone with what is trained on it: a bank of adapters above the tap, a head for each task, a router; or nothing but
/// the backbone itself, which is then trained as it is.
#[derive(Clone, Debug)]
pub struct TaskModel {
    /// The backbone, with the adapters in its linear maps.
    pub backbone: BoxedBackbone,
    /// One for each task; a baseline on a speech backbone has one for all, and a backbone that is fine-tuned has none.
    pub heads: Vec<BoxedHead>,
    /// From phase 2 on.
    pub router: Option<Router>,
    /// Heads that only training needs.
    pub alignment: AlignmentHeads,
    tap: usize,
    adapters: usize,
    /// Whether it is a backbone that is fine-tuned, whose parameters have paths of their own.
    plain: bool,
}

/// Which parts of a model training changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainedParts {
    /// The backbone's own weights, but for its constants.
    pub backbone: bool,
    /// All adapters.
    pub adapters: bool,
    /// What heads have of their own.
    pub heads: bool,
    /// The router, but for what follows.
    pub router: bool,
    /// The router's temperature.
    pub router_temperature: bool,
    /// The router's judgement of itself.
    pub router_confidence: bool,
    /// Heads that read timing.
    pub alignment: bool,
}

/// What reads a synthesised sample's timing from the encoder of a speech backbone, in training.
#[derive(Module, Debug)]
pub struct AlignmentHeads {
    /// Encoder output → character token.
    pub character_head: Option<Linear>,
    /// An early encoder layer → Morse element.
    pub element_head: Option<Linear>,
    #[module(skip)]
    elements_layer: usize,
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

/// A batch at the tap.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The residual stream, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// True where an input has ended, `[batch, time]`.
    pub padding: Tensor<2, Bool>,
}

impl Tapped {
    /// What the router reads: the mean of the states over valid positions, `[batch, d_model]`. Nothing is trained below the
    /// tap, and the router must not be a way around that.
    pub fn pooled(&self) -> Tensor<2> {
        mean_pool(self.states.clone().detach(), Some(&self.padding))
    }
}

/// The encoder's output.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The last states, normalised, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// The residual stream that [`AlignmentHeads::element_head`] reads, where there is one.
    pub elements: Option<Tensor<3>>,
}

impl AlignmentHeads {
    /// Those that `config` asks for on a speech backbone.
    pub fn init(config: &AlignmentConfig, backbone: &BoxedBackbone, device: &Device) -> Self {
        let [vocabulary, d_model] = backbone.token_embedding().weight.dims();
        let head = |weight: f64, classes| {
            (weight > 0.0).then(|| Linear::init(d_model, classes, true, (d_model as f64).powf(-0.5), device))
        };
        Self {
            character_head: head(config.characters, vocabulary),
            element_head: head(config.elements, ELEMENTS),
            elements_layer: config.elements_layer.min(backbone.block_count()),
        }
    }

    fn none() -> Self {
        Self { character_head: None, element_head: None, elements_layer: 0 }
    }
}

impl TaskModel {
    /// A model around `backbone`, which is frozen, with an adapter for each of `adapters` on the blocks above `tap`, and
    /// a fresh head for each of `heads`.
    ///
    /// # Errors
    /// When an adapter's target names no linear map.
    pub fn new(
        backbone: BoxedBackbone,
        adapters: &[LoraConfig],
        heads: &[&HeadConfig],
        tap: usize,
        device: &Device,
    ) -> Result<Self, AdaptError> {
        let mut backbone = backbone.no_grad();
        if !adapters.is_empty() {
            adapt(&mut *backbone, adapters, tap, device)?;
        }
        let heads = heads.iter().map(|config| head(&backbone, config, device)).collect();
        let (alignment, adapters) = (AlignmentHeads::none(), adapters.len());
        Ok(Self { backbone, heads, router: None, alignment, tap, adapters, plain: false })
    }

    /// A Whisper that is fine-tuned, with its parameters trained or frozen as they are.
    pub fn plain(backbone: BoxedBackbone) -> Self {
        let (backbone, alignment) = (backbone.renamed("whisper"), AlignmentHeads::none());
        Self { backbone, heads: Vec::new(), router: None, alignment, tap: 0, adapters: 0, plain: true }
    }

    /// Adds a fresh router over all heads.
    pub fn with_router(mut self, config: &RouterConfig, device: &Device) -> Self {
        self.router = Some(config.init(self.backbone.d_model(), self.heads.len(), device));
        self
    }

    /// Adds the heads that read timing; a text backbone has none.
    pub fn with_alignment(mut self, config: &AlignmentConfig, device: &Device) -> Self {
        if self.backbone.decoder().is_some() {
            self.alignment = AlignmentHeads::init(config, &self.backbone, device);
            // Nothing else reads the stream of a backbone that is fine-tuned.
            self.tap = if self.plain { self.alignment.elements_layer } else { self.tap };
        }
        self
    }

    /// Keeps only the input of every `every` blocks of backbone and decoders for the backward pass, which runs them again;
    /// none keeps everything.
    pub fn with_gradient_checkpointing(mut self, every: Option<NonZeroUsize>) -> Self {
        self.backbone.set_gradient_checkpointing(every);
        self.heads.iter_mut().for_each(|head| head.set_gradient_checkpointing(every));
        self
    }

    /// Marks what training changes, by what each part is.
    pub fn with_trained(self, trained: TrainedParts) -> Self {
        let Self { backbone, heads, router, alignment, .. } = self;
        let constants = backbone.constants();
        // Below the name of its box the paths are the backbone's own.
        let is_constant = |path: &str| path.split_once('.').is_some_and(|(_, own)| constants.contains(&own));
        let mut backbone = set_trainable(backbone, |path| trained.backbone && !is_constant(path));
        set_adapters_trainable(&mut *backbone, trained.adapters);
        Self {
            backbone,
            heads: set_trainable(heads, |path| trained.heads && !is_shared(path)),
            router: set_trainable(router, |path| match path {
                "log_temperature" => trained.router_temperature,
                _ if path.starts_with("confidence") => trained.router_confidence,
                _ => trained.router,
            }),
            alignment: set_trainable(alignment, |_| trained.alignment),
            ..self
        }
    }

    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        self.adapters
    }

    /// What the router reads and the adapters begin from. `padding`: `[batch, positions]`, true where an input has ended.
    ///
    /// # Errors
    /// When the backbone reads something else.
    pub fn tap(&self, input: BackboneInput, padding: Tensor<2, Bool>) -> Result<Tapped, WrongInput> {
        let x = self.backbone.embed(input, &padding)?;
        Ok(Tapped { states: self.backbone.forward_blocks(x, 0..self.tap, &padding, None), padding })
    }

    /// The backbone's last states.
    pub fn encode(&self, tapped: &Tapped, gates: Option<&Gates>) -> Encoded {
        let blocks = |x, blocks| self.backbone.forward_blocks(x, blocks, &tapped.padding, gates);
        let (x, last) = (tapped.states.clone(), self.backbone.block_count());
        if self.alignment.element_head.is_none() {
            return Encoded { states: self.backbone.finish(blocks(x, self.tap..last)), elements: None };
        }
        let layer = self.alignment.elements_layer.max(self.tap);
        let x = if layer > self.tap { blocks(x, self.tap..layer) } else { x };
        let states = self.backbone.finish(blocks(x.clone(), layer..last));
        Encoded { states, elements: Some(x) }
    }
}

/// A fresh head on a backbone: one that writes by itself is told its task, any other is given the head's network.
fn head(backbone: &BoxedBackbone, config: &HeadConfig, device: &Device) -> BoxedHead {
    if backbone.decoder().is_none() {
        return config.head(backbone.token_embedding(), device);
    }
    BoxedHead::new("Prompt", PromptHead { start: Param::from_tensor(Tensor::zeros([backbone.d_model()], device)) })
}

/// Whether a head has the parameter from the backbone: the embeddings that it decodes with, which stay as they are.
pub(super) fn is_shared(path: &str) -> bool {
    path.ends_with("embed_tokens.weight")
}

/// Written by hand for the paths of parameters, which checkpoints and `train.optimizer.groups` have: a Whisper that is
/// fine-tuned is `whisper`, its alignment heads stand beside it, and all else is called as the fields are.
impl Module for TaskModel {
    fn collect_devices(&self, devices: Devices) -> Devices {
        let devices = self.heads.collect_devices(self.backbone.collect_devices(devices));
        self.alignment.collect_devices(self.router.collect_devices(devices))
    }

    fn fork(self, device: &Device) -> Self {
        self.each(PerPart::Fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.each(PerPart::ToDevice(device))
    }

    fn train(self) -> Self {
        self.each(PerPart::Train)
    }

    fn valid(&self) -> Self {
        self.clone().each(PerPart::Valid)
    }

    fn materialize(self) -> Self {
        self.each(PerPart::Materialize)
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        match self.plain {
            true => self.backbone.visit(visitor),
            false => visit_at("backbone", &self.backbone, visitor),
        }
        visit_at("heads", &self.heads, visitor);
        visit_at("router", &self.router, visitor);
        if self.plain { self.alignment.visit(visitor) } else { visit_at("alignment", &self.alignment, visitor) }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let backbone = match self.plain {
            true => self.backbone.map(mapper),
            false => map_at("backbone", self.backbone, mapper),
        };
        let heads = map_at("heads", self.heads, mapper);
        let router = map_at("router", self.router, mapper);
        let alignment = match self.plain {
            true => self.alignment.map(mapper),
            false => map_at("alignment", self.alignment, mapper),
        };
        Self { backbone, heads, router, alignment, ..self }
    }
}

/// What is done to every part of a model alike.
#[derive(Clone, Copy)]
enum PerPart<'a> {
    Fork(&'a Device),
    ToDevice(&'a Device),
    Train,
    Valid,
    Materialize,
}

impl PerPart<'_> {
    fn of<M: Module>(self, part: M) -> M {
        match self {
            Self::Fork(device) => part.fork(device),
            Self::ToDevice(device) => part.to_device(device),
            Self::Train => part.train(),
            Self::Valid => part.valid(),
            Self::Materialize => part.materialize(),
        }
    }
}

impl TaskModel {
    fn each(self, change: PerPart) -> Self {
        Self {
            backbone: change.of(self.backbone),
            heads: change.of(self.heads),
            router: change.of(self.router),
            alignment: change.of(self.alignment),
            ..self
        }
    }
}

fn visit_at<M: Module, V: ModuleVisitor>(name: &str, part: &M, visitor: &mut V) {
    visitor.enter_module(name, "Struct:TaskModel");
    part.visit(visitor);
    visitor.exit_module(name, "Struct:TaskModel");
}

fn map_at<M: Module, F: ModuleMapper>(name: &str, part: M, mapper: &mut F) -> M {
    mapper.enter_module(name, "Struct:TaskModel");
    let part = part.map(mapper);
    mapper.exit_module(name, "Struct:TaskModel");
    part
}

/// A backbone's decoder, ready to decode `states`, `[batch, time, d_model]`; `prompts` is each input's weight on each of
/// `heads`, `[batch, heads]`. Without heads the decoder is told no task.
///
/// # Panics
/// If there is a head that is no [`PromptHead`].
pub fn prompted(
    decoder: &WhisperDecoder,
    heads: &[BoxedHead],
    states: Tensor<3>,
    gates: Option<Gates>,
    prompts: Tensor<2>,
) -> DecoderCache {
    if heads.is_empty() {
        return decoder.cache(states, gates);
    }
    let prompts_of = heads.iter().filter_map(|head| head.downcast_ref::<PromptHead>());
    let starts = prompts_of.map(|prompt| prompt.start.val().unsqueeze_dim(0));
    let start = undertone_ops::matmul(prompts, Tensor::cat(starts.collect(), 0));
    decoder.cache(states, gates).with_start(start)
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
        let backbone = BoxedBackbone::new("Text", config.init(&device));
        let model = TaskModel::new(backbone, &vec![lora; 4], &heads.each_ref(), 0, &device).expect("a model");
        let model = model.with_router(&RouterConfig { hidden: vec![4], ..Default::default() }, &device);
        let names: Vec<String> = parameter_infos(&model).into_iter().map(|parameter| parameter.name).collect();
        assert_eq!(names, include_str!("fixtures/paths.txt").lines().collect::<Vec<_>>());
    }
}
