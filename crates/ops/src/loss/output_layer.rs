//! Output layer and loss as one step of the graph, on backends without fused kernels.

use super::cross_entropy::RowLosses;
use crate::capacity::Capacity;
use crate::graph::{AnyFloat, recorded};
use crate::linear::column_sums;
use crate::product::matmul_as;
use crate::{host, sum};
use burn::tensor::{DType, Tensor};
use std::ops::Range;

/// Number of logits that exist at a time on other backends: 256 MiB in f32, or less if a tensor cannot be as large. In
/// tests it is small enough that there is more than one piece.
const LOGITS: usize = if cfg!(test) { 1 << 7 } else { 1 << 26 };

/// Returns the sum of the losses of `x · weightᵀ + bias`, `[1]`, as one step of the graph that processes the rows in pieces.
/// As on the CPU, gradients are computed in the forward pass, for an upstream gradient of 1. `of_rows` returns the losses
/// of some rows from their logits, in f32 and without autodiff.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `bias`: `[classes]`
pub(super) fn step(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    of_rows: impl FnMut(Tensor<2>, Range<usize>) -> RowLosses,
) -> Tensor<1> {
    let dtype = x.dtype();
    // A weight may be held in half precision. Nothing is kept of it for the backward pass.
    let weight = host::restored(weight, dtype);
    let inputs: Vec<AnyFloat> = [x.into(), weight.into()].into_iter().chain(bias.map(AnyFloat::from)).collect();
    let wanted = [0, 1, 2].map(|i| inputs.get(i).is_some_and(AnyFloat::is_tracked));
    let plain = |i: usize| inputs.get(i).cloned().map(AnyFloat::plain);
    let layer =
        OutputLayer { weight: plain(1).expect("a weight").tensor(), bias: plain(2).map(AnyFloat::tensor), wanted };
    let (sum, gradients) = layer.losses(plain(0).expect("an input").tensor(), of_rows);
    let backward = move |dy| {
        let dy = Tensor::<1>::from_dispatch(dy);
        let Gradients { x, weight, bias } = gradients;
        let matrix = |g: Tensor<2>| host::restored(g * dy.clone().unsqueeze(), dtype).into_dispatch();
        let bias = bias.map(|g| host::restored(g * dy.clone(), dtype).into_dispatch());
        vec![x.map(matrix), weight.map(matrix), bias]
    };
    recorded(sum, inputs, backward)
}

/// Output layer, without autodiff, and flags for which of input, weight and bias need a gradient.
struct OutputLayer {
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    wanted: [bool; 3],
}

/// Gradients in f32, for an upstream gradient of 1.
#[derive(Default)]
struct Gradients {
    x: Option<Tensor<2>>,
    weight: Option<Tensor<2>>,
    bias: Option<Tensor<1>>,
}

impl OutputLayer {
    /// Returns the sum of all losses, `[1]`, and its gradients.
    fn losses(
        &self,
        x: Tensor<2>,
        mut of_rows: impl FnMut(Tensor<2>, Range<usize>) -> RowLosses,
    ) -> (Tensor<1>, Gradients) {
        let (rows, classes) = (x.dims()[0], self.weight.dims()[0]);
        let logits = Capacity::of(&x.device()).numbers(LOGITS);
        let piece = (logits / classes.max(1)).clamp(1, rows.max(1));
        let (mut losses, mut dx, mut gradients) = (Vec::new(), Vec::new(), Gradients::default());
        for start in (0..rows.max(1)).step_by(piece) {
            let some = start..(start + piece).min(rows);
            let x = x.clone().slice_dim(0, some.clone());
            let (loss, found) = self.piece(x, |logits| of_rows(logits, some));
            losses.push(loss);
            dx.extend(found.x);
            gradients.weight = added(gradients.weight, found.weight);
            gradients.bias = added(gradients.bias, found.bias);
        }
        gradients.x = (!dx.is_empty()).then(|| Tensor::cat(dx, 0));
        (sum(Tensor::cat(losses, 0)), gradients)
    }

    /// Returns the losses of some rows, and their gradients.
    fn piece(&self, x: Tensor<2>, losses: impl FnOnce(Tensor<2>) -> RowLosses) -> (Tensor<1>, Gradients) {
        let [wants_x, wants_weight, wants_bias] = self.wanted;
        let dtype = x.dtype();
        let mut logits = matmul_as(x.clone(), self.weight.clone().transpose(), DType::F32);
        if let Some(bias) = &self.bias {
            logits = logits + host::f32(bias.clone()).unsqueeze();
        }
        let RowLosses { losses, gradient } = losses(logits);
        let bias = wants_bias.then(|| column_sums(gradient.clone(), gradient.dtype()));
        // Before the loss is scaled, most of these numbers are below the range of f16 and their sums above it: they
        // stay in f32.
        let wide = dtype == DType::F16;
        let [x, to] = [x, self.weight.clone()].map(|factor| if wide { host::f32(factor) } else { factor });
        let gradient = if wide { gradient } else { host::restored(gradient, dtype) };
        let weight = wants_weight.then(|| matmul_as(gradient.clone().transpose(), x, DType::F32));
        let x = wants_x.then(|| matmul_as(gradient, to, DType::F32));
        (losses, Gradients { x, weight, bias })
    }
}

fn added<const D: usize>(sum: Option<Tensor<D>>, x: Option<Tensor<D>>) -> Option<Tensor<D>> {
    match (sum, x) {
        (Some(sum), Some(x)) => Some(sum + x),
        (sum, x) => sum.or(x),
    }
}
