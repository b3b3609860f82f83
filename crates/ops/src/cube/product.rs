//! Products of matrices in exact f32.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::ir::{ElemType, FloatKind};
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::MatmulElems;
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

/// `lhs · rhs` over the last two axes, by multiplying and adding f32 numbers.
pub(crate) fn matmul(lhs: &CubeTensor, rhs: &CubeTensor) -> CubeTensor {
    let shapes = [lhs.meta.shape(), rhs.meta.shape()];
    if shapes.iter().any(|shape| shape.num_elements() == 0) {
        return CubeBackend::float_zeros(product_shape(shapes[0], shapes[1]), &lhs.device, FloatDType::F32);
    }
    let out = init_matmul_output(lhs, rhs, DType::F32);
    let f32 = ElemType::Float(FloatKind::F32);
    let launch = |strategy: Strategy| {
        let [lhs, rhs] = [lhs, rhs].map(|x| InputBinding::new(x.clone().binding(), f32));
        let mut types = MatmulElems::from_single_dtype(f32);
        launch_ref(&strategy.into(), &out.client, lhs, rhs, out.clone().binding(), &mut types)
    };
    let launched = launch(Strategy::SimpleUnit(Default::default())).or_else(|_| launch(Strategy::Naive));
    launched.expect("the naive kernel takes factors of any shape");
    out
}

/// `[.., m, n]` of `[.., m, k]` and `[.., k, n]`.
pub(crate) fn product_shape(lhs: &Shape, rhs: &Shape) -> Shape {
    let mut shape = lhs.clone();
    let last = shape.num_dims() - 1;
    shape[last] = rhs[last];
    shape
}
