//! The gradient of an embedding, without atomic operations.

use super::launch::{UNITS, cube_each, empty, row_of_cube, zeros};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// The sums of the rows of `dy`, `[rows, width]`, by id, as `[vocabulary, width]`; `ids` are `[rows]`, in 32 bits.
pub(crate) fn embedding_backward([ids, dy]: [CubeTensor; 2], vocabulary: usize) -> CubeTensor {
    let [ids, dy] = [ids, dy].map(into_contiguous);
    let (rows, width) = (dy.meta.shape()[0], dy.meta.shape()[1]);
    let sums = zeros(empty(&dy, [vocabulary, width]));
    if rows * width > 0 {
        let (client, units) = (dy.client.clone(), CubeDim::new_1d(UNITS as u32));
        let [ids, dy] = [ids, dy].map(CubeTensor::into_tensor_arg);
        let out = sums.clone().into_tensor_arg();
        embedding_sums::launch(&client, cube_each(rows), units, ids, dy, out, rows, width);
    }
    sums
}

/// The cube of an id's first row sums all rows of the id, in their order; the cubes of the others have nothing to do.
#[cube(launch)]
fn embedding_sums(ids: &Tensor<i32>, dy: &Tensor<f32>, sums: &mut Tensor<f32>, rows: usize, width: usize) {
    let row = row_of_cube();
    if row < rows {
        let id = ids[row];
        let mut before = 0usize;
        while before < row && ids[before] != id {
            before += 1;
        }
        if before == row {
            let mut at = UNIT_POS_X as usize;
            while at < width {
                let mut sum = dy[row * width + at];
                for later in row + 1..rows {
                    if ids[later] == id {
                        sum += dy[later * width + at];
                    }
                }
                sums[usize::cast_from(id) * width + at] = sum;
                at += UNITS;
            }
        }
    }
}
