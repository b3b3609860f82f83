//! Steps of Burn's graph with their own backward pass, on every backend.
//!
//! A step of Burn's graph has a fixed number of inputs. [`with_gradients`] accepts any number: its output passes
//! through a chain of steps, one for each input that needs a gradient. The first of them that the backward pass reaches
//! computes the gradients of all.

use crate::hook::{GradientsSoFar, passed_fork};
#[cfg(feature = "cube")]
use burn::backend::Cube;
#[cfg(feature = "tch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchKindConversion,
    DispatchTensor, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::Tensor;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Float tensor with any number of axes.
#[derive(Clone, Debug)]
pub struct AnyFloat(pub(crate) DispatchTensor);

impl<const D: usize> From<Tensor<D>> for AnyFloat {
    fn from(x: Tensor<D>) -> Self {
        Self(x.into_dispatch())
    }
}

impl AnyFloat {
    /// Returns the tensor with its number of axes.
    pub fn tensor<const D: usize>(self) -> Tensor<D> {
        Tensor::from_dispatch(self.0)
    }

    /// Whether it needs a gradient.
    pub(crate) fn is_tracked(&self) -> bool {
        Dispatch::is_tracked(&self.0)
    }

    /// Whether it is on a device with autodiff.
    pub(crate) fn has_autodiff(&self) -> bool {
        self.0.autodiff != DispatchAutodiffContext::Disabled
    }

    /// As [`fork`].
    pub fn fork(self) -> Self {
        Self(Dispatch::fork(self.0))
    }

    /// Takes the gradient of a parameter that a backward pass has found so far, flat and without autodiff. Later
    /// contributions start from zero, so the sum of both is the complete gradient.
    pub fn take_gradient(&self, so_far: &mut GradientsSoFar<'_>) -> Option<Tensor<1>> {
        let gradient = Dispatch::grad_remove(&self.0, so_far.0)?;
        let flat = [gradient.shape().num_elements()].into();
        Some(Tensor::from_dispatch(Dispatch::float_reshape(gradient, flat)))
    }

    /// Returns it without autodiff.
    pub fn plain(self) -> Self {
        match self.0.autodiff {
            DispatchAutodiffContext::Disabled => self,
            DispatchAutodiffContext::Enabled(_) => Self(Dispatch::inner(self.0)),
        }
    }
}

/// Returns `y` as a function of `inputs`. In the backward pass, `backward` computes the gradients of the inputs, in
/// their order, from the gradient of `y`.
///
/// `backward` takes and returns tensors without autodiff. Gradients of untracked inputs are ignored; an input for which
/// it returns `None` gets no gradient.
pub(crate) fn with_gradients(
    y: DispatchTensor,
    inputs: Vec<AnyFloat>,
    backward: impl FnOnce(DispatchTensor) -> Vec<Option<DispatchTensor>> + Send + 'static,
) -> DispatchTensor {
    let pass = BackwardPass(Arc::new(Mutex::new(Progress::Ahead(Box::new(backward)))));
    let tracked = inputs.into_iter().enumerate().filter(|(_, input)| input.is_tracked());
    tracked.fold(y, |y, (index, input)| Dispatch::link(y, input.0, pass.clone(), index))
}

/// Returns `y`, which was computed without autodiff, as a function of `inputs`, as [`with_gradients`] does. It is returned
/// as it is if none of them has autodiff.
pub(crate) fn recorded<const Y: usize>(
    y: Tensor<Y>,
    inputs: impl Into<Vec<AnyFloat>>,
    backward: impl FnOnce(DispatchTensor) -> Vec<Option<DispatchTensor>> + Send + 'static,
) -> Tensor<Y> {
    let inputs = inputs.into();
    if !inputs.iter().any(AnyFloat::has_autodiff) {
        return y;
    }
    Tensor::from_dispatch(with_gradients(Dispatch::from_inner(y.into_dispatch()), inputs, backward))
}

/// Returns `forward` of `x` with its own backward pass: `forward` also returns the function that computes the gradient
/// of `x` from the gradient of the result, with the tensors that it needs. Both are composed of operations of any
/// backend, without autodiff.
pub(crate) fn differentiated<const D: usize, const Y: usize, F>(
    x: Tensor<D>,
    forward: impl FnOnce(Tensor<D>) -> (Tensor<Y>, F),
) -> Tensor<Y>
where
    F: FnOnce(Tensor<Y>) -> Tensor<D> + Send + 'static,
{
    if !x.device().is_autodiff() {
        return forward(x).0;
    }
    let input = AnyFloat::from(x.clone());
    let (y, backward) = forward(x.inner());
    recorded(y, [input], |dy| vec![Some(backward(Tensor::from_dispatch(dy)).into_dispatch())])
}

/// Returns `x` as a separate step of the graph that passes values and gradients on unchanged.
///
/// Float sums depend on their order, and Burn adds gradients in an order that depends on the whole graph. A fork at the
/// entrance of a part of a network first sums that part's gradients, whatever the rest of the graph is.
pub fn fork<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    AnyFloat::from(x).fork().tensor()
}

/// Backward pass that runs when the first input asks for its gradient.
#[derive(Clone)]
pub(crate) struct BackwardPass(Arc<Mutex<Progress>>);

enum Progress {
    Ahead(Box<dyn FnOnce(DispatchTensor) -> Vec<Option<DispatchTensor>> + Send>),
    Done(Vec<Option<DispatchTensor>>),
}

impl BackwardPass {
    /// Returns the gradient of one input, given the gradient of the output.
    fn gradient(&self, index: usize, of_output: impl FnOnce() -> DispatchTensor) -> Option<DispatchTensor> {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Progress::Ahead(_) = &*progress
            && let Progress::Ahead(backward) = std::mem::replace(&mut *progress, Progress::Done(Vec::new()))
        {
            *progress = Progress::Done(backward(of_output()));
        }
        match &mut *progress {
            Progress::Done(gradients) => gradients.get_mut(index)?.take(),
            Progress::Ahead(_) => None,
        }
    }
}

impl fmt::Debug for BackwardPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackwardPass")
    }
}

/// Steps of the graph, on every backend. Without autodiff they are no-ops.
#[backend_extension(Flex, Cube: cfg(feature = "cube"), LibTorch: cfg(feature = "tch"), Autodiff)]
pub(crate) trait GraphOps: Backend {
    /// Returns `x`.
    fn fork(x: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }

    /// Returns `y`, which depends on `input`; `pass` computes the input's gradient.
    fn link(y: FloatTensor<Self>, _input: FloatTensor<Self>, _pass: BackwardPass, _index: usize) -> FloatTensor<Self> {
        y
    }

    /// Returns a root for a backward pass in which `y` has the given gradient.
    fn seeded(y: FloatTensor<Self>, _gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        y
    }
}

impl GraphOps for Flex {}

#[cfg(feature = "cube")]
impl GraphOps for Cube {}

#[cfg(feature = "tch")]
impl GraphOps for LibTorch {}

impl<B: Backend, C: CheckpointStrategy> GraphOps for Autodiff<B, C>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn fork(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match Fork.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((), x),
            OpsKind::UnTracked(step) => step.finish(x),
        }
    }

    fn link(y: FloatTensor<Self>, input: FloatTensor<Self>, pass: BackwardPass, index: usize) -> FloatTensor<Self> {
        let (y, node) = y.into_parts();
        match (Link { pass, index }).prepare::<C>([node, input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((), y),
            OpsKind::UnTracked(step) => step.finish(y),
        }
    }

    fn seeded(y: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        let root = B::float_zeros([1].into(), &y.device(), y.dtype().into());
        match Seeded.prepare::<C>([y.node()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(gradient.into_primitive(), root),
            OpsKind::UnTracked(step) => step.finish(root),
        }
    }
}

#[derive(Debug)]
struct Fork;

impl<B: Backend> Backward<B, 1> for Fork {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            gradients.register::<B>(x.id, gradient);
        }
        passed_fork(gradients);
    }
}

#[derive(Debug)]
struct Link {
    pass: BackwardPass,
    index: usize,
}

impl<B: Backend> Backward<B, 2> for Link
where
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = ();

    fn backward(self, ops: Ops<(), 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let [y, input] = ops.parents;
        let found = self.pass.gradient(self.index, || erased::<B>(gradient.clone()));
        if let Some((input, found)) = input.zip(found) {
            gradients.register::<B>(input.id, primitive::<B>(found));
        }
        if let Some(y) = y {
            gradients.register::<B>(y.id, gradient);
        }
    }
}

#[derive(Debug)]
struct Seeded;

impl<B: Backend> Backward<B, 1> for Seeded {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<FloatTensor<B>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<B>(&ops.node);
        if let [Some(y)] = ops.parents {
            gradients.register::<B>(y.id, ops.state);
        }
    }
}

/// Wraps a backend's tensor as a tensor of [`Dispatch`].
pub(crate) fn erased<B: Backend>(x: FloatTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::from_backend(BackendTensor::Float(x))
}

/// Unwraps the backend's tensor of a tensor of [`Dispatch`].
pub(crate) fn primitive<B: Backend>(x: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(x)
        .expect("tensors of an operation are on one backend")
        .float()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, values};

    #[test]
    fn a_gradient_is_what_the_backward_pass_says() {
        let x = Tensor::<1>::from_floats([1.0, -2.0], &device());
        let double =
            |x: Tensor<1>| differentiated(x, |x| (x.clone().mul_scalar(2.0), |dy: Tensor<1>| x * dy.mul_scalar(10.0)));
        assert_close(double(x.clone()), &[2.0, -4.0], 0.0);
        let idle = x.clone().autodiff();
        assert!(!double(idle.clone()).is_tracked() && double(idle).is_autodiff());
        let x = x.autodiff().require_grad();
        let gradients = double(x.clone()).sum().backward();
        assert_close(x.grad(&gradients).expect("a gradient"), &[10.0, -20.0], 0.0);
    }

    #[test]
    fn a_fork_is_the_same_tensor_in_both_passes() {
        let x = Tensor::<1>::from_floats([1.0, -2.0], &device());
        assert_eq!(values(fork(x.clone())), [1.0, -2.0]);
        let x = x.autodiff().require_grad();
        let y = fork(x.clone());
        assert_eq!(values(y.clone().inner()), [1.0, -2.0]);
        assert_eq!(values(x.grad(&y.square().sum().backward()).expect("a gradient")), [2.0, -4.0]);
    }
}
