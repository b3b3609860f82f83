//! Sums in a fixed order.

use super::launch::{UNITS, empty, summed};
use super::optimizer::{grouped, strided};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Cubes that sum in parallel.
const CUBES: usize = 128;
/// Number of elements that one cube sums alone.
const FEW: usize = 64 * UNITS;

/// Returns the sum of all elements, `[1]`.
pub(crate) fn sum(x: CubeTensor) -> CubeTensor {
    let x = if x.meta.num_elements() > FEW { partial_sums(vec![x], false) } else { into_contiguous(x) };
    collected(&x)
}

/// Returns the sum of squares of all elements of all tensors, `[1]`.
pub(crate) fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    collected(&partial_sums(tensors, true))
}

/// Returns partial sums, `[groups · CUBES]`.
fn partial_sums(tensors: Vec<CubeTensor>, squares: bool) -> CubeTensor {
    let client = tensors.first().expect("something to sum").client.clone();
    let groups = grouped(tensors.into_iter().map(into_contiguous).collect(), &client, 1);
    let like = groups[0][0].clone();
    let sums = empty(&like, [groups.len() * CUBES]);
    for (index, group) in groups.into_iter().enumerate() {
        let tensors: SequenceArg<OwnedTensor<f32>> = group.into_iter().map(CubeTensor::into_tensor_arg).collect();
        let (cubes, units) = (CubeCount::Static(CUBES as u32, 1, 1), CubeDim::new_1d(UNITS as u32));
        let out = sums.clone().into_tensor_arg();
        partial_sums_kernel::launch(&client, cubes, units, tensors, out, index * CUBES, squares);
    }
    sums
}

fn collected(x: &CubeTensor) -> CubeTensor {
    let sum = empty(x, [1]);
    let (one, units) = (CubeCount::Static(1, 1, 1), CubeDim::new_1d(UNITS as u32));
    let elements = x.meta.num_elements();
    let (x, out) = (x.clone().into_tensor_arg(), sum.clone().into_tensor_arg());
    collected_kernel::launch(&sum.client, one, units, x, out, elements);
    sum
}

#[cube(launch)]
fn partial_sums_kernel(
    tensors: &Sequence<OwnedTensor<f32>>,
    sums: &mut Tensor<f32>,
    first: usize,
    #[comptime] squares: bool,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let mut share = 0.0f32;
    #[unroll]
    for i in 0..tensors.len() {
        let x = &tensors[i];
        let mut at = ABSOLUTE_POS;
        while at < x.len() {
            if squares {
                share += x[at] * x[at];
            } else {
                share += x[at];
            }
            at += strided();
        }
    }
    let sum = summed(&mut shares, share);
    if UNIT_POS_X == 0 {
        sums[first + CUBE_POS_X as usize] = sum;
    }
}

#[cube(launch)]
fn collected_kernel(x: &Tensor<f32>, sum: &mut Tensor<f32>, elements: usize) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let mut share = 0.0f32;
    let mut at = UNIT_POS_X as usize;
    while at < elements {
        share += x[at];
        at += UNITS;
    }
    let all = summed(&mut shares, share);
    if UNIT_POS_X == 0 {
        sum[0] = all;
    }
}
