//! Matrix units by the fragments that a plane holds in its registers, for half precision on CUDA cards: f16 since compute capability 7.5, bf16
//! since 8.0.
//!
//! The layout is that of `mma.sync.m16n8k16` (PTX ISA, "Matrix fragments"): of 16 × 8 sums lane `l` holds rows `l / 4` and `l / 4 + 8`, and in
//! each of them two neighbouring columns from `2 · (l % 4)`. The registers of two such tiles side by side are those of a left factor, and
//! either half of them is one of `m16n8k8`, the instruction of 7.5.

use super::launch::element;
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::cmma::MmaDefinition;
use burn_cubecl::cubecl::frontend::comptime::device_properties;
use burn_cubecl::cubecl::ir::features::MmaConfig;
use burn_cubecl::cubecl::ir::{DeviceProperties, ElemType};
use burn_cubecl::cubecl::prelude::*;

/// Units of a plane.
pub(super) const LANES: usize = 32;

/// Whether the device has these instructions for numbers of this type.
pub(crate) fn has_fragments(properties: &DeviceProperties, dtype: DType) -> bool {
    let low = element(dtype);
    dtype != DType::F32 && depth(properties, low).is_some() && properties.features.matmul.ldmatrix.contains(&low)
}

/// Numbers of each sum that an instruction adds.
fn depth(properties: &DeviceProperties, low: ElemType) -> Option<usize> {
    let has = |k| {
        let config = MmaConfig { a_type: low, b_type: low, cd_type: element(DType::F32), m: 16, n: 8, k };
        properties.features.matmul.mma.contains(&config)
    };
    [16, 8].into_iter().find(|depth| has(*depth)).map(|depth| depth as usize)
}

/// Returns the instruction for factors of this type.
#[cube]
pub(super) fn instruction<T: Numeric>() -> MmaDefinition<T, T, f32> {
    let depth = depth_of::<T>();
    MmaDefinition::<T, T, f32>::new(16usize, 8usize, depth)
}

#[cube]
fn depth_of<T: Numeric>() -> comptime_type!(usize) {
    let properties = device_properties();
    let low = elem_type_of::<T>();
    comptime!(depth(&properties, low).unwrap_or(16))
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
    let mma = instruction::<T>();
    let depth = depth_of::<T>();
    let mut c = Array::<Vector<f32, P>>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        c[i] = sums[comptime!(of_sums + i)];
    }
    #[unroll]
    for part in 0..comptime!(16 / depth) {
        let mut a = Array::<Vector<T, P>>::new(comptime!(depth / 4));
        let mut b = Array::<Vector<T, P>>::new(comptime!(depth / 8));
        #[unroll]
        for i in 0..comptime!(depth / 4) {
            a[i] = left[comptime!(of_left + part * (depth / 4) + i)];
        }
        #[unroll]
        for i in 0..comptime!(depth / 8) {
            b[i] = right[comptime!(of_right + part * (depth / 8) + i)];
        }
        let found = mma.execute(&a, &b, &c);
        #[unroll]
        for i in 0..2usize {
            c[i] = found[i];
        }
    }
    #[unroll]
    for i in 0..2usize {
        sums[comptime!(of_sums + i)] = c[i];
    }
}
