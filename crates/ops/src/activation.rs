//! Element-wise operations: GELU and dropout.

use crate::casts::remember;
#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::graph::differentiated;
use crate::host::{self, HostOp, apply, floats, fused, like, numbers, whole};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::random::{draw_seed, kept};
#[cfg(feature = "cube")]
use crate::{
    cube,
    graph::{AnyFloat, recorded},
};
#[cfg(feature = "cube")]
use burn::backend::DispatchTensor;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use undertone_kernels::activation as kernels;

/// Exact GELU, `x · Φ(x)` with Φ from the error function (not the tanh approximation), as in Whisper. Its gradient is
/// exact too, `Φ(x) + x φ(x)`; on most backends Burn uses that of the approximation, which is off by up to 9e-4. Where a CPU multiplies in
/// bf16, it is the gradient at the input rounded to bf16, which is what is kept of it.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "tch")]
    if Backing::of(&x.device()) == Backing::LibTorch {
        return libtorch::gelu(x);
    }
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        return gelu_on_cube(x);
    }
    if !fused(&x.device()) {
        return composed_gelu(x);
    }
    let dtype = x.dtype();
    host::restored(apply(Gelu, [host::f32(x).into()]), dtype)
}

/// One kernel for each pass: composed, each is up to nine operations of the device's queue.
#[cfg(feature = "cube")]
fn gelu_on_cube<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let (shape, dtype) = (x.shape(), x.dtype());
    differentiated(x, |x| {
        let input = x.clone().into_dispatch();
        let [y] = cube::launched_as("gelu", [input], [(shape.clone(), dtype)], cube::gelu);
        let backward = move |dy: Tensor<D>| {
            let inputs = [x, dy].map(Tensor::into_dispatch);
            let [dx] = cube::launched_as("gelu_backward", inputs, [(shape, dtype)], cube::gelu_backward);
            Tensor::from_dispatch(dx)
        };
        (Tensor::from_dispatch(y), backward)
    })
}

/// GELU in f32, also of numbers in half precision, which are kept as they are.
fn composed_gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let dtype = x.dtype();
    // Φ(x) = (1 + erf(x / √2)) / 2 and φ(x) = exp(-x² / 2) / √(2π).
    let normal = |x: Tensor<D>| x.mul_scalar(FRAC_1_SQRT_2).erf().add_scalar(1.0).mul_scalar(0.5);
    let density = |x: Tensor<D>| x.square().mul_scalar(-0.5).exp().mul_scalar(0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI);
    differentiated(x, |x| {
        let wide = host::f32(x.clone());
        let backward = move |dy| {
            let x = host::f32(x);
            host::restored((normal(x.clone()) + x.clone() * density(x)) * host::f32(dy), dtype)
        };
        (host::restored(wide.clone() * normal(wide), dtype), backward)
    })
}

/// Zeroes each element with probability `p` and scales the rest by `1 / (1 - p)`.
///
/// Acts only on a device with autodiff, that is, in training; elsewhere it is the identity.
pub fn dropout<const D: usize>(x: Tensor<D>, p: f64) -> Tensor<D> {
    let device = x.device();
    if p == 0.0 || !device.is_autodiff() {
        return x;
    }
    let (dtype, seed) = (x.dtype(), draw_seed());
    let x = host::f32(x);
    let y = if fused(&device) {
        apply(Dropout { p: p as f32, seed }, [x.into()])
    } else {
        // The mask is recomputed in the backward pass instead of being kept.
        differentiated(x, |x| (drop_elements(x, p, seed), move |dy| drop_elements(dy, p, seed)))
    };
    host::restored(y, dtype)
}

/// Returns `x` without the elements that this seed drops, off the CPU and without autodiff.
pub(crate) fn drop_elements<const D: usize>(x: Tensor<D>, p: f64, seed: u64) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        let (drop, shape) = (cube::Drop::new(p, seed), x.shape());
        let run = move |[x]: [_; 1]| [cube::dropout(None, x, drop)];
        let [y] = cube::launched("dropout", [x.into_dispatch()], [shape], run);
        return Tensor::from_dispatch(y);
    }
    let kept = kept(x.dims(), p, seed, &x.device());
    x * kept
}

/// Returns `residual + dropout(x, p)`, the end of a residual block.
pub fn residual_dropout<const D: usize>(residual: Tensor<D>, x: Tensor<D>, p: f64) -> Tensor<D> {
    let device = x.device();
    if p == 0.0 || !device.is_autodiff() {
        return residual + x;
    }
    #[cfg(feature = "cube")]
    if Backing::of(&device).is_cube() {
        return residual_step(residual, x, p);
    }
    if !fused(&device) {
        return residual + dropout(x, p);
    }
    let dtype = x.dtype();
    let op = Dropout { p: p as f32, seed: draw_seed() };
    host::restored(apply(op, [host::f32(residual).into(), host::f32(x).into()]), dtype)
}

/// Both in one kernel for CubeCL.
#[cfg(feature = "cube")]
fn residual_step<const D: usize>(residual: Tensor<D>, x: Tensor<D>, p: f64) -> Tensor<D> {
    let (dtype, seed) = (x.dtype(), draw_seed());
    let inputs = [host::f32(residual), host::f32(x)].map(AnyFloat::from);
    let (drop, shape) = (cube::Drop::new(p, seed), inputs[0].clone().tensor::<D>().shape());
    let run = move |[residual, x]: [_; 2]| [cube::dropout(Some(residual), x, drop)];
    let plain = inputs.clone().map(|input| input.plain().0);
    let [y] = cube::launched("residual_dropout", plain, [shape], run);
    let backward = move |dy: DispatchTensor| {
        let dx = drop_elements(Tensor::<D>::from_dispatch(dy.clone()), p, seed);
        vec![Some(dy), Some(dx.into_dispatch())]
    };
    host::restored(recorded(Tensor::from_dispatch(y), inputs, backward), dtype)
}

#[derive(Clone, Debug)]
struct Gelu;

impl HostOp<1> for Gelu {
    /// Input, if it needs a gradient: rounded where products are, as PyTorch's autocast keeps it.
    type Saved = Option<FlexTensor>;

    fn forward(&self, [x]: [FlexTensor; 1], [wanted]: [bool; 1]) -> (FlexTensor, Option<FlexTensor>) {
        if !wanted {
            return (like(kernels::gelu(floats(&x)), &x), None);
        }
        let (y, rounded) = kernels::gelu_kept(floats(&x));
        (like(y, &x), Some(rounded.map(|rounded| remember(&x, rounded)).unwrap_or(x)))
    }

    fn backward(self, x: Option<FlexTensor>, dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let mut gradient = whole(dy);
        [x.map(|x| {
            kernels::gelu_backward(numbers(&x), gradient.storage_mut());
            gradient
        })]
    }
}

#[derive(Clone, Debug)]
struct Dropout {
    p: f32,
    seed: u64,
}

impl HostOp<1> for Dropout {
    type Saved = ();

    fn forward(&self, [x]: [FlexTensor; 1], _: [bool; 1]) -> (FlexTensor, ()) {
        (like(kernels::dropout(floats(&x), self.p, self.seed), &x), ())
    }

    fn backward(self, (): (), dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        [Some(like(kernels::dropout(floats(&dy), self.p, self.seed), &dy))]
    }
}

impl HostOp<2> for Dropout {
    type Saved = ();

    fn forward(&self, [residual, x]: [FlexTensor; 2], _: [bool; 2]) -> (FlexTensor, ()) {
        (like(kernels::residual_dropout(floats(&residual), floats(&x), self.p, self.seed), &x), ())
    }

    fn backward(self, (): (), dy: FlexTensor, [_, x]: [bool; 2]) -> [Option<FlexTensor>; 2] {
        let dx = x.then(|| like(kernels::dropout(floats(&dy), self.p, self.seed), &dy));
        [Some(dy), dx]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device, pseudo_random};
    use proptest::prelude::*;

    #[test]
    fn gelu_is_the_erf_form() {
        let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &device());
        // x · (1 + erf(x / √2)) / 2; the tanh form differs in the fourth digit.
        let expected = [-0.004_049_69, -0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7];
        assert_close(gelu(x), &expected, 1e-6);
    }

    proptest! {
        #[test]
        fn gelu_equals_its_composition(rows in 1_usize..5, columns in 1_usize..70, half: bool) {
            let x = Inputs::default().scaled(4.0).half(half).tensor([rows, columns]);
            compare([x], |[x]| gelu(x), |[x]| composed_gelu(x));
        }
    }

    #[test]
    fn dropout_keeps_the_mean_in_training_and_is_absent_in_inference() {
        let x = Tensor::<1>::ones([20_000], &device());
        assert_close(dropout(x.clone(), 0.3).mean(), &[1.0], 0.0);
        let dropped = dropout(x.autodiff(), 0.3);
        let zeros = dropped.clone().equal_scalar(0.0).int().float().mean().into_scalar::<f32>();
        assert!((zeros - 0.3).abs() < 0.02, "{zeros} of the elements were dropped");
        assert_close(dropped.mean(), &[1.0], 0.03);
    }

    #[test]
    fn the_seed_decides_what_is_dropped() {
        let draw = |seed| {
            crate::seed(seed);
            dropout(Tensor::<1>::ones([64], &device().autodiff()), 0.5).try_into_vec_as::<f32>().expect("floats")
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn every_device_drops_what_the_kernel_drops(seed: u64, p in 0.0_f32..0.99, rows in 1_usize..40, columns in 1_usize..70) {
            let x = pseudo_random(rows * columns, seed);
            let expected = kernels::dropout(&x, p, seed);
            let x = Tensor::<1>::from_floats(x.as_slice(), &device()).reshape([rows, columns]);
            // Transposed and back, so that the memory order differs from the tensor's.
            let x = x.transpose().add_scalar(0.0).transpose();
            assert_close(drop_elements(x, f64::from(p), seed), &expected, 1e-6);
        }
    }

    #[test]
    fn the_residual_passes_and_the_branch_is_dropped_alike_in_both_passes() {
        let device = device().autodiff();
        let leaf = |value: f32| Tensor::<1>::full([1000], value, &device).require_grad();
        let (residual, x) = (leaf(10.0), leaf(1.0));
        let y = residual_dropout(residual.clone(), x.clone(), 0.5);
        let gradients = y.clone().sum().backward();
        assert_close(residual.grad(&gradients).expect("a gradient"), &[1.0; 1000], 0.0);
        let branch: Vec<f32> = (y.inner() - 10.0).try_into_vec_as().expect("floats");
        assert_close(x.grad(&gradients).expect("a gradient"), &branch, 0.0);
        assert!(branch.iter().all(|b| *b == 0.0 || *b == 2.0));
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let inputs = Inputs::default();
        let [residual, x] = [(); 2].map(|()| inputs.tensor([3, 40]));
        compare_not_finite([residual, x], |[r, x]| residual_dropout(r, x, 0.0), |[r, x]| r + x);
    }
}
