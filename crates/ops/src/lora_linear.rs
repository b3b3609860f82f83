//! A linear map with low-rank updates.

use crate::graph::{AnyFloat, recorded};
use crate::host::{self, runs_ahead};
use crate::linear::{check_width, column_sums, gradient_for_bias, linear};
use crate::lora::lora_bank;
use crate::precision::{lowered_input, lowered_weight};
use crate::product::{Matrix, Products, adds_up, lowered_type, matmul, result_type};
#[cfg(feature = "cube")]
use crate::{cube, device::Backing};
use burn::tensor::{DType, Tensor};

/// Low-rank update that adapters add to a linear map: `((x · aᵀ) ⊙ gates) · bᵀ`.
#[derive(Clone, Debug)]
pub struct LoraUpdate<const D: usize> {
    /// The map's input after the adapters' dropout, `[batch, .., in]`; `None` if the adapters read the input itself.
    pub dropped: Option<Tensor<D>>,
    /// Down projection, `[ΣR, in]`.
    pub a: Tensor<2>,
    /// Up projection, `[out, ΣR]`.
    pub b: Tensor<2>,
    /// Gates of the columns.
    pub gates: LoraGates,
}

/// Gates of the columns of a [`LoraUpdate`].
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "it is made once for a map and not kept")]
pub enum LoraGates {
    /// One factor for all columns of every sample.
    Same(f64),
    /// A gate for each sample and column, `[batch, ΣR]`, multiplied by the adapters' scales.
    Each(Tensor<2>),
}

impl<const D: usize> LoraUpdate<D> {
    /// Returns the update alone, `[batch, .., out]`, for an input `x`, `[batch, .., in]`.
    pub fn of(self, x: Tensor<D>) -> Tensor<D> {
        let x = self.dropped.unwrap_or(x);
        match self.gates {
            LoraGates::Same(scale) => linear(linear(x, self.a, None).mul_scalar(scale), self.b, None),
            LoraGates::Each(gates) => lora_bank(x, self.a, self.b, gates),
        }
    }
}

/// Returns `x · weightᵀ + bias` plus all updates, in the type of [`linear`]'s results. On accelerators the map and its first update are one step of
/// the graph. That saves one pass over the wide rows in the forward pass and one in the backward pass.
///
/// # Shapes
/// - `x`: `[batch, .., in]`; `weight`: `[out, in]`; `bias`: `[out]`
/// - output: `[batch, .., out]`
pub fn lora_linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    updates: Vec<LoraUpdate<D>>,
) -> Tensor<D> {
    let dtype = result_type(&x);
    mapped(x, weight, bias, updates, dtype)
}

/// As [`lora_linear`], for a result that only products, attention and GELU read, in the type of [`linear_lowered`](crate::linear_lowered)'s.
pub fn lora_linear_lowered<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    updates: Vec<LoraUpdate<D>>,
) -> Tensor<D> {
    let dtype = lowered_type(&x);
    mapped(x, weight, bias, updates, dtype)
}

fn mapped<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    mut updates: Vec<LoraUpdate<D>>,
    dtype: DType,
) -> Tensor<D> {
    check_width("lora_linear", &x.dims(), weight.dims()[1], &weight.dims());
    // On the CPU, also without its kernels, results have the bits of map and update computed one after the other.
    if updates.is_empty() || !runs_ahead(&x.device()) || result_type(&x) != DType::F32 {
        return host::restored(composed(x, weight, bias, updates), dtype);
    }
    let first = updates.remove(0);
    match sum_of(updates, &x) {
        None => step(x, weight, bias, first, dtype),
        Some(others) => host::restored(step(x, weight, bias, first, DType::F32) + others, dtype),
    }
}

fn composed<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    updates: Vec<LoraUpdate<D>>,
) -> Tensor<D> {
    let update = sum_of(updates, &x);
    let y = linear(x, weight, bias);
    update.map_or(y.clone(), |update| y + update)
}

fn sum_of<const D: usize>(updates: Vec<LoraUpdate<D>>, x: &Tensor<D>) -> Option<Tensor<D>> {
    let dtype = result_type(x);
    updates.into_iter().map(|update| host::restored(update.of(x.clone()), dtype)).reduce(|sum, update| sum + update)
}

/// One step of the graph. Products are computed in the type of [`autocast`](crate::autocast), the one with the wide matrix only where its kernel
/// adds products. Everything else is in f32.
fn step<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    LoraUpdate { dropped, a, b, gates }: LoraUpdate<D>,
    y_dtype: DType,
) -> Tensor<D> {
    let (x_shape, x_dtype) = (x.dims(), x.dtype());
    let dropped_dtype = dropped.as_ref().map_or(x_dtype, Tensor::dtype);
    let bias_dtype = bias.as_ref().map_or(y_dtype, Tensor::dtype);
    let ([d_out, d_in], [rank, _]) = (weight.dims(), a.dims());
    let mut y_shape = x_shape;
    y_shape[D - 1] = d_out;
    let (scale, gates) = match gates {
        LoraGates::Same(scale) => (scale, None),
        LoraGates::Each(gates) => (1.0, Some(gates)),
    };

    let mut inputs: Vec<AnyFloat> = vec![x.into(), weight.into(), a.into(), b.into()];
    let mut optional = |input: Option<AnyFloat>| input.map(|input| (inputs.push(input), inputs.len() - 1).1);
    let dropped = optional(dropped.map(AnyFloat::from));
    let bias = optional(bias.map(AnyFloat::from));
    let gates = optional(gates.map(AnyFloat::from));
    let wanted: Vec<bool> = inputs.iter().map(AnyFloat::is_tracked).collect();
    let wants = move |input: Option<usize>| input.is_some_and(|input| wanted[input]);
    let with_autodiff = inputs.iter().any(AnyFloat::has_autodiff);
    let plain = |input: usize| inputs[input].clone().plain();
    // Casts happen in the shape of the neighbouring operations, so that they are fused with those.
    let read = |input: usize| lowered_input(plain(input).tensor::<D>());

    let [weight, a, b] = [1, 2, 3].map(|input| plain(input).tensor::<2>());
    let weight_dtype = weight.dtype();
    let x = read(0);
    let seen = dropped.map_or_else(|| x.clone(), read);
    // As in `linear`, a weight that is held in half precision is kept so for the backward pass.
    let [kept, low_a, low_b] = [weight, a.clone(), b.clone()].map(|weight| lowered_weight(weight, with_autodiff));
    let dtype = x.dtype();
    let scaling = Scaling {
        scale,
        gates: gates.map(|gates| host::f32(plain(gates).tensor())),
        batch: x_shape[0],
        time: x_shape[1..D - 1].iter().product(),
    };
    let base = [Matrix::of(x.clone()), Matrix::of(host::restored(kept.clone(), dtype)).transposed()];
    let down = [Matrix::of(seen.clone()), Matrix::of(low_a.clone()).transposed()];
    let bias_numbers = bias.map(|bias| plain(bias).tensor::<1>());
    let wide = Wide::new(true, b, low_b.clone());
    let (y, Narrow { low, gated }) = scaling.updated(base, down, wide, bias_numbers, y_dtype, y_shape);

    let (for_dx, for_dw) = (wants(Some(0)).then_some(kept), wants(Some(1)).then_some(x));
    let for_da = wants(Some(2)).then_some(seen);
    let for_db = wants(Some(3)).then_some(gated);
    let for_gates = if wants(gates) { low } else { None };
    let backward = move |dy| {
        let full = Tensor::<D>::from_dispatch(dy);
        let dy = host::restored(full.clone(), dtype);
        let of_dy = || Matrix::of(dy.clone());
        let mut found = vec![None; 4 + [dropped, bias, gates].iter().flatten().count()];
        if let Some(bias) = bias.filter(|bias| wants(Some(*bias))) {
            found[bias] = Some(column_sums(gradient_for_bias(full, dy.clone()), bias_dtype).into_dispatch());
        }
        let gradient = |lhs, x, shape| Products::of(lhs, x).compute::<2>(DType::F32, shape);
        found[1] = for_dw.map(|x| {
            let dw = gradient(of_dy().transposed(), Matrix::of(x), [d_out, d_in]);
            host::restored(dw, weight_dtype).into_dispatch()
        });
        found[3] = for_db.map(|gated| {
            let gated = Matrix::of(host::restored(gated, dtype));
            gradient(of_dy().transposed(), gated, [d_out, rank]).into_dispatch()
        });
        let up = [of_dy(), Matrix::of(low_b)];
        let of_dx = for_dx.map(|weight| [of_dy(), Matrix::of(host::restored(weight, dtype))]);
        let (dx, Narrow { low: d_gated, gated: d_low }) = match of_dx {
            Some(of_dx) if dropped.is_none() => {
                let (dx, narrow) = scaling.updated(of_dx, up, Wide::new(false, a, low_a), None, x_dtype, x_shape);
                (Some(dx), narrow)
            }
            of_dx => {
                let narrow = scaling.narrow(up, rank, dtype);
                if let Some(dropped) = dropped.filter(|dropped| wants(Some(*dropped))) {
                    let d_dropped = Products::of(Matrix::of(narrow.gated.clone()), Matrix::of(low_a));
                    found[dropped] = Some(d_dropped.compute(dropped_dtype, x_shape).into_dispatch());
                }
                (of_dx.map(|[dy, weight]| Products::of(dy, weight).compute(x_dtype, x_shape)), narrow)
            }
        };
        if let (Some(gates), Some(low), Some(d_gated)) = (gates, for_gates, d_gated) {
            let shares = (low * d_gated).reshape([scaling.batch, scaling.time, rank]);
            found[gates] = Some(shares.sum_dim(1).squeeze_dim::<2>(1).into_dispatch());
        }
        found[0] = dx.map(Tensor::into_dispatch);
        found[2] = for_da.map(|x| {
            let d_low = Matrix::of(host::restored(d_low, dtype)).transposed();
            gradient(d_low, Matrix::of(x), [rank, d_in]).into_dispatch()
        });
        found
    };
    recorded(y, inputs, backward)
}

/// Factors of the narrow side of an update.
struct Scaling {
    /// Factor if there are no gates.
    scale: f64,
    /// Gates, `[batch, ΣR]`.
    gates: Option<Tensor<2>>,
    /// Number of samples; `time` is the number of rows of each.
    batch: usize,
    time: usize,
}

/// Narrow side of an update, `[rows, ΣR]`.
struct Narrow {
    /// In f32, before its gates; `None` where nobody needs it: there are none, and one factor for all.
    low: Option<Tensor<2>>,
    /// Multiplied by its gates, in f32 or in the type of products.
    gated: Tensor<2>,
}

/// Wide matrix of an update.
struct Wide {
    /// Whether it is `[width, ΣR]`; else it is `[ΣR, width]`.
    transposed: bool,
    /// The matrix in f32, and in the type of products.
    full: Tensor<2>,
    low: Tensor<2>,
}

impl Wide {
    fn new(transposed: bool, full: Tensor<2>, low: Tensor<2>) -> Self {
        Self { transposed, full: host::f32(full), low }
    }

    fn rank(&self) -> usize {
        self.full.dims()[usize::from(self.transposed)]
    }

    /// Returns the matrix in f32 as `[ΣR, width]`.
    fn lying(&self) -> Tensor<2> {
        if self.transposed { self.full.clone().transpose() } else { self.full.clone() }
    }

    /// Returns the matrix in the type of products as `[ΣR, width]`.
    fn matrix(&self) -> Matrix {
        let matrix = Matrix::of(self.low.clone());
        if self.transposed { matrix.transposed() } else { matrix }
    }
}

impl Scaling {
    /// Returns `low`, `[rows, ΣR]`, multiplied by its gates.
    fn scaled(&self, low: Tensor<2>) -> Tensor<2> {
        let Some(gates) = &self.gates else { return low.mul_scalar(self.scale) };
        let [rows, rank] = low.dims();
        let low = low.reshape([self.batch, self.time, rank]);
        (low * gates.clone().unsqueeze_dim(1)).reshape([rows, rank])
    }

    /// Returns the narrow side, the product of two factors, gated in `dtype`.
    fn narrow(&self, [lhs, rhs]: [Matrix; 2], rank: usize, dtype: DType) -> Narrow {
        let (product, shape) = (Products::of(lhs, rhs), [self.batch * self.time, rank]);
        if self.gates.is_none() {
            return Narrow { low: None, gated: product.scaled(self.scale).compute(dtype, shape) };
        }
        let low = product.compute(DType::F32, shape);
        Narrow { low: Some(low.clone()), gated: host::restored(self.scaled(low), dtype) }
    }

    /// Returns the product of `base`, two factors, plus `bias` and `gated · wide`, in `dtype` and reshaped from `[rows, width]`, and the narrow
    /// side, which is the product of `narrow`.
    fn updated<const D: usize>(
        &self,
        [lhs, rhs]: [Matrix; 2],
        narrow: [Matrix; 2],
        wide: Wide,
        bias: Option<Tensor<1>>,
        dtype: DType,
        shape: [usize; D],
    ) -> (Tensor<D>, Narrow) {
        let (base, rank) = (Products::of(lhs, rhs), wide.rank());
        let low = &wide.low;
        if adds_up(&low.device(), low.dtype()) {
            let narrow = self.narrow(narrow, rank, wide.low.dtype());
            let sum = base.plus(Matrix::of(narrow.gated.clone()), wide.matrix());
            return (sum.with_bias(bias).compute(dtype, shape), narrow);
        }
        let [lhs, rhs] = narrow;
        let rows = self.batch * self.time;
        let low = Products::of(lhs, rhs).compute(DType::F32, [rows, rank]);
        let (y, gated) = self.added(base.compute(DType::F32, [rows, shape[D - 1]]), low.clone(), wide, bias);
        (host::restored(y.reshape(shape), dtype), Narrow { low: Some(low), gated })
    }

    /// Returns `base + bias + gated · wide`, `[rows, width]`, and `gated`, which is `low` multiplied by its gates, all in f32.
    fn added(&self, base: Tensor<2>, low: Tensor<2>, wide: Wide, bias: Option<Tensor<1>>) -> (Tensor<2>, Tensor<2>) {
        #[cfg(feature = "cube")]
        if Backing::of(&base.device()).is_cube() {
            let ([rows, width], rank) = (base.dims(), low.dims()[1]);
            let (transposed, wide) = (wide.transposed, wide.full);
            let (gated, biased) = (self.gates.is_some(), bias.is_some());
            let update = cube::LowRank {
                rows,
                width,
                rank,
                time: self.time,
                scale: self.scale as f32,
                gated,
                transposed,
                biased,
            };
            // An input that is not read may be any tensor.
            let gates = self.gates.clone().unwrap_or_else(|| low.clone()).into_dispatch();
            let bias = bias.map_or_else(|| gates.clone(), |bias| host::f32(bias).into_dispatch());
            let inputs = [base.into_dispatch(), low.into_dispatch(), wide.into_dispatch(), bias, gates];
            let shapes = [[rows, width].into(), [rows, rank].into()];
            let made = cube::launched("add_low_rank", inputs, shapes, move |inputs| update.add(inputs));
            let [y, gated] = made.map(Tensor::from_dispatch);
            return (y, gated);
        }
        let gated = self.scaled(low);
        let y = base + matmul(gated.clone(), wide.lying());
        (bias.map_or(y.clone(), |bias| y + host::f32(bias).unsqueeze()), gated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_held, compare_not_finite, device, held};
    use crate::{Compute, autocast};
    use proptest::prelude::*;

    /// Optional parts of a test case besides input, weight and matrices.
    #[derive(Clone, Copy, Debug)]
    struct With {
        bias: bool,
        gates: bool,
        dropout: bool,
    }

    type Body = fn(Tensor<3>, Tensor<2>, Option<Tensor<1>>, Vec<LoraUpdate<3>>) -> Tensor<3>;

    /// Runs the step by itself.
    fn alone(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, mut updates: Vec<LoraUpdate<3>>) -> Tensor<3> {
        step(x, weight, bias, updates.remove(0), DType::F32)
    }

    /// Runs `body` on `[x, weight, a, b, dropped, bias, gates]`. Inputs that the case does not use are added beside the
    /// map, so that each has a gradient.
    fn run(body: Body, with: With, inputs: [Tensor<3>; 7]) -> Tensor<3> {
        let [x, weight, a, b, dropped, bias, gates] = inputs;
        let unused = [(with.dropout, &dropped), (with.bias, &bias), (with.gates, &gates)];
        let beside = unused.into_iter().filter(|(used, _)| !used).map(|(_, x)| x.clone().sum().reshape([1, 1, 1]));
        let beside = beside.reduce(|sum, x| sum + x);
        let matrix = |x: Tensor<3>| x.squeeze_dim::<2>(0);
        let update = LoraUpdate {
            dropped: with.dropout.then_some(dropped),
            a: matrix(a),
            b: matrix(b),
            gates: if with.gates { LoraGates::Each(gates.squeeze_dim(1)) } else { LoraGates::Same(0.7) },
        };
        let y = body(x, matrix(weight), with.bias.then(|| matrix(bias).squeeze_dim(0)), vec![update]);
        beside.map_or(y.clone(), |beside| y + beside)
    }

    fn inputs([batch, time, d_in, d_out, rank]: [usize; 5]) -> [Tensor<3>; 7] {
        let inputs = Inputs::default();
        let x = [batch, time, d_in];
        let shapes = [x, [1, d_out, d_in], [1, rank, d_in], [1, d_out, rank], x, [1, 1, d_out], [batch, 1, rank]];
        shapes.map(|shape| inputs.tensor(shape))
    }

    proptest! {
        #[test]
        fn the_step_equals_its_composition(
            (batch, time, rank) in (1_usize..4, 1_usize..12, 1_usize..12),
            (d_in, d_out) in (1_usize..150, 1_usize..150),
            (bias, gates, dropout) in any::<(bool, bool, bool)>(),
        ) {
            let with = With { bias, gates, dropout };
            let inputs = inputs([batch, time, d_in, d_out, rank]);
            compare(inputs, |inputs| run(alone, with, inputs), |inputs| run(composed, with, inputs));
        }
    }

    #[test]
    fn half_precision_is_that_of_its_composition() {
        for compute in [Compute::Bf16, Compute::F16].map(|compute| compute.on(&device())) {
            let with = With { bias: true, gates: true, dropout: false };
            let inputs = inputs([2, 9, 20, 30, 4]);
            let found = [alone as Body, composed].map(|body| {
                autocast(compute, || {
                    let y = run(body, with, inputs.clone());
                    let gradients = y.clone().sum().backward();
                    let of = |x: &Tensor<3>| x.grad(&gradients).expect("a gradient");
                    let mut all = vec![y.inner()];
                    all.extend(inputs.iter().map(of));
                    all.into_iter().map(|x| x.try_into_vec_as::<f32>().expect("floats")).collect::<Vec<_>>()
                })
            });
            for (a, b) in found[0].iter().flatten().zip(found[1].iter().flatten()) {
                assert!((a - b).abs() < 0.02 * b.abs().max(4.0), "{compute}: {a} for {b}");
            }
        }
    }

    #[test]
    fn updates_are_summed() {
        let twice = |body: Body| -> Tensor<3> {
            let inputs = inputs([2, 3, 5, 6, 2]).map(Tensor::inner);
            let [x, weight, a, b, ..] = inputs;
            let matrix = |x: Tensor<3>| x.squeeze_dim::<2>(0);
            let update = LoraUpdate { dropped: None, a: matrix(a), b: matrix(b), gates: LoraGates::Same(0.5) };
            let updates = |count: usize| vec![update.clone(); count];
            let map = |count| body(x.clone(), matrix(weight.clone()), None, updates(count));
            // Of twice as much as one, and of none.
            map(2) - map(1).mul_scalar(2.0) + map(0)
        };
        for body in [lora_linear as Body, composed] {
            assert_close(twice(body), &[0.0; 2 * 3 * 6], 1e-5);
        }
    }

    #[test]
    fn a_row_for_each_sample_is_taken() {
        let [_, weight, a, b, _, _, gates] = inputs([2, 3, 5, 6, 2]).map(Tensor::inner);
        let matrix = |x: &Tensor<3>| x.clone().squeeze_dim::<2>(0);
        let gates = LoraGates::Each(gates.squeeze_dim(1));
        let update = LoraUpdate { dropped: None, a: matrix(&a), b: matrix(&b), gates };
        let x = Inputs::default().tensor([2, 5]).inner();
        let expected = composed(x.clone(), matrix(&weight), None, vec![update.clone()]);
        let expected: Vec<f32> = expected.try_into_vec_as().expect("floats");
        assert_close(step(x, matrix(&weight), None, update, DType::F32), &expected, 1e-5);
    }

    #[test]
    fn a_weight_that_is_held_in_half_precision_counts_as_its_numbers() {
        let with = With { bias: true, gates: true, dropout: false };
        let inputs = inputs([2, 9, 20, 30, 4]);
        for weights in held([30, 20]) {
            for body in [alone as Body, composed, lora_linear] {
                let run = |x: Tensor<3>, weight: Tensor<2>| {
                    let is_tracked = x.is_autodiff();
                    let mut inputs = inputs.clone().map(|x| if is_tracked { x } else { x.inner() });
                    (inputs[0], inputs[1]) = (x, weight.unsqueeze());
                    run(body, with, inputs)
                };
                compare_held(inputs[0].clone(), weights.clone(), run);
            }
        }
    }

    #[test]
    fn what_is_frozen_gets_no_gradient() {
        let inputs = inputs([2, 3, 5, 6, 2]);
        let [x, weight, a, b, ..] = inputs.each_ref().map(|x| x.clone().inner());
        let matrix = |x: Tensor<3>| x.squeeze_dim::<2>(0).autodiff();
        let (weight, a, b) = (matrix(weight), matrix(a).require_grad(), matrix(b).require_grad());
        let update = LoraUpdate { dropped: None, a: a.clone(), b: b.clone(), gates: LoraGates::Same(2.0) };
        for body in [alone as Body, composed] {
            let gradients = body(x.clone().autodiff(), weight.clone(), None, vec![update.clone()]).sum().backward();
            assert!(weight.grad(&gradients).is_none());
            assert!(a.grad(&gradients).is_some() && b.grad(&gradients).is_some());
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let with = With { bias: true, gates: true, dropout: true };
        let inputs = inputs([2, 5, 9, 7, 4]);
        compare_not_finite(inputs, |inputs| run(alone, with, inputs), |inputs| run(composed, with, inputs));
    }
}
