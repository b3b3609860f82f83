//! Exact GELU, computed in f32, of tensors of any float type.

use super::launch::{element, empty_as, vector_width, wide_grid, wide_stride};
use burn::backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Returns `x · Φ(x)` in the type of `x`.
pub(crate) fn gelu([x]: [CubeTensor; 1]) -> [CubeTensor; 1] {
    let x = into_contiguous(x);
    [elementwise(x.clone(), x, false)]
}

/// Returns the gradient of `x`, in its type, from that of the output: `dy · (Φ(x) + x φ(x))`.
pub(crate) fn gelu_backward([x, dy]: [CubeTensor; 2]) -> [CubeTensor; 1] {
    [elementwise(into_contiguous(x), into_contiguous(dy), true)]
}

/// The forward pass does not read `dy`.
fn elementwise(x: CubeTensor, dy: CubeTensor, is_backward: bool) -> CubeTensor {
    let (client, elements) = (x.client.clone(), x.meta.num_elements());
    let made = empty_as(&x, x.shape(), x.dtype);
    if elements > 0 {
        let width = vector_width([&x, &dy, &made].into_iter());
        let (cubes, units) = wide_grid(&client, elements / width);
        let [of_x, of_dy] = [x.dtype, dy.dtype].map(element);
        let [x, dy, out] = [x, dy, made.clone()].map(CubeTensor::into_tensor_arg);
        gelu_kernel::launch(&client, cubes, units, width, x, dy, out, is_backward, of_x, of_dy);
    }
    made
}

#[cube(launch)]
fn gelu_kernel<X: Numeric, D: Numeric, N: Size>(
    x: &Tensor<Vector<X, N>>,
    dy: &Tensor<Vector<D, N>>,
    out: &mut Tensor<Vector<X, N>>,
    #[comptime] is_backward: bool,
    #[define(X)] _of_x: ElemType,
    #[define(D)] _of_dy: ElemType,
) {
    let mut at = ABSOLUTE_POS;
    while at < x.len() {
        let value = Vector::<f32, N>::cast_from(x[at]);
        let half = Vector::<f32, N>::new(0.5f32);
        let normal = ((value * Vector::new(FRAC_1_SQRT_2)).erf() + Vector::new(1.0f32)) * half;
        if is_backward {
            // φ(x) = exp(-x² / 2) / √(2π).
            let density = (value * value * -half).exp() * Vector::new(comptime!(0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI));
            out[at] = Vector::cast_from((normal + value * density) * Vector::<f32, N>::cast_from(dy[at]));
        } else {
            out[at] = Vector::cast_from(value * normal);
        }
        at += wide_stride();
    }
}
