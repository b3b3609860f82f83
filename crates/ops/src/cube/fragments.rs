//! Matrix units by the fragments that a plane holds in its registers, for half precision on CUDA cards since compute capability 8.0.
//!
//! The layout is that of `mma.sync.m16n8k16` (PTX ISA, "Matrix fragments"): of 16 × 8 sums lane `l` holds rows `l / 4` and `l / 4 + 8`, and in
//! each of them two neighbouring columns from `2 · (l % 4)`. The registers of two such tiles side by side are those of a left factor.

use super::launch::element;
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::cmma::MmaDefinition;
use burn_cubecl::cubecl::ir::DeviceProperties;
use burn_cubecl::cubecl::ir::features::MmaConfig;
use burn_cubecl::cubecl::prelude::*;

/// Units of a plane.
pub(super) const LANES: usize = 32;

/// Whether the device has these instructions for numbers of this type.
pub(crate) fn has_fragments(properties: &DeviceProperties, dtype: DType) -> bool {
    let (low, f32) = (element(dtype), element(DType::F32));
    let config = MmaConfig { a_type: low, b_type: low, cd_type: f32, m: 16, n: 8, k: 16 };
    let matmul = &properties.features.matmul;
    dtype != DType::F32 && matmul.mma.contains(&config) && matmul.ldmatrix.contains(&low)
}

/// Adds the product of four registers of a left factor, `[16, 16]`, and two of a right one, `[16, 8]`, to two vectors of sums.
#[cube]
pub(super) fn multiply<T: Numeric, P: Size>(
    sums: &mut Array<Vector<f32, P>>,
    #[comptime] of_sums: usize,
    left: &Array<Vector<T, P>>,
    #[comptime] of_left: usize,
    right: &Array<Vector<T, P>>,
    #[comptime] of_right: usize,
) {
    let mma = MmaDefinition::<T, T, f32>::new(16usize, 8usize, 16usize);
    let mut a = Array::<Vector<T, P>>::new(4usize);
    let mut b = Array::<Vector<T, P>>::new(2usize);
    let mut c = Array::<Vector<f32, P>>::new(2usize);
    #[unroll]
    for i in 0..4usize {
        a[i] = left[comptime!(of_left + i)];
    }
    #[unroll]
    for i in 0..2usize {
        b[i] = right[comptime!(of_right + i)];
        c[i] = sums[comptime!(of_sums + i)];
    }
    let found = mma.execute(&a, &b, &c);
    #[unroll]
    for i in 0..2usize {
        sums[comptime!(of_sums + i)] = found[i];
    }
}
