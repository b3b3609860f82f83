//! Matrix products, by kernels that are selected here: Burn's selection cannot disable TF32, rounds the result to the
//! type of its factors, and tries kernels that take NVIDIA's compiler minutes each.

mod launch;
mod tiles;
#[cfg(feature = "autotune")]
mod tuning;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::multi_level::Strategy;
pub(crate) use launch::Rounding;
use launch::launch;
use tiles::{Epilogue, launch_tiles};

/// Returns `lhs · rhs` over the last two axes, in the type `out`; both factors have the same type.
pub(crate) fn matmul(lhs: &CubeTensor, rhs: &CubeTensor, out: DType, rounding: Rounding) -> CubeTensor {
    let shapes = [lhs.meta.shape(), rhs.meta.shape()];
    if shapes.iter().any(|shape| shape.num_elements() == 0) {
        let float: FloatDType = out.into();
        return CubeBackend::float_zeros(product_shape(shapes[0], shapes[1]), &lhs.device, float);
    }
    let y = init_matmul_output(lhs, rhs, out);
    if launch_tiles(&[[lhs, rhs]], Epilogue::default(), &y) {
        return y;
    }
    #[cfg(feature = "autotune")]
    if multiplications(lhs, rhs) >= WORTH_TUNING {
        tuning::launch_fastest(lhs.clone(), rhs.clone(), y.clone(), rounding);
        return y;
    }
    launch_by_rule(lhs, rhs, &y, rounding);
    y
}

/// Returns `scale · Σ lhs · rhs + bias` of matrices in the type `out`, for factors of a type that [`has_fragments`](super::has_fragments).
pub(crate) fn sum_of_products(
    terms: &[[&CubeTensor; 2]],
    scale: f32,
    bias: Option<&CubeTensor>,
    out: DType,
) -> CubeTensor {
    let y = init_matmul_output(terms[0][0], terms[0][1], out);
    if launch_tiles(terms, Epilogue { scale, bias, base: None }, &y) {
        return y;
    }
    let (last, others) = terms.split_last().expect("a sum has a term");
    let mut sum: Option<CubeTensor> = None;
    for factors in others {
        sum = Some(product_plus(*factors, Epilogue { scale, bias: None, base: sum.as_ref() }, DType::F32));
    }
    product_plus(*last, Epilogue { scale, bias, base: sum.as_ref() }, out)
}

/// Returns a product of matrices in the type `out`, after the epilogue.
fn product_plus([lhs, rhs]: [&CubeTensor; 2], epilogue: Epilogue, out: DType) -> CubeTensor {
    let y = init_matmul_output(lhs, rhs, out);
    if launch_tiles(&[[lhs, rhs]], epilogue, &y) {
        return y;
    }
    let Epilogue { scale, bias, base } = epilogue;
    let bias = bias.map(|bias| CubeBackend::float_reshape(bias.clone(), [1, bias.meta.num_elements()].into()));
    let y = matmul(lhs, rhs, DType::F32, Rounding::MatrixUnits);
    let y = if scale == 1.0 { y } else { CubeBackend::float_mul_scalar(y, scale.into()) };
    let sum = base.cloned().into_iter().chain(bias).fold(y, CubeBackend::float_add);
    if out == DType::F32 { sum } else { CubeBackend::float_cast(sum, out.into()) }
}

/// Number of multiplications from which tuning pays. A card computes a smaller product in some microseconds, whatever
/// the kernel, and each kernel that is tried takes NVIDIA's compiler a quarter of a second.
#[cfg(feature = "autotune")]
const WORTH_TUNING: usize = 1 << 26;

#[cfg(feature = "autotune")]
fn multiplications(lhs: &CubeTensor, rhs: &CubeTensor) -> usize {
    let columns = *rhs.meta.shape().last().unwrap_or(&1);
    lhs.meta.num_elements().saturating_mul(columns)
}

/// Launches the kernel that suits most shapes, or else one that accepts all of them.
fn launch_by_rule(lhs: &CubeTensor, rhs: &CubeTensor, y: &CubeTensor, rounding: Rounding) {
    let with_matrix_units = (rounding == Rounding::MatrixUnits).then(|| Strategy::SimpleCyclicCmma(Default::default()));
    let mut strategies =
        with_matrix_units.into_iter().chain([Strategy::SimpleUnit(Default::default()), Strategy::Naive]);
    let launched = strategies.any(|strategy| launch(strategy, lhs, rhs, y).is_ok());
    assert!(launched, "the naive kernel takes factors of any shape");
}

/// Returns `[.., m, n]` for `[.., m, k]` and `[.., k, n]`.
pub(crate) fn product_shape(lhs: &Shape, rhs: &Shape) -> Shape {
    let mut shape = lhs.clone();
    let last = shape.num_dims() - 1;
    shape[last] = rhs[last];
    shape
}
