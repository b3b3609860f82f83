//! Gradient of an embedding, without atomic operations.

use super::launch::{UNITS, cube_each, empty, highest, row_of_cube, zeros};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Returns the sums of the rows of `dy`, `[rows, width]`, by id, as `[vocabulary, width]`. `ids` are `[rows]`, in 32
/// bits.
pub(crate) fn embedding_backward([ids, dy]: [CubeTensor; 2], vocabulary: usize) -> CubeTensor {
    let [ids, dy] = [ids, dy].map(into_contiguous);
    let (rows, width) = (dy.meta.shape()[0], dy.meta.shape()[1]);
    let sums = zeros(empty(&dy, [vocabulary, width]));
    if rows * width > 0 {
        let (client, units) = (dy.client.clone(), CubeDim::new_1d(UNITS as u32));
        let [ids, dy] = [ids, dy].map(CubeTensor::into_tensor_arg);
        let out = sums.clone().into_tensor_arg();
        let parts = width.div_ceil(UNITS);
        embedding_sums::launch(&client, cube_each(rows * parts), units, ids, dy, out, rows, width, parts);
    }
    sums
}

/// There is a cube for each row and each part of [`UNITS`] columns. The cube of an id's first row sums all rows of the
/// id, in order; the cubes of its other rows do nothing. So the most frequent id, padding, is summed by as many cubes
/// as there are parts.
#[cube(launch)]
fn embedding_sums(
    ids: &Tensor<i32>,
    dy: &Tensor<f32>,
    sums: &mut Tensor<f32>,
    rows: usize,
    width: usize,
    parts: usize,
) {
    let cube = row_of_cube();
    let row = cube / parts;
    let unit = UNIT_POS_X as usize;
    let column = cube % parts * UNITS + unit;
    let mut near = Shared::<[i32]>::new_slice(UNITS);
    let mut found = Shared::<[f32]>::new_slice(UNITS);
    // The condition is the same for all units of a cube, so all of them reach each barrier.
    if row < rows {
        let id = ids[row];
        let mut is_before = 0.0f32;
        let mut before = unit;
        while before < row {
            if ids[before] == id {
                is_before = 1.0f32;
            }
            before += UNITS;
        }
        if highest(&mut found, is_before) == 0.0f32 {
            let mut sum = 0.0f32;
            let mut first = row;
            while first < rows {
                sync_cube();
                if first + unit < rows {
                    near[unit] = ids[first + unit];
                }
                sync_cube();
                if column < width {
                    let last = min(UNITS, rows - first);
                    for at in 0..last {
                        if near[at] == id {
                            sum += dy[(first + at) * width + column];
                        }
                    }
                }
                first += UNITS;
            }
            if column < width {
                sums[usize::cast_from(id) * width + column] = sum;
            }
        }
    }
}
