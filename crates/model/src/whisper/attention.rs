//! Multi-head attention with Whisper's projections.

use crate::adapters::Gates;
use crate::layers::Linear;
use burn::module::Module;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor};
use undertone_ops::{AttentionOptions, Rotary, attention, state_attention};

/// Query, key, value and output projections; the key projection has no bias.
#[derive(Module, Debug)]
pub struct MultiHeadAttention {
    /// `[key and value heads · d_head, d_model]`, no bias.
    pub k_proj: Linear,
    /// `[key and value heads · d_head, d_model]`.
    pub v_proj: Linear,
    /// `[d_model, d_model]`.
    pub q_proj: Linear,
    /// `[d_model, d_model]`.
    pub out_proj: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    dropout: f64,
}

/// Projected keys and values, `[batch, time, key and value heads · d_head]` each, as [`Linear::forward_lowered`] returns them.
#[derive(Clone, Debug)]
pub struct KeyValue {
    /// Keys.
    pub key: Tensor<3>,
    /// Values.
    pub value: Tensor<3>,
}

impl KeyValue {
    /// Appends `next` in time.
    pub fn append(self, next: Self) -> Self {
        Self { key: Tensor::cat(vec![self.key, next.key], 1), value: Tensor::cat(vec![self.value, next.value], 1) }
    }

    /// Selects batch rows.
    pub fn select(self, rows: Tensor<1, Int>) -> Self {
        Self { key: self.key.select(0, rows.clone()), value: self.value.select(0, rows) }
    }
}

impl MultiHeadAttention {
    /// Creates an attention of `heads`, whose keys and values are `keys` wide.
    pub(super) fn init(d_model: usize, keys: usize, heads: usize, dropout: f64, std: f64, device: &Device) -> Self {
        let projection = |out, bias| Linear::init(d_model, out, bias, std, device);
        Self {
            k_proj: projection(keys, false),
            v_proj: projection(keys, true),
            q_proj: projection(d_model, true),
            out_proj: projection(d_model, true),
            heads,
            dropout,
        }
    }

    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Returns the projections with their names.
    pub fn linears(&mut self) -> [(&'static str, &mut Linear); 4] {
        [
            ("k_proj", &mut self.k_proj),
            ("v_proj", &mut self.v_proj),
            ("q_proj", &mut self.q_proj),
            ("out_proj", &mut self.out_proj),
        ]
    }

    /// Returns keys and values of `x`, `[batch, time, d_model]`.
    pub fn key_value(&self, x: Tensor<3>, gates: Option<&Gates>) -> KeyValue {
        KeyValue { key: self.k_proj.forward_lowered(x.clone(), gates), value: self.v_proj.forward_lowered(x, gates) }
    }

    /// Attends from `x`, `[batch, time, d_model]`, to all of itself, with queries and keys turned by their positions if
    /// these are rotary.
    pub fn to_itself(&self, x: Tensor<3>, positions: Option<&Rotary>, gates: Option<&Gates>) -> Tensor<3> {
        let options = AttentionOptions::new(self.heads);
        let Some(rotary) = positions else {
            let memory = self.key_value(x.clone(), gates);
            return self.mix(self.q_proj.forward_lowered(x, gates), memory, options, gates);
        };
        // Queries and keys are turned in f32.
        let turned = |projection: &Linear| rotary.turn(projection.forward_gated(x.clone(), gates));
        let memory = KeyValue { key: turned(&self.k_proj), value: self.v_proj.forward_gated(x.clone(), gates) };
        self.mix(turned(&self.q_proj), memory, options, gates)
    }

    /// Attends from `x`, `[batch, queries, d_model]`, to `memory`.
    pub fn forward(&self, x: Tensor<3>, memory: KeyValue, causal: bool, gates: Option<&Gates>) -> Tensor<3> {
        let mut options = AttentionOptions::new(self.heads);
        options.causal = causal;
        self.mix(self.q_proj.forward_lowered(x, gates), memory, options, gates)
    }

    /// Attends from `x`, `[batch, queries, d_model]`, to the `memory` of another sequence; `padding`, `[batch, keys]`,
    /// is true where a key must not be seen.
    pub fn cross(
        &self,
        x: Tensor<3>,
        memory: KeyValue,
        padding: Option<&Tensor<2, Bool>>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        let options = AttentionOptions::new(self.heads).with_key_padding(padding.cloned());
        self.mix(self.q_proj.forward_lowered(x, gates), memory, options, gates)
    }

    /// Attends from `x`, `[batch, queries, d_model]`, to the states of another sequence, `[batch, time, d_model]`: as
    /// [`cross`](Self::cross) to their keys and values, without adapters and gradients.
    pub(super) fn to_states(&self, x: Tensor<3>, states: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<3> {
        let projections = [&self.k_proj, &self.v_proj].map(|projection| projection.weight.val());
        let mixed = state_attention(self.q_proj.forward(x), states, projections, self.heads, padding.cloned());
        // The weights of the values sum to 1, so their bias is that of the sum, for each head that shares them.
        let mixed = match &self.v_proj.bias {
            Some(bias) => mixed + self.of_each_head(bias.val()).unsqueeze(),
            None => mixed,
        };
        self.out_proj.forward(mixed)
    }

    /// Repeats the values' bias for the heads that share them: `[d_model]`.
    fn of_each_head(&self, bias: Tensor<1>) -> Tensor<1> {
        let ([width], [d_model, _]) = (bias.dims(), self.q_proj.weight.dims());
        let (size, group) = (d_model / self.heads, d_model / width);
        bias.reshape([width / size, 1, size]).expand([width / size, group, size]).reshape([d_model])
    }

    /// Returns how `x`, `[batch, queries, d_model]`, attends to the `memory` of another sequence in some of the heads:
    /// `[batch, heads, queries, keys]`, with a sum of 1 over the keys.
    pub fn weights(&self, x: Tensor<3>, memory: &KeyValue, heads: &[usize], gates: Option<&Gates>) -> Tensor<4> {
        let query = self.q_proj.forward_gated(x, gates);
        let ([_, keys, width], size) = (memory.key.dims(), query.dims()[2] / self.heads);
        let group = query.dims()[2] / width;
        let of = |x: &Tensor<3>, head: usize| x.clone().narrow(2, head * size, size).cast(FloatDType::F32);
        let [batch, queries, _] = query.dims();
        let weights = heads.iter().map(|head| {
            let scores = of(&query, *head).matmul(of(&memory.key, *head / group).swap_dims(1, 2));
            softmax(scores.mul_scalar((size as f64).powf(-0.5)), 2).reshape([batch, 1, queries, keys])
        });
        Tensor::cat(weights.collect(), 1)
    }

    fn mix(&self, query: Tensor<3>, memory: KeyValue, options: AttentionOptions, gates: Option<&Gates>) -> Tensor<3> {
        let mixed = attention(query, memory.key, memory.value, options.with_dropout(self.dropout));
        self.out_proj.forward_gated(mixed, gates)
    }
}
