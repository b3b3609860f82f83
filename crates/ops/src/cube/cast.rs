//! Casts of many tensors, by one kernel for each group of them.

use super::launch::{element, empty_as, vector_width, wide_grid, wide_stride};
use super::optimizer::{every, grouped, longest};
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Returns f32 tensors in another type.
pub(crate) fn cast_all(tensors: Vec<CubeTensor>, dtype: DType) -> Vec<CubeTensor> {
    let client = tensors[0].client.clone();
    let pairs = tensors.into_iter().map(into_contiguous).flat_map(|x| {
        let y = empty_as(&x, x.meta.shape().clone(), dtype);
        [x, y]
    });
    let mut made = Vec::new();
    for group in grouped(pairs.collect(), &client, 2) {
        let width = vector_width(group.iter());
        let (cubes, units) = wide_grid(&client, longest(&group, width));
        cast_all_kernel::launch(&client, cubes, units, width, every(&group, 0, 2), every(&group, 1, 2), element(dtype));
        made.extend(group.into_iter().skip(1).step_by(2));
    }
    made
}

#[cube(launch)]
fn cast_all_kernel<T: Numeric, N: Size>(
    tensors: &Sequence<OwnedTensor<Vector<f32, N>>>,
    outputs: &mut Sequence<OwnedTensor<Vector<T, N>>>,
    #[define(T)] _dtype: ElemType,
) {
    #[unroll]
    for i in 0..tensors.len() {
        let (x, y) = (&tensors[i], &mut outputs[i]);
        let mut at = ABSOLUTE_POS;
        while at < x.len() {
            y[at] = Vector::cast_from(x[at]);
            at += wide_stride();
        }
    }
}
