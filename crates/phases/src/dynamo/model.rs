//! The network of a DYNAMO run on a Whisper.

use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use undertone_model::layers::mean_pool;
use undertone_model::lora::{AdaptError, Gates, LoraConfig, adapt};
use undertone_model::router::{Router, RouterConfig};
use undertone_model::whisper::{DecoderCache, Whisper};

/// A frozen Whisper with a bank of adapters above the tap, a head for each task, and a router.
#[derive(Module, Debug)]
pub struct Dynamo {
    /// The backbone, with the adapters in its linear maps.
    pub whisper: Whisper,
    /// One for each task.
    pub heads: Vec<PromptHead>,
    /// From phase 2 on.
    pub router: Option<Router>,
    #[module(skip)]
    tap: usize,
    #[module(skip)]
    adapters: usize,
}

/// What tells the decoder its task: a learned vector added to the embedding of the start token.
#[derive(Module, Debug)]
pub struct PromptHead {
    /// `[d_model]`; begins at 0.
    pub start: Param<Tensor<1>>,
}

/// A batch at the tap.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The residual stream, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// Its mean over valid positions, `[batch, d_model]`.
    pub pooled: Tensor<2>,
}

impl Dynamo {
    /// A model around `whisper`, which is frozen, with an adapter for each of `adapters` on the blocks above `tap` and
    /// so many heads.
    ///
    /// # Errors
    /// When an adapter's target names no linear map.
    pub fn new(
        whisper: Whisper,
        adapters: &[LoraConfig],
        heads: usize,
        tap: usize,
        device: &Device,
    ) -> Result<Self, AdaptError> {
        let mut whisper = whisper.no_grad();
        let d_model = whisper.decoder.embed_tokens.weight.dims()[1];
        if !adapters.is_empty() {
            adapt(&mut whisper, adapters, tap, device)?;
        }
        let head = || PromptHead { start: Param::from_tensor(Tensor::zeros([d_model], device)) };
        Ok(Self { whisper, heads: (0..heads).map(|_| head()).collect(), router: None, tap, adapters: adapters.len() })
    }

    /// Adds a fresh router over all heads.
    pub fn with_router(mut self, config: &RouterConfig, device: &Device) -> Self {
        let d_model = self.whisper.decoder.embed_tokens.weight.dims()[1];
        self.router = Some(config.init(d_model, self.heads.len(), device));
        self
    }

    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        self.adapters
    }

    /// What the router reads and the adapters begin from. `mel`: `[batch, mel bins, frames]`; `padding`:
    /// `[batch, positions]`, true where an input has ended.
    pub fn tap(&self, mel: Tensor<3>, padding: &Tensor<2, Bool>) -> Tapped {
        let encoder = &self.whisper.encoder;
        let states = encoder.blocks(encoder.front_end(mel, 0), 0..self.tap, None);
        // Nothing is trained below the tap, and the router must not be a way around that.
        let pooled = mean_pool(states.clone().detach(), Some(padding));
        Tapped { states, pooled }
    }

    /// Everything above the tap, ready to decode: `heads` is each input's weight on each head, `[batch, heads]`.
    pub fn cache(&self, tapped: Tensor<3>, gates: Option<Gates>, heads: Tensor<2>) -> DecoderCache {
        let encoder = &self.whisper.encoder;
        let x = encoder.blocks(tapped, self.tap..encoder.layers.len(), gates.as_ref());
        let starts = self.heads.iter().map(|head| head.start.val().unsqueeze_dim(0)).collect();
        let start = heads.matmul(Tensor::cat(starts, 0));
        self.whisper.decoder.cache(encoder.layer_norm.forward(x), gates).with_start(start)
    }

    /// The decoder's states for every position of `ids`, `[batch, tokens]` → `[batch, tokens, d_model]`.
    pub fn decode(&self, ids: Tensor<2, Int>, mut cache: DecoderCache) -> Tensor<3> {
        self.whisper.decoder.forward(ids, &mut cache)
    }
}
