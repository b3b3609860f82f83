//! The network of a run: a backbone, with adapters, heads and router.

use super::batch::{BatchInput, TaskBatch};
use crate::AlignmentConfig;
use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Device, Tensor, TensorData};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use undertone_model::adaptable::{AdaptError, adapt, set_adapters_trainable};
use undertone_model::adapters::{AdapterConfig, Gates};
use undertone_model::backbone::{BackboneInput, BoxedBackbone, WrongInput, own_path};
use undertone_model::layers::{Linear, mean_pool};
use undertone_model::router::{Router, RouterConfig, Routing};
use undertone_model::whisper::Whisper;
use undertone_model::word_counts::WordCounts;
use undertone_store::set_trainable;
use undertone_tasks::{Answer, AnswerContext, BoxedHead, HeadConfig, HeadInput, TaskHead};
use undertone_train::BoxError;

/// Backbone with its trained parts: a bank of adapters above the tap, a head for each task, and a router. In
/// fine-tuning it is the backbone alone.
#[derive(Clone, Debug)]
pub struct TaskModel {
    /// Backbone, with the adapters in its linear maps.
    pub backbone: BoxedBackbone,
    /// Heads: one for each task. A baseline on a speech backbone has one for all tasks, a fine-tuned backbone none.
    pub heads: Vec<BoxedHead>,
    /// Router, from phase 2 on.
    pub router: Option<Router>,
    /// Alignment heads, used in training only.
    pub alignment: AlignmentHeads,
    /// How the texts of the tasks are written, and its weight beside the router.
    words: Option<(Arc<WordCounts>, f64)>,
    tap: usize,
    adapters: usize,
    /// Whether this is a fine-tuned backbone, whose parameter paths differ.
    plain: bool,
}

/// Parts of a model that are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainedParts {
    /// The backbone's own weights, except for its constants.
    pub backbone: bool,
    /// All adapters.
    pub adapters: bool,
    /// The heads, except for embeddings that they share with the backbone.
    pub heads: bool,
    /// The router, except for temperature and confidence.
    pub router: bool,
    /// The router's temperature.
    pub router_temperature: bool,
    /// The router's confidence.
    pub router_confidence: bool,
    /// The alignment heads.
    pub alignment: bool,
}

/// Heads on the encoder of a speech backbone, in training: they predict the timing of a synthesised sample, or the tokens of the text.
#[derive(Module, Debug)]
pub struct AlignmentHeads {
    /// Linear map from the encoder output to character tokens.
    pub character_head: Option<Linear>,
    /// Linear map from an early encoder layer to classes of elements.
    pub element_head: Option<Linear>,
    /// Linear map from the encoder output to the tokens of text, and the blank of CTC after them.
    pub ctc_head: Option<Linear>,
    #[module(skip)]
    elements_layer: usize,
}

/// Task prompt of a backbone that writes text by itself: a learned vector that is added to the embedding of its
/// decoder's start token, or without a decoder to its last states.
#[derive(Module, Debug)]
pub struct PromptHead {
    /// The vector, `[d_model]`, initially 0.
    pub start: Param<Tensor<1>>,
}

/// The backbone computes losses and answers.
impl TaskHead for PromptHead {
    fn loss(&self, _: HeadInput) -> Result<Tensor<1>, BoxError> {
        Err(PROMPTS_ONLY.into())
    }

    fn answer(&self, _: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        Err(PROMPTS_ONLY.into())
    }
}

const PROMPTS_ONLY: &str = "a head that tells a speech backbone's decoder its task makes nothing of states by itself";

/// Batch at the tap.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// Residual stream, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// Padding mask, `[batch, time]`: true after the end of an input.
    pub padding: Tensor<2, Bool>,
}

impl Tapped {
    /// Returns the router's input: the mean of the states over valid positions, `[batch, d_model]`. It is detached,
    /// because nothing below the tap is trained.
    pub fn pooled(&self) -> Tensor<2> {
        mean_pool(self.states.clone().detach(), Some(&self.padding))
    }
}

/// Output of the encoder.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Last states, normalised, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// Residual stream that [`AlignmentHeads::element_head`] reads, if there is one.
    pub elements: Option<Tensor<3>>,
}

impl AlignmentHeads {
    /// Initialises the heads of `config` for a speech backbone, with this number of classes of elements.
    pub fn init(config: &AlignmentConfig, classes: usize, backbone: &BoxedBackbone, device: &Device) -> Self {
        let (vocabulary, d_model) = (backbone.token_embedding().weight.dims()[0], backbone.d_model());
        let head = |weight: f64, classes| {
            (weight > 0.0).then(|| Linear::init(d_model, classes, true, (d_model as f64).powf(-0.5), device))
        };
        Self {
            character_head: head(config.characters, vocabulary),
            element_head: head(config.elements, classes),
            ctc_head: None,
            elements_layer: config.elements_layer.min(backbone.block_count()),
        }
    }

    fn none() -> Self {
        Self { character_head: None, element_head: None, ctc_head: None, elements_layer: 0 }
    }
}

impl TaskModel {
    /// Returns a model with the frozen `backbone`, an adapter for each of `adapters` on the blocks above `tap`, and a
    /// newly initialised head for each of `heads`.
    ///
    /// # Errors
    /// When an adapter's target names no linear map, or the adapters are of different types.
    pub fn new(
        backbone: BoxedBackbone,
        adapters: &[AdapterConfig],
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
        Ok(Self { backbone, heads, router: None, alignment, words: None, tap, adapters, plain: false })
    }

    /// Returns a model for fine-tuning a backbone. Its parameters stay trained or frozen as they are. Its tap is behind all
    /// blocks.
    pub fn plain(backbone: BoxedBackbone) -> Self {
        let is_whisper = backbone.downcast_ref::<Whisper>().is_some();
        let backbone = if is_whisper { backbone.renamed("whisper") } else { backbone };
        let (alignment, tap) = (AlignmentHeads::none(), backbone.block_count());
        Self { backbone, heads: Vec::new(), router: None, alignment, words: None, tap, adapters: 0, plain: true }
    }

    /// Adds a newly initialised router over all heads.
    pub fn with_router(mut self, config: &RouterConfig, device: &Device) -> Self {
        self.router = Some(config.init(self.backbone.d_model(), self.heads.len(), device));
        self
    }

    /// Lets the router's choice depend on how a text is written, too, with this weight.
    pub fn with_words(mut self, words: WordCounts, weight: f64) -> Self {
        self.words = Some((Arc::new(words), weight));
        self
    }

    /// Adds the alignment heads, with this number of classes of elements. A text backbone has none.
    pub fn with_alignment(mut self, config: &AlignmentConfig, classes: usize, device: &Device) -> Self {
        if self.backbone.writes_text() {
            self.alignment = AlignmentHeads::init(config, classes, &self.backbone, device);
            // In a fine-tuned backbone nothing else reads the residual stream.
            if self.plain && self.alignment.element_head.is_some() {
                self.tap = self.alignment.elements_layer;
            }
        }
        self
    }

    /// Adds a head for CTC, whose blank is the class after the `blank` tokens of text.
    pub fn with_ctc(mut self, blank: usize, device: &Device) -> Self {
        let d_model = self.backbone.d_model();
        let head = Linear::init(d_model, blank + 1, true, (d_model as f64).powf(-0.5), device);
        self.alignment.ctc_head = Some(head);
        self
    }

    /// Moves the tap up to the first block with adapters, if nothing but the blocks above reads the states there.
    pub fn with_tap_below_adapters(mut self) -> Self {
        self.tap = self.adapted().map_or(usize::MAX, |(block, _)| block).min(self.backbone.block_count());
        self
    }

    /// Returns the first block with an adapter, and the path of a linear map there; a decoder is behind all blocks.
    fn adapted(&mut self) -> Option<(usize, String)> {
        let maps = self.backbone.linears().into_iter().filter(|(_, linear)| linear.adapters.is_some());
        maps.map(|(site, _)| (site.block, site.path)).min()
    }

    /// Returns the path of a linear map with an adapter in one of the blocks.
    pub(super) fn adapted_block(&mut self) -> Option<String> {
        let blocks = self.backbone.block_count();
        self.adapted().filter(|(block, _)| *block < blocks).map(|(_, path)| path)
    }

    /// Sets gradient checkpointing: only the input of every `every` blocks of backbone and decoders is kept, and the
    /// backward pass computes these blocks again. `None` keeps all activations.
    pub fn with_gradient_checkpointing(mut self, every: Option<NonZeroUsize>) -> Self {
        self.backbone.set_gradient_checkpointing(every);
        self.heads.iter_mut().for_each(|head| head.set_gradient_checkpointing(every));
        self
    }

    /// Marks the trained parameters of each part.
    pub fn with_trained(self, trained: TrainedParts) -> Self {
        let Self { backbone, heads, router, alignment, .. } = self;
        let constants = backbone.constants();
        let mut backbone = set_trainable(backbone, |path| trained.backbone && !constants.contains(&own_path(path)));
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

    /// Returns the number of adapters.
    pub fn adapters(&self) -> usize {
        self.adapters
    }

    /// Computes the states at the tap: the input of the router and of the first blocks with adapters. `padding` is the
    /// padding mask, `[batch, positions]`, true after the end of an input.
    ///
    /// # Errors
    /// When the backbone takes another kind of input.
    pub fn tap(&self, input: BackboneInput, padding: Tensor<2, Bool>) -> Result<Tapped, WrongInput> {
        let x = self.backbone.embed(input, &padding)?;
        Ok(Tapped { states: self.backbone.forward_blocks(x, 0..self.tap, &padding, None), padding })
    }

    /// Returns the router's choice for a batch at the tap; `None` without a router.
    pub fn routing(&self, tapped: &Tapped, batch: &TaskBatch) -> Option<Routing> {
        let routing = self.router.as_ref()?.forward(tapped.pooled());
        let Some(((words, weight), BatchInput::Text(texts))) = self.words.as_ref().zip(Some(&batch.input)) else {
            return Some(routing);
        };
        let evidence: Vec<f32> = texts.samples.iter().flat_map(|sample| words.evidence(&sample.text)).collect();
        let evidence = Tensor::from_data(TensorData::new(evidence, routing.logits.dims()), &routing.logits.device());
        Some(routing.with_evidence(evidence.mul_scalar(*weight)))
    }

    /// Computes the backbone's last states.
    pub fn encode(&self, tapped: &Tapped, gates: Option<&Gates>) -> Encoded {
        let blocks = |x, blocks: Range<usize>| {
            if blocks.is_empty() { x } else { self.backbone.forward_blocks(x, blocks, &tapped.padding, gates) }
        };
        let (x, last) = (tapped.states.clone(), self.backbone.block_count());
        if self.alignment.element_head.is_none() {
            return Encoded { states: self.backbone.finish(blocks(x, self.tap..last)), elements: None };
        }
        let layer = self.alignment.elements_layer.max(self.tap);
        let x = blocks(x, self.tap..layer);
        let states = self.backbone.finish(blocks(x.clone(), layer..last));
        Encoded { states, elements: Some(x) }
    }
}

/// Returns a newly initialised head: a task prompt for a backbone that writes text by itself, the head's own network
/// for any other.
fn head(backbone: &BoxedBackbone, config: &HeadConfig, device: &Device) -> BoxedHead {
    if !backbone.writes_text() {
        return config.head(backbone.token_embedding(), device);
    }
    BoxedHead::new("Prompt", PromptHead { start: Param::from_tensor(Tensor::zeros([backbone.d_model()], device)) })
}

/// Whether a head shares the parameter with the backbone: the embeddings that it decodes with, which stay frozen.
pub(super) fn is_shared(path: &str) -> bool {
    path.ends_with("embed_tokens.weight")
}

/// Implemented by hand because of the parameter paths, which checkpoints and `train.optimizer.groups` use. A fine-tuned
/// Whisper is at `whisper`, any other backbone at the name of its box, with its alignment heads beside it. All other
/// parts have the names of the fields.
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
        let [backbone, alignment] = self.places();
        visit_at(backbone, &self.backbone, visitor);
        visit_at(Some("heads"), &self.heads, visitor);
        visit_at(Some("router"), &self.router, visitor);
        visit_at(alignment, &self.alignment, visitor);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let [backbone, alignment] = self.places();
        let backbone = map_at(backbone, self.backbone, mapper);
        let heads = map_at(Some("heads"), self.heads, mapper);
        let router = map_at(Some("router"), self.router, mapper);
        let alignment = map_at(alignment, self.alignment, mapper);
        Self { backbone, heads, router, alignment, ..self }
    }
}

/// Operation that is applied to every part of a model.
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
    /// Returns the names of backbone and alignment heads in the paths of their parameters, if they have any there.
    fn places(&self) -> [Option<&'static str>; 2] {
        if self.plain { [None; 2] } else { [Some("backbone"), Some("alignment")] }
    }

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

fn visit_at<M: Module, V: ModuleVisitor>(name: Option<&str>, part: &M, visitor: &mut V) {
    name.inspect(|name| visitor.enter_module(name, "Struct:TaskModel"));
    part.visit(visitor);
    name.inspect(|name| visitor.exit_module(name, "Struct:TaskModel"));
}

fn map_at<M: Module, F: ModuleMapper>(name: Option<&str>, part: M, mapper: &mut F) -> M {
    name.inspect(|name| mapper.enter_module(name, "Struct:TaskModel"));
    let part = part.map(mapper);
    name.inspect(|name| mapper.exit_module(name, "Struct:TaskModel"));
    part
}

/// Returns the vector of each input's task, `[batch, d_model]`; `None` without heads. `prompts` are the weights of each
/// input on each of `heads`, `[batch, heads]`.
///
/// # Panics
/// If there is a head that is no [`PromptHead`].
pub fn task_vectors(heads: &[BoxedHead], prompts: Tensor<2>) -> Option<Tensor<2>> {
    if heads.is_empty() {
        return None;
    }
    let prompts_of = heads.iter().filter_map(|head| head.downcast_ref::<PromptHead>());
    let starts = prompts_of.map(|prompt| prompt.start.val().unsqueeze_dim(0));
    Some(undertone_ops::matmul(prompts, Tensor::cat(starts.collect(), 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use undertone_model::adapters::lora::LoraConfig;
    use undertone_model::text::TextEncoderConfig;
    use undertone_store::parameter_infos;

    /// Checkpoints, parameter groups and freezing depend on these paths, optimizers on their order.
    #[test]
    fn parameters_have_the_paths_that_checkpoints_know() {
        let device = Device::default();
        let config =
            TextEncoderConfig { vocab_size: 20, max_position_embeddings: 16, ..TextEncoderConfig::new(8, 16, 2, 1) };
        let heads = [
            json!({"type": "classify", "labels": ["a", "b"]}),
            json!({"type": "span"}),
            json!({"type": "tag", "labels": ["O", "B-x"]}),
            json!({"type": "seq2seq", "layers": 1, "heads": 2, "ffn": 16, "max_target": 8}),
        ];
        let heads = heads.map(|head| serde_json::from_value::<HeadConfig>(head).expect("a head"));
        let lora = AdapterConfig::from(LoraConfig { r: 1, target_modules: vec!["query".into()], ..Default::default() });
        let backbone = BoxedBackbone::new("Text", config.init(&device));
        let model = TaskModel::new(backbone, &vec![lora; 4], &heads.each_ref(), 0, &device).expect("a model");
        let model = model.with_router(&RouterConfig { hidden: vec![4], ..Default::default() }, &device);
        let names: Vec<String> = parameter_infos(&model).into_iter().map(|parameter| parameter.name).collect();
        assert_eq!(names, include_str!("fixtures/paths.txt").lines().collect::<Vec<_>>());
    }
}
