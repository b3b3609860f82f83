//! Access to gradients during the backward pass.
//!
//! Burn runs a graph's steps from the output to the leaves and has no hooks of its own. A [`fork`](crate::fork) is a
//! step that passes its input on unchanged, and models have one at the entrance of each block. Here it also calls the
//! hook with the gradients found so far.

use burn::backend::autodiff::grads::Gradients;
use std::cell::RefCell;
use std::rc::Rc;

/// Callback of a backward pass.
pub trait BackwardHook {
    /// Called when the backward pass has passed a [`fork`](crate::fork): everything computed from its output is done.
    fn passed_fork(&mut self, gradients: &mut GradientsSoFar<'_>);
}

/// Gradients that a backward pass has found so far; [`AnyFloat::take_gradient`](crate::AnyFloat::take_gradient) takes
/// them.
pub struct GradientsSoFar<'a>(pub(crate) &'a mut Gradients);

/// Runs `backward`, which is a backward pass, with a hook that is called at each fork. Returns its result and the hook.
/// Forks within a part that [`checkpoint`](crate::checkpoint()) runs again are skipped: gradients there belong to the
/// part's own leaves.
pub fn with_backward_hook<H: BackwardHook + 'static, R>(hook: H, backward: impl FnOnce() -> R) -> (R, H) {
    let hook = Rc::new(RefCell::new(hook));
    let found = with(Some(hook.clone()), backward);
    let hook = Rc::into_inner(hook).expect("nothing else holds the hook after the backward pass");
    (found, hook.into_inner())
}

/// Runs `run` without a hook.
pub(crate) fn without_hook<R>(run: impl FnOnce() -> R) -> R {
    with(None, run)
}

/// Calls the hook for a fork.
pub(crate) fn passed_fork(gradients: &mut Gradients) {
    if let Some(hook) = HOOK.with_borrow(Clone::clone) {
        hook.borrow_mut().passed_fork(&mut GradientsSoFar(gradients));
    }
}

thread_local! {
    /// Hook of this thread's backward pass: Burn runs the pass in the calling thread.
    static HOOK: RefCell<Option<Rc<RefCell<dyn BackwardHook>>>> = const { RefCell::new(None) };
}

fn with<R>(hook: Option<Rc<RefCell<dyn BackwardHook>>>, run: impl FnOnce() -> R) -> R {
    let _before = Restore(HOOK.replace(hook));
    run()
}

/// Restores the previous hook, even if the backward pass panics.
struct Restore(Option<Rc<RefCell<dyn BackwardHook>>>);

impl Drop for Restore {
    fn drop(&mut self) {
        HOOK.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;
    use crate::{AnyFloat, checkpoint, fork};
    use burn::tensor::Tensor;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Takes the gradients of two parameters at every fork.
    struct Taker {
        parameters: [Tensor<1>; 2],
        taken: Vec<[Option<f32>; 2]>,
    }

    impl BackwardHook for Taker {
        fn passed_fork(&mut self, gradients: &mut GradientsSoFar<'_>) {
            self.taken.push(
                self.parameters.clone().map(|parameter| value(AnyFloat::from(parameter).take_gradient(gradients))),
            );
        }
    }

    fn leaf(value: f32) -> Tensor<1> {
        Tensor::<1>::from_floats([value], &device()).autodiff().require_grad()
    }

    fn value(x: Option<Tensor<1>>) -> Option<f32> {
        x.map(|x| x.into_scalar::<f32>())
    }

    /// Returns the gradients taken at each fork of two blocks, whose parameters are 3 and 5, and the remaining ones.
    fn taken(block: fn(Tensor<1>, Tensor<1>) -> Tensor<1>) -> (Vec<[Option<f32>; 2]>, [Option<f32>; 2]) {
        let (x, parameters) = (leaf(2.0), [leaf(3.0), leaf(5.0)]);
        let [a, b] = parameters.clone();
        let y = block(block(x, a), b);
        let (gradients, taker) = with_backward_hook(Taker { parameters, taken: Vec::new() }, || y.backward());
        (taker.taken, taker.parameters.map(|parameter| value(parameter.grad(&gradients))))
    }

    #[test]
    fn gradients_are_there_when_the_backward_pass_has_passed_what_made_them() {
        let found = taken(|x, weight| fork(x) * weight);
        assert_eq!(found, (vec![[None, Some(6.0)], [Some(10.0), None]], [None, None]));
    }

    #[test]
    fn what_is_found_after_that_is_left() {
        // Each parameter is also used before the fork.
        let found = taken(|x, weight| fork(x * weight.clone()) * weight);
        assert_eq!(found, (vec![[None, Some(90.0)], [Some(150.0), Some(90.0)]], [Some(150.0), None]));
    }

    #[test]
    fn parts_that_run_again_have_one_fork() {
        let found = taken(|x, weight| {
            checkpoint(vec![fork(x).into(), weight.into()], |inputs| {
                let [x, weight] = <[AnyFloat; 2]>::try_from(inputs).expect("two inputs");
                fork(fork(x.tensor())) * weight.tensor()
            })
        });
        assert_eq!(found, (vec![[None, Some(6.0)], [Some(10.0), None]], [None, None]));
    }

    #[test]
    fn a_backward_pass_that_fails_leaves_no_hook() {
        struct Fails;
        impl BackwardHook for Fails {
            fn passed_fork(&mut self, _: &mut GradientsSoFar<'_>) {
                panic!("the hook fails");
            }
        }
        let y = || fork(leaf(2.0)).square();
        let failed = catch_unwind(AssertUnwindSafe(|| with_backward_hook(Fails, || y().backward())));
        assert!(failed.is_err());
        let x = leaf(3.0);
        assert_eq!(value(x.grad(&fork(x.clone()).square().backward())), Some(6.0));
    }
}
