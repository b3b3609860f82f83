//! Linear maps and embedding look-ups.

use crate::casts::{kept_input, known, remember};
#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::graph::{AnyFloat, recorded};
use crate::host::{self, HostOp, apply, floats, fused, numbers, runs_ahead, tensor};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::precision::{lowered, lowered_input, lowered_weight};
use crate::product::{Matrix, Products, lowered_type, result_type};
#[cfg(feature = "cube")]
use crate::{cube, graph::differentiated};
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Int, Tensor, module};
use std::sync::Arc;
use undertone_kernels::{embedding as embedding_kernels, linear as kernels};

/// Returns `x · weightᵀ + bias`, in the type of `x`; within [`autocast`](crate::autocast) to half precision in f32. A frozen weight may be in
/// half precision whatever that is: it counts as the same numbers in the type that products are computed in, and the graph keeps it as it is.
///
/// # Shapes
/// - `x`: `[.., in]`; `weight`: `[out, in]`; `bias`: `[out]`
/// - output: `[.., out]`
///
/// # Panics
/// If the last axis of `x` is not as wide as the weight takes.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let dtype = result_type(&x);
    linear_as(x, weight, bias, dtype)
}

/// As [`linear`], for a result that only products, [`attention`](crate::attention()) and [`gelu`](crate::gelu) read: within
/// [`autocast`](crate::autocast) to half precision it has that type where kernels write it, as in PyTorch's, which saves memory and its bandwidth.
pub fn linear_lowered<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let dtype = lowered_type(&x);
    linear_as(x, weight, bias, dtype)
}

/// As [`linear`], with a result in `dtype`.
pub(crate) fn linear_as<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    dtype: DType,
) -> Tensor<D> {
    check_width("linear", &x.dims(), weight.dims()[1], &weight.dims());
    if runs_ahead(&x.device()) {
        return step(x, weight, bias, dtype);
    }
    host::restored(product(lowered(x), lowered(weight), bias.map(lowered)), dtype)
}

/// Checks that the last axis of an operation's input is as wide as its weight takes: kernels get numbers without a shape, and would
/// take rows of another width for more or fewer rows.
pub(crate) fn check_width(operation: &str, x: &[usize], width: usize, weight: &[usize]) {
    assert!(
        x.last() == Some(&width),
        "{operation}: the last axis of an input of shape {x:?} is not {width} wide, as the weight of shape {weight:?} takes it"
    );
}

fn product<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let dtype = x.dtype();
    if !fused(&x.device()) {
        return step(x, weight, bias, dtype);
    }
    let (x, weight) = (host::f32(x), host::held(weight));
    let y = match bias {
        None => apply(Linear, [x.into(), weight.into()]),
        Some(bias) => apply(Linear, [x.into(), weight.into(), host::f32(bias).into()]),
    };
    host::restored(y, dtype)
}

/// One step of the graph on every other backend, whose products are computed in the type of
/// [`autocast`](crate::autocast). Burn's own would use the transposed weight, whose gradient then has to be copied into
/// order. The result is in `dtype`.
fn step<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>, dtype: DType) -> Tensor<D> {
    let (x_shape, x_dtype, weight_dtype) = (x.dims(), x.dtype(), weight.dtype());
    let bias_dtype = bias.as_ref().map_or(dtype, Tensor::dtype);
    let [d_out, d_in] = weight.dims();
    let mut y_shape = x_shape;
    y_shape[D - 1] = d_out;
    let inputs: Vec<AnyFloat> =
        [x.clone().into(), weight.clone().into()].into_iter().chain(bias.clone().map(AnyFloat::from)).collect();
    let wanted: Vec<bool> = inputs.iter().map(AnyFloat::is_tracked).collect();
    let with_autodiff = inputs.iter().any(AnyFloat::has_autodiff);
    // Casts happen in the shape of the neighbouring operations, so that they are fused with those.
    let x = lowered_input(AnyFloat::from(x).plain().tensor::<D>());
    let product_dtype = x.dtype();
    // A weight that is held in half precision is kept so for the backward pass.
    let kept = lowered_weight(AnyFloat::from(weight).plain().tensor::<2>(), with_autodiff);
    let weight = host::restored(kept.clone(), product_dtype);
    let bias = bias.map(|bias| AnyFloat::from(bias).plain().tensor::<1>());
    let y = match bias {
        #[cfg(feature = "tch")]
        Some(bias) if Backing::of(&bias.device()) == Backing::LibTorch => {
            let bias = host::restored(bias, product_dtype);
            let rows = x.clone().reshape([x.shape().num_elements() / d_in.max(1), d_in]);
            host::restored(libtorch::affine(rows, weight, bias).reshape(y_shape), dtype)
        }
        // One product over all rows: a batched one would read the weight once per sample.
        bias => {
            let product = Products::of(Matrix::of(x.clone()), Matrix::of(weight).transposed());
            product.with_bias(bias).compute(dtype, y_shape)
        }
    };
    let (x, kept) = (wanted[1].then_some(x), wanted[0].then_some(kept));
    let wants_bias = wanted.get(2) == Some(&true);
    let backward = move |dy| {
        let dy = Tensor::<D>::from_dispatch(dy);
        let low = host::restored(dy.clone(), product_dtype);
        let of_dy = Matrix::of(low.clone());
        let dx = kept.map(|kept| {
            let weight = Matrix::of(host::restored(kept, product_dtype));
            Products::of(of_dy.clone(), weight).compute(x_dtype, x_shape).into_dispatch()
        });
        let dw = x.map(|x| {
            let product = Products::of(of_dy.transposed(), Matrix::of(x));
            product.compute(weight_dtype, [d_out, d_in]).into_dispatch()
        });
        let db = wants_bias.then(|| column_sums(gradient_for_bias(dy, low), bias_dtype).into_dispatch());
        vec![dx, dw, db]
    };
    recorded(y, inputs, backward)
}

/// Gradient of a map's output, `[.., columns]`, of which the bias's is the sum over rows. On CubeCL it is the one that products read, `low`: it
/// has half as many bytes, and is rounded as for the gradients of inputs and weights.
pub(crate) fn gradient_for_bias<const D: usize>(dy: Tensor<D>, low: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if Backing::of(&low.device()).is_cube() {
        return low;
    }
    let _ = low;
    dy
}

/// Column sums, `[columns]`, of `[.., columns]`, added in f32, in `dtype`.
pub(crate) fn column_sums<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<1> {
    let columns = x.dims()[D - 1];
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        let run = |[x]: [_; 1]| [cube::column_sums(x)];
        let [sums] = cube::launched("column_sums", [x.into_dispatch()], [[columns].into()], run);
        return host::restored(Tensor::from_dispatch(sums), dtype);
    }
    let rows = x.shape().num_elements() / columns.max(1);
    host::restored(host::f32(x.reshape([rows, columns])).sum_dim(0).squeeze_dim(0), dtype)
}

/// Returns rows of `weight` by index, in its type; those of a frozen weight in half precision, in f32.
///
/// # Shapes
/// - `weight`: `[vocabulary, d_model]`; `ids`: `[batch, time]`
/// - output: `[batch, time, d_model]`
pub fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    if host::is_half(weight.dtype()) && !weight.is_tracked() {
        return host::f32(module::embedding(weight, ids));
    }
    #[cfg(feature = "cube")]
    if Backing::of(&weight.device()).is_cube() {
        return embedding_step(weight, ids);
    }
    if !fused(&weight.device()) {
        return module::embedding(weight, ids);
    }
    let dtype = weight.dtype();
    let [batch, time] = ids.dims();
    let op = Embedding { ids: ids.into_data().iter::<i64>().map(|id| id as usize).collect(), batch, time };
    host::restored(apply(op, [host::f32(weight).into()]), dtype)
}

/// Embedding whose gradient is summed in a fixed order.
#[cfg(feature = "cube")]
fn embedding_step(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    use burn::tensor::IntDType;
    let ids = ids.inner();
    differentiated(weight, |weight| {
        let ([vocabulary, width], dtype) = (weight.dims(), weight.dtype());
        let y = module::embedding(weight, ids.clone());
        let backward = move |dy: Tensor<3>| {
            let rows = ids.shape().num_elements();
            let (ids, dy) = (ids.reshape([rows]).cast(IntDType::I32), host::f32(dy.reshape([rows, width])));
            let run = move |inputs: [_; 2]| [cube::embedding_backward(inputs, vocabulary)];
            let inputs = [ids.into_dispatch(), dy.into_dispatch()];
            let [sums] = cube::launched("embedding_backward", inputs, [[vocabulary, width].into()], run);
            host::restored(Tensor::from_dispatch(sums), dtype)
        };
        (y, backward)
    })
}

#[derive(Clone, Debug)]
struct Linear;

/// Input if the weight needs a gradient, weight if the input does, and the widths of both sides.
#[derive(Clone, Debug)]
struct SavedLinear {
    x: Option<FlexTensor>,
    weight: Option<FlexTensor>,
    x_shape: Vec<usize>,
    d_out: usize,
}

impl Linear {
    fn run(
        x: FlexTensor,
        weight: FlexTensor,
        bias: Option<&FlexTensor>,
        wanted: [bool; 2],
    ) -> (FlexTensor, SavedLinear) {
        let x_shape = x.layout().shape().to_vec();
        let (d_out, d_in) = (weight.layout().shape()[0], weight.layout().shape()[1]);
        let (input, held, bias) = (floats(&x), numbers(&weight), bias.map(floats));
        let [wants_x, wants_weight] = wanted;
        let known = if wants_weight { known(&x) } else { None };
        let (y, kept) = if wants_weight && known.is_none() {
            let (y, rounded) = kernels::forward_kept(input, held, bias, d_in, d_out);
            (y, rounded.map(|rounded| remember(&x, rounded)))
        } else {
            (kernels::forward(input, held, bias, d_in, d_out), known)
        };
        let mut shape = x_shape.clone();
        *shape.last_mut().expect("a linear map's input has an axis") = d_out;
        let x = wants_weight.then(|| kept.unwrap_or_else(|| kept_input(x)));
        let saved = SavedLinear { x, weight: wants_x.then_some(weight), x_shape, d_out };
        (tensor(y, shape), saved)
    }

    fn gradients(saved: SavedLinear, dy: &FlexTensor) -> [Option<FlexTensor>; 2] {
        let (d_in, d_out) = (*saved.x_shape.last().unwrap_or(&1), saved.d_out);
        let dw = saved.x.map(|x| tensor(kernels::backward_weight(floats(dy), numbers(&x), d_in, d_out), [d_out, d_in]));
        let dx = saved
            .weight
            .map(|weight| tensor(kernels::backward_x(floats(dy), numbers(&weight), d_in, d_out), saved.x_shape));
        [dx, dw]
    }
}

impl HostOp<2> for Linear {
    type Saved = SavedLinear;

    fn forward(&self, [x, weight]: [FlexTensor; 2], wanted: [bool; 2]) -> (FlexTensor, SavedLinear) {
        Self::run(x, weight, None, wanted)
    }

    fn backward(self, saved: SavedLinear, dy: FlexTensor, _: [bool; 2]) -> [Option<FlexTensor>; 2] {
        Self::gradients(saved, &dy)
    }
}

impl HostOp<3> for Linear {
    type Saved = SavedLinear;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3], wanted: [bool; 3]) -> (FlexTensor, SavedLinear) {
        Self::run(x, weight, Some(&bias), [wanted[0], wanted[1]])
    }

    fn backward(self, saved: SavedLinear, dy: FlexTensor, wanted: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let d_out = saved.d_out;
        let db = wanted[2].then(|| tensor(kernels::backward_bias(floats(&dy), d_out), [d_out]));
        let [dx, dw] = Self::gradients(saved, &dy);
        [dx, dw, db]
    }
}

#[derive(Clone, Debug)]
struct Embedding {
    ids: Arc<[usize]>,
    batch: usize,
    time: usize,
}

impl HostOp<1> for Embedding {
    /// Number of rows and columns of the weight.
    type Saved = [usize; 2];

    fn forward(&self, [weight]: [FlexTensor; 1], _: [bool; 1]) -> (FlexTensor, [usize; 2]) {
        let (rows, d) = (weight.layout().shape()[0], weight.layout().shape()[1]);
        let y = embedding_kernels::forward(floats(&weight), &self.ids, d);
        (tensor(y, [self.batch, self.time, d]), [rows, d])
    }

    fn backward(self, [rows, d]: [usize; 2], dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        [Some(tensor(embedding_kernels::backward(floats(&dy), &self.ids, rows, d), [rows, d]))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_held, compare_not_finite, device, held, values};
    use crate::{Compute, autocast};
    use burn::backend::Flex;
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::{DType, FloatDType};
    use proptest::prelude::*;

    /// Runs the step by itself.
    fn alone<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
        let dtype = result_type(&x);
        step(x, weight, bias, dtype)
    }

    #[test]
    fn rows_of_another_width_are_refused() {
        let ones = |shape| Tensor::<2>::ones(shape, &device());
        let refused = |run: &dyn Fn()| {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("refused");
            caught.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let message = refused(&|| drop(linear(ones([2, 8]), ones([3, 4]), None)));
        assert!(message.contains("linear: ") && message.contains("[2, 8]") && message.contains("[3, 4]"), "{message}");
        let channels = || Tensor::<1>::ones([8], &device());
        let message = refused(&|| drop(crate::layer_norm(ones([2, 4]), channels(), channels(), 1e-5)));
        assert!(message.contains("layer_norm: ") && message.contains("[2, 4]"), "{message}");
    }

    #[test]
    fn linear_uses_the_out_in_layout() {
        let x = Tensor::<3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device());
        let weight = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device());
        let bias = Tensor::<1>::from_floats([0.0, 0.0, 10.0], &device());
        let y = linear(x, weight, Some(bias));
        assert_eq!(y.dims(), [2, 1, 3]);
        assert_close(y, &[1.0, 2.0, 13.0, 3.0, 4.0, 17.0], 1e-6);
    }

    #[test]
    fn embedding_picks_rows() {
        let weight = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device());
        let ids = Tensor::<2, Int>::from_ints([[1, 0, 1]], &device());
        assert_close(embedding(weight, ids), &[3.0, 4.0, 1.0, 2.0, 3.0, 4.0], 0.0);
    }

    #[test]
    fn a_weight_learns_from_an_input_without_autodiff() {
        let x = Tensor::<2>::ones([4, 2], &device());
        for body in [linear::<2>, alone::<2>] {
            let weight = Tensor::<2>::ones([3, 2], &device()).autodiff().require_grad();
            let y = body(x.clone(), weight.clone(), None);
            assert!(y.device().is_autodiff());
            assert_close(weight.grad(&y.sum().backward()).expect("a gradient"), &[4.0; 6], 0.0);
        }
    }

    #[test]
    fn a_frozen_weight_gets_no_gradient_and_its_input_does() {
        let device = device().autodiff();
        let weight = Tensor::<2>::ones([3, 2], &device);
        let x = Tensor::<2>::ones([4, 2], &device).require_grad();
        let gradients = linear(x.clone(), weight.clone(), None).sum().backward();
        assert_close(x.grad(&gradients).expect("a gradient"), &[3.0; 8], 0.0);
        assert!(weight.grad(&gradients).is_none());
    }

    #[test]
    fn a_weight_that_is_held_in_half_precision_counts_as_its_numbers() {
        let inputs = Inputs::default();
        let (x, bias) = (inputs.tensor([3, 7, 40]), inputs.tensor([50]).inner());
        for weights in held([50, 40]) {
            for body in [linear::<3>, alone::<3>] {
                compare_held(x.clone(), weights.clone(), |x, weight| body(x, weight, None));
                compare_held(x.clone(), weights.clone(), |x, weight| body(x, weight, Some(bias.clone())));
                for compute in [Compute::Bf16, Compute::F16].map(|compute| compute.on(&device())) {
                    autocast(compute, || compare_held(x.clone(), weights.clone(), |x, weight| body(x, weight, None)));
                }
            }
        }
    }

    #[test]
    fn the_graph_keeps_a_held_weight_as_it_is() {
        let (x, weight) = (tensor(vec![1.0; 6], [2, 3]), tensor(vec![0.5; 12], [4, 3]));
        let half = Flex::float_cast(weight, FloatDType::BF16);
        let (_, saved) = Linear::run(x, half, None, [true, false]);
        assert_eq!(saved.weight.map(|weight| weight.dtype()), Some(DType::BF16));
    }

    #[test]
    fn a_weight_in_half_precision_that_is_tracked_gets_a_gradient_in_its_type() {
        let x = Tensor::<2>::ones([4, 2], &device());
        for [half, _] in held([3, 2]) {
            let dtype = half.dtype();
            for body in [linear::<2>, alone::<2>] {
                let weight = half.clone().autodiff().require_grad();
                let gradient = weight.grad(&body(x.clone(), weight.clone(), None).sum().backward());
                let gradient = gradient.expect("a gradient");
                assert_eq!(gradient.dtype(), dtype);
                assert_close(gradient, &[4.0; 6], 0.0);
            }
        }
    }

    #[test]
    fn rows_of_a_held_table_are_in_f32() {
        let ids = Tensor::<2, Int>::from_ints([[1, 0, 1], [3, 3, 2]], &device());
        for [half, full] in held([4, 5]) {
            for (half, full) in [(half.clone(), full.clone()), (half.autodiff(), full.autodiff())] {
                let rows = embedding(half, ids.clone());
                assert_eq!(rows.dtype(), DType::F32);
                assert_eq!(values(rows), values(embedding(full, ids.clone())));
            }
        }
    }

    fn derived(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
        let y = x.matmul(weight.transpose().unsqueeze());
        bias.map_or(y.clone(), |bias| y + bias.unsqueeze())
    }

    proptest! {
        #[test]
        fn linear_equals_the_operations_that_burn_derives(
            (batch, time, d_in, d_out) in (1_usize..4, 1_usize..20, 1_usize..40, 1_usize..40),
            (biased, half) in any::<(bool, bool)>(),
        ) {
            let inputs = Inputs::default().half(half);
            let x = inputs.tensor([batch, time, d_in]);
            let (weight, bias) = (inputs.tensor([1, d_out, d_in]), inputs.tensor([1, 1, d_out]));
            let run = |f: fn(Tensor<3>, Tensor<2>, Option<Tensor<1>>) -> Tensor<3>| {
                move |[x, w, b]: [Tensor<3>; 3]| {
                    f(x, w.reshape([d_out, d_in]), biased.then(|| b.reshape([d_out])))
                }
            };
            for body in [linear, alone] {
                if biased {
                    compare([x.clone(), weight.clone(), bias.clone()], run(body), run(derived));
                } else {
                    let run = |f| {
                        let run = run(f);
                        move |[x, w]: [Tensor<3>; 2]| run([x.clone(), w, x])
                    };
                    compare([x.clone(), weight.clone()], run(body), run(derived));
                }
            }
        }

        #[test]
        fn embedding_equals_its_composition(rows in 1_usize..9, d in 1_usize..20, time in 1_usize..12, half: bool) {
            let ids: Vec<i64> = (0..2 * time).map(|i| (i * 5 % rows) as i64).collect();
            let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), &device()).reshape([2, time]);
            let weight = Inputs::default().half(half).tensor([rows, d]);
            compare([weight], |[w]| embedding(w, ids.clone()), |[w]| module::embedding(w, ids.clone()));
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let inputs = Inputs::default();
        let [x, weight, bias] = [[2, 5, 9], [1, 7, 9], [1, 1, 7]].map(|shape| inputs.tensor(shape));
        let run = |f: fn(Tensor<3>, Tensor<2>, Option<Tensor<1>>) -> Tensor<3>| {
            move |[x, w, b]: [Tensor<3>; 3]| f(x, w.reshape([7, 9]), Some(b.reshape([7])))
        };
        for body in [linear, alone] {
            compare_not_finite([x.clone(), weight.clone(), bias.clone()], run(body), run(derived));
        }
        let ids = Tensor::<2, Int>::from_ints([[1, 0, 1]], &device());
        let weight = inputs.tensor([2, 3]);
        compare_not_finite([weight], |[w]| embedding(w, ids.clone()), |[w]| module::embedding(w, ids.clone()));
    }
}
