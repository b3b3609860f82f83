//! Operations with their own backward pass on Burn's CPU backend.
//!
//! Burn's autodiff decomposes an operation into its own primitives and keeps every intermediate result. A [`HostOp`] is
//! one node of the graph instead: one kernel forward, one backward, and only the data that the latter needs is kept.

use crate::device::Backing;
use crate::graph::{AnyFloat, erased, primitive};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::{
    Autodiff, AutodiffBackend, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor, Flex,
    GradientCheckpointingStrategy,
};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Applies `op` to its inputs, as one node of the graph if one of them has autodiff.
pub(crate) fn apply<const N: usize, const Y: usize>(op: impl HostOp<N>, inputs: [AnyFloat; N]) -> Tensor<Y> {
    use DispatchAutodiffContext::{Disabled, Enabled};
    let contexts = inputs.each_ref().map(|input| input.0.autodiff);
    let y = match contexts.into_iter().find(|context| *context != Disabled).unwrap_or(Disabled) {
        Disabled => {
            let inputs = inputs.map(|input| ready(primitive::<Flex>(input.0)));
            erased::<Flex>(op.forward(inputs, [false; N]).0)
        }
        Enabled(GradientCheckpointingStrategy::Disabled) => record::<NoCheckpointing, N>(op, inputs),
        Enabled(GradientCheckpointingStrategy::Balanced) => record::<BalancedCheckpointing, N>(op, inputs),
    };
    Tensor::from_dispatch(y)
}

/// Applies `op` as a node of the graph. Inputs without autodiff are constants.
fn record<C: CheckpointStrategy, const N: usize>(op: impl HostOp<N>, inputs: [AnyFloat; N]) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<Autodiff<Flex, C>>,
{
    let inputs = inputs.map(|input| match input.has_autodiff() {
        true => primitive::<Autodiff<Flex, C>>(input.0),
        false => Autodiff::<Flex, C>::from_inner(primitive::<Flex>(input.0)),
    });
    let wanted = inputs.each_ref().map(|input| input.is_tracked());
    let guards = inputs.each_ref().map(|input| input.node());
    let (out, saved) = op.forward(inputs.map(|input| ready(input.into_primitive())), wanted);
    let y = match Step(op).prepare::<C>(guards).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(saved, out),
        OpsKind::UnTracked(step) => step.finish(out),
    };
    erased::<Autodiff<Flex, C>>(y)
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

/// Returns a tensor on the CPU, without autodiff, as one whose storage holds exactly its elements, in order.
pub(crate) fn flex<const D: usize>(x: Tensor<D>) -> FlexTensor {
    whole(primitive::<Flex>(x.into_dispatch()))
}

/// Returns a tensor of Burn's CPU backend as one of any backend.
pub(crate) fn from_flex<const D: usize>(x: FlexTensor) -> Tensor<D> {
    Tensor::from_dispatch(erased::<Flex>(x))
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
