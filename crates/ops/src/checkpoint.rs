//! Gradient checkpointing: parts of a network keep only their inputs for the backward pass and run again in it (Chen et
//! al., 2016).
//!
//! Burn's own strategy for this, `Device::gradient_checkpointing`, recomputes operations that are marked as
//! memory-bound. The matrix products, the attention and the fused kernels that a block consists of are not marked so.
//! Here a whole part is one step of the graph. Its backward pass runs the part once more, on leaves that stand for its
//! inputs, and passes their gradients on.

use crate::graph::{AnyFloat, GraphOps, with_gradients};
use crate::hook::without_hook;
use crate::random::Draws;
use burn::backend::ops::FloatTensorOps;
use burn::backend::{AutodiffBackend, Dispatch, DispatchTensor, TensorMetadata};
use burn::tensor::Tensor;

/// Returns `part(inputs)`. Only the inputs are kept for the backward pass, in which `part` runs again.
///
/// `part` must be deterministic, must depend on no tracked tensor except its inputs, and gets them in the order of
/// `inputs`. Gradients equal those of a plain call: dropout drops the same elements again, and inputs that need no
/// gradient, such as frozen parameters, cost none. If the output does not depend on an input, that input gets no
/// gradient if it is a leaf, such as a parameter, and zeros if it was computed.
///
/// If no input is tracked, as outside training, this is a plain call.
pub fn checkpoint<const D: usize>(
    inputs: Vec<AnyFloat>,
    part: impl Fn(Vec<AnyFloat>) -> Tensor<D> + Send + 'static,
) -> Tensor<D> {
    if !inputs.iter().any(AnyFloat::is_tracked) {
        return part(inputs);
    }
    let kept: Vec<Input> = inputs.iter().map(Input::new).collect();
    let (y, draws) = Draws::record(|| part(kept.iter().map(|input| AnyFloat(input.constant())).collect()));
    let rerun = move |gradient: DispatchTensor| {
        let leaves: Vec<DispatchTensor> = kept.iter().map(Input::leaf).collect();
        let y = draws.replay(|| part(leaves.iter().cloned().map(AnyFloat).collect())).into_dispatch();
        let gradients =
            Dispatch::is_tracked(&y).then(|| without_hook(|| Dispatch::backward(Dispatch::seeded(y, gradient))));
        let Some(mut gradients) = gradients else { return kept.iter().map(Input::absent).collect() };
        let found = kept.iter().zip(&leaves).map(|(input, leaf)| match input.wanted {
            true => Dispatch::grad_remove(leaf, &mut gradients).or_else(|| input.absent()),
            false => None,
        });
        found.collect()
    };
    Tensor::from_dispatch(with_gradients(y.into_dispatch(), inputs, rerun))
}

/// Input of a part, as kept.
struct Input {
    value: DispatchTensor,
    wanted: bool,
    /// Whether it is computed from other tensors, which its gradient has to reach.
    computed: bool,
}

impl Input {
    fn new(input: &AnyFloat) -> Self {
        let wanted = input.is_tracked();
        let computed = wanted && !Dispatch::float_is_require_grad(&input.0);
        Self { value: input.clone().plain().0, wanted, computed }
    }

    /// Returns it on the device with autodiff, untracked.
    fn constant(&self) -> DispatchTensor {
        Dispatch::from_inner(self.value.clone())
    }

    /// Returns it as a leaf of a new graph, tracked if it needs a gradient.
    fn leaf(&self) -> DispatchTensor {
        Dispatch::float_set_require_grad(self.constant(), self.wanted)
    }

    /// Gradient of an input that the output does not depend on.
    fn absent(&self) -> Option<DispatchTensor> {
        let dtype = self.value.dtype();
        self.computed.then(|| Dispatch::float_zeros(self.value.shape(), &self.value.device(), dtype.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, device, pseudo_random, values};
    use crate::{AttentionOptions, attention, dropout, gelu, linear, residual_dropout, runs_ahead};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    /// Block with dropout in three places.
    fn block(x: Tensor<3>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<3> {
        let options = AttentionOptions::new(2).with_dropout(0.2);
        let x = residual_dropout(x.clone(), attention(x.clone(), x.clone(), x, options), 0.3);
        x.clone() + dropout(gelu(linear(x, weight, Some(bias))), 0.4)
    }

    fn checkpointed(x: Tensor<3>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<3> {
        checkpoint(vec![x.into(), weight.into(), bias.into()], |inputs| {
            let [x, weight, bias] = <[AnyFloat; 3]>::try_from(inputs).expect("three inputs");
            block(x.tensor(), weight.tensor(), bias.tensor())
        })
    }

    type Block = fn(Tensor<3>, Tensor<2>, Tensor<1>) -> Tensor<3>;

    /// Runs two blocks with shared weights. Returns the requested gradients of their inputs, the loss, and a random
    /// number drawn after the second block.
    fn run(block: Block, half: bool, wanted: [bool; 3]) -> Vec<Option<Vec<f32>>> {
        let inputs = Inputs::default().half(half);
        let (x, weight, bias) = (inputs.tensor([2, 7, 6]), inputs.tensor([6, 6]), inputs.tensor([6]));
        let x = if wanted[0] { x } else { x.inner().autodiff() };
        let weight = if wanted[1] { weight } else { weight.inner().autodiff() };
        let bias = if wanted[2] { bias } else { bias.inner().autodiff() };
        crate::seed(5);
        let y = block(block(x.clone(), weight.clone(), bias.clone()), weight.clone(), bias.clone());
        let draw = crate::uniform([1], 0.0, 1.0, &device());
        let upstream = Tensor::<1>::from_floats(pseudo_random(84, 9).as_slice(), &device()).reshape([2, 7, 6]);
        let loss = (y * upstream.cast(x.dtype()).autodiff()).sum();
        let gradients = loss.backward();
        let found =
            [x.grad(&gradients).map(values), weight.grad(&gradients).map(values), bias.grad(&gradients).map(values)];
        found.into_iter().chain([Some(values(loss.inner())), Some(values(draw))]).collect()
    }

    /// Asserts equality on the CPU. Elsewhere fusion depends on the surrounding operations, and so do the last digits.
    fn assert_same(plain: &[Option<Vec<f32>>], again: &[Option<Vec<f32>>]) {
        if !runs_ahead(&device()) {
            assert_eq!(plain, again);
        }
        for (plain, again) in plain.iter().zip(again) {
            assert_eq!(plain.is_some(), again.is_some());
            for (plain, again) in plain.iter().flatten().zip(again.iter().flatten()) {
                assert!((plain - again).abs() <= 1e-5 * plain.abs().max(1.0), "{plain} is not {again}");
            }
        }
    }

    #[test]
    fn gradients_and_draws_are_those_of_the_plain_call() {
        for half in [false, true] {
            for wanted in
                [[true; 3], [false, true, true], [true, false, false], [false, false, true], [true, true, false]]
            {
                let (plain, again) = (run(block, half, wanted), run(checkpointed, half, wanted));
                println!("half: {half}, wanted: {wanted:?}");
                assert_same(&plain, &again);
                assert_eq!([plain[0].is_some(), plain[1].is_some(), plain[2].is_some()], wanted);
            }
        }
    }

    #[test]
    fn compositions_drop_the_same_again() {
        let x = Tensor::<1>::ones([1000], &device()).autodiff().require_grad();
        crate::set_kernels(crate::Kernels::Composed);
        let drop = |x: Tensor<1>| dropout(x, 0.5);
        let y = checkpoint(vec![x.clone().into()], move |inputs| {
            drop(inputs.into_iter().next().expect("an input").tensor())
        });
        let gradients = y.clone().sum().backward();
        let kept = values(y.inner());
        assert_eq!(values(x.grad(&gradients).expect("a gradient")), kept);
        assert!(kept.contains(&0.0) && kept.contains(&2.0));
    }

    #[test]
    fn a_part_runs_twice_in_training_and_once_elsewhere() {
        let count = |x: Tensor<1>, train: bool| {
            let runs = Arc::new(AtomicUsize::new(0));
            let counter = runs.clone();
            let y = checkpoint(vec![x.into()], move |inputs| {
                counter.fetch_add(1, Ordering::Relaxed);
                inputs.into_iter().next().expect("an input").tensor::<1>().square()
            });
            assert_eq!(runs.load(Ordering::Relaxed), 1);
            if train {
                y.sum().backward();
            }
            runs.load(Ordering::Relaxed)
        };
        let x = Tensor::<1>::ones([3], &device());
        assert_eq!(count(x.clone(), false), 1);
        assert_eq!(count(x.clone().autodiff(), false), 1);
        assert_eq!(count(x.autodiff().require_grad(), true), 2);
    }

    #[test]
    fn nothing_of_the_part_is_kept_between_the_passes() {
        // A plain square keeps its input; the part's own squares are dropped when it returns.
        let held = Arc::new(Mutex::new(Vec::new()));
        let x = Tensor::<1>::ones([4], &device()).autodiff().require_grad();
        let seen = held.clone();
        let y = checkpoint(vec![x.into()], move |inputs| {
            let x: Tensor<1> = inputs.into_iter().next().expect("an input").tensor();
            seen.lock().expect("a lock").push(x.is_tracked());
            x.square().square()
        });
        assert_eq!(*held.lock().expect("a lock"), [false], "the first run records nothing");
        y.sum().backward();
        assert_eq!(*held.lock().expect("a lock"), [false, true]);
    }

    #[test]
    fn an_input_without_a_part_in_the_output_is_a_leaf_without_a_gradient_or_passes_zeros_on() {
        let leaf = || Tensor::<1>::ones([2], &device()).autodiff().require_grad();
        let (x, idle, behind) = (leaf(), leaf(), leaf());
        let inputs = vec![x.clone().into(), idle.clone().into(), behind.clone().mul_scalar(2.0).into()];
        let y = checkpoint(inputs, |inputs| inputs.into_iter().next().expect("an input").tensor::<1>().mul_scalar(3.0));
        let gradients = y.sum().backward();
        assert_eq!(x.grad(&gradients).map(values), Some(vec![3.0; 2]));
        assert!(idle.grad(&gradients).is_none());
        assert_eq!(behind.grad(&gradients).map(values), Some(vec![0.0; 2]));
    }

    #[test]
    fn a_part_of_parts_has_the_same_gradients() {
        let nested: Block = |x, weight, bias| {
            checkpoint(vec![x.into(), weight.into(), bias.into()], |inputs| {
                let [x, weight, bias] = <[AnyFloat; 3]>::try_from(inputs).expect("three inputs");
                checkpointed(x.tensor(), weight.tensor(), bias.tensor())
            })
        };
        assert_same(&run(block, false, [true; 3]), &run(nested, false, [true; 3]));
    }
}
