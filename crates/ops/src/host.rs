//! Operations with their own backward pass on Burn's CPU backend.
//!
//! Burn's autodiff decomposes an operation into its own primitives and keeps every intermediate result. A [`HostOp`] is
//! one node of the graph instead: one kernel forward, one backward, and only the data that the latter needs is kept.

use crate::device::Backing;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone_kernels::matrix::{Precision, set_precision};
use undertone_kernels::numbers::Numbers;

/// Implementation of operations on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kernels {
    /// Fused kernels where they exist.
    #[default]
    Fused,
    /// Compositions of Burn's operations: the reference for tests of the kernels.
    Composed,
}

static COMPOSED: AtomicBool = AtomicBool::new(false);

/// Selects the implementation of all operations of this process that begin after the call.
pub fn set_kernels(kernels: Kernels) {
    COMPOSED.store(kernels == Kernels::Composed, Ordering::Relaxed);
}

/// The processor has none of the instructions that products in bfloat16 are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this processor has neither AVX512-BF16 nor AVX2 instructions, so bf16 would be slower than f32: compute in f32"
)]
pub struct NoBf16;

/// Sets the precision of all CPU products of this process that begin after the call.
///
/// # Errors
/// When the processor lacks the instructions.
pub fn set_matmul_precision(precision: Precision) -> Result<(), NoBf16> {
    if set_precision(precision) { Ok(()) } else { Err(NoBf16) }
}

/// Whether operations on this device run as fused kernels.
pub(crate) fn fused(device: &Device) -> bool {
    !COMPOSED.load(Ordering::Relaxed) && Backing::of(device) == Backing::Flex
}

/// Whether work on this device is asynchronous: calls return before it is done.
pub fn runs_ahead(device: &Device) -> bool {
    Backing::of(device) != Backing::Flex
}

/// Runs operations on a CPU from one of the threads that compute them, which starts each sooner. On devices that run ahead `f` runs
/// on the calling thread.
pub fn on_pool<R: Send>(device: &Device, f: impl FnOnce() -> R + Send) -> R {
    if runs_ahead(device) { f() } else { undertone_kernels::pool::within(f) }
}

/// Operation on contiguous tensors in host memory, with `N` inputs and one output: all in f32, but for weights that are
/// [`held`] in half precision.
pub(crate) trait HostOp<const N: usize>: Clone + Debug + Send + 'static {
    /// Data that the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// Returns the output. `wanted` marks the inputs that need a gradient: nothing is kept for the others.
    fn forward(&self, inputs: [FlexTensor; N], wanted: [bool; N]) -> (FlexTensor, Self::Saved);

    /// Returns the gradients of the `wanted` inputs, given the gradient of the output.
    fn backward(self, saved: Self::Saved, gradient: FlexTensor, wanted: [bool; N]) -> [Option<FlexTensor>; N];
}

/// Conversion from Burn's dispatching tensors to a [`HostOp`].
#[backend_extension(Flex, Autodiff)]
pub(crate) trait HostOps: Backend {
    fn unary<O: HostOp<1>>(op: O, a: FloatTensor<Self>) -> FloatTensor<Self>;

    fn binary<O: HostOp<2>>(op: O, a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;

    fn ternary<O: HostOp<3>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    fn quaternary<O: HostOp<4>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl HostOps for Flex {
    fn unary<O: HostOp<1>>(op: O, a: FloatTensor<Self>) -> FloatTensor<Self> {
        op.forward([ready(a)], [false; 1]).0
    }

    fn binary<O: HostOp<2>>(op: O, a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        op.forward([a, b].map(ready), [false; 2]).0
    }

    fn ternary<O: HostOp<3>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        op.forward([a, b, c].map(ready), [false; 3]).0
    }

    fn quaternary<O: HostOp<4>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        op.forward([a, b, c, d].map(ready), [false; 4]).0
    }
}

impl<C: CheckpointStrategy> HostOps for Autodiff<Flex, C> {
    fn unary<O: HostOp<1>>(op: O, a: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<O, C, 1>(op, [a])
    }

    fn binary<O: HostOp<2>>(op: O, a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<O, C, 2>(op, [a, b])
    }

    fn ternary<O: HostOp<3>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        record::<O, C, 3>(op, [a, b, c])
    }

    fn quaternary<O: HostOp<4>>(
        op: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        record::<O, C, 4>(op, [a, b, c, d])
    }
}

/// A [`HostOp`] as a step of the graph.
#[derive(Debug)]
struct Step<O>(O);

impl<O: HostOp<N>, const N: usize> Backward<Flex, N> for Step<O> {
    type State = O::Saved;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = ready(gradients.consume::<Flex>(&ops.node));
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = self.0.backward(ops.state, gradient, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

fn record<O: HostOp<N>, C: CheckpointStrategy, const N: usize>(
    op: O,
    inputs: [FloatTensor<Autodiff<Flex, C>>; N],
) -> FloatTensor<Autodiff<Flex, C>> {
    let wanted = inputs.each_ref().map(|input| input.is_tracked());
    let guards = inputs.each_ref().map(|input| input.node());
    let (out, saved) = op.forward(inputs.map(|input| ready(input.into_primitive())), wanted);
    match Step(op).prepare::<C>(guards).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(saved, out),
        OpsKind::UnTracked(step) => step.finish(out),
    }
}

/// Applies `op` to one tensor.
pub(crate) fn unary<const A: usize, const Y: usize>(op: impl HostOp<1>, a: Tensor<A>) -> Tensor<Y> {
    Tensor::from_dispatch(Dispatch::unary(op, a.into_dispatch()))
}

/// Applies `op` to two tensors.
pub(crate) fn binary<const A: usize, const B: usize, const Y: usize>(
    op: impl HostOp<2>,
    a: Tensor<A>,
    b: Tensor<B>,
) -> Tensor<Y> {
    Tensor::from_dispatch(Dispatch::binary(op, a.into_dispatch(), b.into_dispatch()))
}

/// Applies `op` to three tensors.
pub(crate) fn ternary<const A: usize, const B: usize, const C: usize, const Y: usize>(
    op: impl HostOp<3>,
    a: Tensor<A>,
    b: Tensor<B>,
    c: Tensor<C>,
) -> Tensor<Y> {
    Tensor::from_dispatch(Dispatch::ternary(op, a.into_dispatch(), b.into_dispatch(), c.into_dispatch()))
}

/// Applies `op` to four tensors.
pub(crate) fn quaternary<const A: usize, const B: usize, const C: usize, const E: usize, const Y: usize>(
    op: impl HostOp<4>,
    a: Tensor<A>,
    b: Tensor<B>,
    c: Tensor<C>,
    d: Tensor<E>,
) -> Tensor<Y> {
    let [a, b, c, d] = [a.into_dispatch(), b.into_dispatch(), c.into_dispatch(), d.into_dispatch()];
    Tensor::from_dispatch(Dispatch::quaternary(op, a, b, c, d))
}

/// Casts to f32, the only type of the kernels. The cast is a node of the graph if `x` is tracked.
pub(crate) fn f32<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) }
}

/// Whether a type has half of f32's bytes.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// Returns a weight as kernels take it: in half precision if it is frozen and held so, otherwise in f32. Kernels widen
/// it while they run, so that the graph keeps the half alone.
pub(crate) fn held<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    if is_half(weight.dtype()) && !weight.is_tracked() { weight } else { f32(weight) }
}

/// Casts back to the type of the input.
pub(crate) fn restored<const D: usize>(y: Tensor<D>, dtype: DType) -> Tensor<D> {
    if y.dtype() == dtype { y } else { y.cast(dtype) }
}

/// Makes a tensor contiguous, as kernels read it.
fn ready(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// Makes a tensor whose storage holds exactly its elements, in order.
pub(crate) fn whole(x: FlexTensor) -> FlexTensor {
    let exact = x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements();
    if exact { x } else { FlexTensor::from_data(x.into_data()) }
}

/// Elements of a tensor that a [`HostOp`] gets.
pub(crate) fn floats(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("host operations are given contiguous f32 tensors")
}

/// Elements of a tensor in f32 or half precision: of a weight from [`held`], or of an input that is kept.
pub(crate) fn numbers(tensor: &FlexTensor) -> Numbers<'_> {
    let found = match tensor.dtype() {
        DType::BF16 => tensor.as_slice().map(Numbers::Bf16),
        DType::F16 => tensor.as_slice().map(Numbers::F16),
        _ => tensor.as_slice().map(Numbers::F32),
    };
    found.expect("host operations are given contiguous numbers in f32 or half precision")
}

/// Makes a tensor of `data`.
pub(crate) fn tensor(data: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(data), Layout::contiguous(shape.into()), DType::F32)
}

/// Makes a tensor of `data` in the shape of `like`.
pub(crate) fn like(data: Vec<f32>, like: &FlexTensor) -> FlexTensor {
    tensor(data, like.layout().shape().clone())
}
