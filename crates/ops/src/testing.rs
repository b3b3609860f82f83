//! Helpers of this crate's tests.

use crate::device::Backing;
use crate::runs_ahead;
use burn::tensor::{DType, Device, Tensor};
use std::cell::Cell;
pub use undertone_testing::random as pseudo_random;

/// Device of the tests: Burn's default device, which `BURN_DEVICE` names (`flex`, `wgpu`, `cuda`, `tch`).
pub fn device() -> Device {
    Device::default()
}

pub fn assert_close<const D: usize>(actual: Tensor<D>, expected: &[f32], tolerance: f32) {
    let actual: Vec<f32> = actual.try_into_vec_as().expect("f32 values");
    assert_eq!(actual.len(), expected.len(), "lengths");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "at {i}: {a} is not {e} within {tolerance}");
    }
}

/// Generator of a comparison's inputs.
#[derive(Clone, Debug)]
pub struct Inputs {
    scale: f32,
    half: bool,
    drawn: Cell<u64>,
}

impl Default for Inputs {
    fn default() -> Self {
        Self { scale: 1.0, half: false, drawn: Cell::new(0) }
    }
}

impl Inputs {
    /// Values in [-scale, scale].
    pub fn scaled(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// In bf16 instead of f32, where the device has it.
    pub fn half(mut self, half: bool) -> Self {
        self.half = half && device().supports_dtype(DType::BF16);
        self
    }

    /// Returns the next input: a leaf that needs a gradient.
    pub fn tensor<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        self.drawn.set(self.drawn.get() + 1);
        let values = pseudo_random(shape.iter().product(), self.drawn.get());
        let values: Vec<f32> = values.into_iter().map(|v| v * self.scale).collect();
        let x = Tensor::<1>::from_floats(values.as_slice(), &device()).reshape(shape);
        let x = if self.half { x.cast(DType::BF16) } else { x };
        x.autodiff().require_grad()
    }
}

/// Asserts that two bodies of an operation agree: values, gradients of all inputs, and the values without autodiff.
pub fn compare<const N: usize, const D: usize, const Y: usize>(
    inputs: [Tensor<D>; N],
    fused: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
    composed: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
) {
    // bf16 has 8 bits: results of some ten roundings, of sums of values around 1.
    let inputs_are_half = inputs[0].dtype() == DType::BF16;
    let tolerance = if inputs_are_half { 0.06 } else { 2e-5 };
    let run = |f: &dyn Fn([Tensor<D>; N]) -> Tensor<Y>| {
        let y = f(inputs.clone());
        let weight = pseudo_random(y.shape().num_elements(), 99);
        let weight = Tensor::<1>::from_floats(weight.as_slice(), &y.device()).reshape(y.dims()).cast(y.dtype());
        let gradients = (y.clone() * weight).sum().backward();
        let mut found = vec![values(y.inner())];
        found.extend(inputs.iter().map(|x| values(x.grad(&gradients).expect("a gradient"))));
        found
    };
    let (a, b) = (run(&fused), run(&composed));
    for (what, (a, b)) in a.iter().zip(&b).enumerate() {
        let what = if what == 0 { "the value".to_owned() } else { format!("gradient {what}") };
        let largest = b.iter().fold(1.0_f32, |m, b| m.max(b.abs()));
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert!((a - b).abs() <= tolerance * largest, "{what} at {i}: fused {a}, composed {b}");
        }
    }
    let plain = values(fused(inputs.map(Tensor::inner)));
    // On the CPU both are one kernel; elsewhere, and in half precision, training and inference may use different
    // kernels.
    let tolerance = if runs_ahead(&device()) || inputs_are_half { tolerance } else { 0.0 };
    for (plain, a) in plain.iter().zip(&a[0]) {
        assert!((plain - a).abs() <= tolerance, "with autodiff {a}, without {plain}");
    }
}

/// Asserts how two bodies of an operation treat a NaN or an infinity in any input or in the output's gradient. Their
/// outputs must be non-finite at the same places. The gradients of the first must be non-finite at least where those of
/// the composition are.
pub fn compare_not_finite<const N: usize, const D: usize, const Y: usize>(
    inputs: [Tensor<D>; N],
    fused: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
    composed: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
) {
    compare_not_finite_but(false, inputs, fused, composed);
}

/// The same for an operation that may skip inputs, whose gradients are then 0.
pub fn compare_not_finite_but<const N: usize, const D: usize, const Y: usize>(
    leaves_out: bool,
    inputs: [Tensor<D>; N],
    fused: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
    composed: impl Fn([Tensor<D>; N]) -> Tensor<Y>,
) {
    let run = |f: &dyn Fn([Tensor<D>; N]) -> Tensor<Y>, inputs: &[Tensor<D>; N], poison: Option<f32>| {
        let y = f(inputs.clone());
        let weight = Tensor::<Y>::ones(y.dims(), &y.device());
        let weight = poison.map_or(weight.clone(), |poison| poisoned(&weight, poison));
        let gradients = (y.clone() * weight).sum().backward();
        let gradients = inputs.iter().map(|x| values(x.grad(&gradients).expect("a gradient")));
        std::iter::once(values(y.inner())).chain(gradients).collect::<Vec<_>>()
    };
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in 0..=N {
            let mut inputs = inputs.clone();
            let upstream = if let Some(input) = inputs.get_mut(place) {
                *input = poisoned(&input.clone().inner(), poison).autodiff().require_grad();
                None
            } else {
                Some(poison)
            };
            let (a, b) = (run(&fused, &inputs, upstream), run(&composed, &inputs, upstream));
            // A class whose logit is -∞ has probability 0, so the infinity may leave no trace.
            let traced = poison == f32::NEG_INFINITY || b.iter().flatten().any(|b| !b.is_finite());
            assert!(traced, "{poison} in {place} leaves no trace");
            // LibTorch's kernels may return finite gradients of an output that is not finite.
            let shown = Backing::of(&device()) == Backing::LibTorch && a[0].iter().any(|a| !a.is_finite());
            for (what, (a, b)) in a.iter().zip(&b).enumerate() {
                for (i, (a, b)) in a.iter().zip(b).enumerate() {
                    let left_out = leaves_out && *a == 0.0;
                    let same = a.is_finite() == b.is_finite() || (what > 0 && (!a.is_finite() || left_out || shown));
                    assert!(same, "{poison} in {place}: {what} at {i}: fused {a}, composed {b}");
                }
            }
        }
    }
}

/// Returns `x` with another value in the middle.
fn poisoned<const D: usize>(x: &Tensor<D>, poison: f32) -> Tensor<D> {
    let (shape, device) = (x.dims(), x.device());
    let mut values = values(x.clone());
    let middle = values.len() / 2;
    values[middle] = poison;
    Tensor::<1>::from_floats(values.as_slice(), &device).reshape(shape)
}

/// Returns frozen weights in each type of half precision that the device has, with the same numbers in f32.
pub fn held(shape: [usize; 2]) -> Vec<[Tensor<2>; 2]> {
    let full = Inputs::default().scaled(0.5).tensor(shape).inner();
    let types = [DType::BF16, DType::F16].into_iter().filter(|dtype| device().supports_dtype(*dtype));
    types.map(|dtype| full.clone().cast(dtype)).map(|half| [half.clone(), half.cast(DType::F32)]).collect()
}

/// Asserts that a function of `x` and a frozen weight has the same value, in f32, and the same gradient for a weight that
/// is [`held`] in half precision and for its numbers in f32, with and without autodiff.
pub fn compare_held<const D: usize, const Y: usize>(
    x: Tensor<D>,
    weights: [Tensor<2>; 2],
    f: impl Fn(Tensor<D>, Tensor<2>) -> Tensor<Y>,
) {
    let [half, full] = weights.map(|weight| {
        let y = f(x.clone(), weight.clone().autodiff());
        let plain = f(x.clone().inner(), weight);
        assert_eq!([y.dtype(), plain.dtype()], [DType::F32; 2]);
        let upstream = pseudo_random(y.shape().num_elements(), 99);
        let upstream = Tensor::<1>::from_floats(upstream.as_slice(), &y.device()).reshape(y.dims());
        let gradients = (y.clone() * upstream).sum().backward();
        [values(y.inner()), values(plain), values(x.grad(&gradients).expect("a gradient"))]
    });
    // Elsewhere a cast may be fused with other operations.
    let tolerance = if runs_ahead(&device()) { 1e-5 } else { 0.0 };
    for (half, full) in half.iter().flatten().zip(full.iter().flatten()) {
        assert!((half - full).abs() <= tolerance, "{half} is not {full}");
    }
}

/// Returns the elements of a tensor.
pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.try_into_vec_as().expect("floats")
}
