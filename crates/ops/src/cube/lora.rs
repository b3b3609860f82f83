//! Low-rank update added to its target: one pass over the wide rows, where a product and a sum would make three.

use super::launch::{cube_each, empty, row_of_cube};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Units of a cube; neighbours process neighbouring columns.
const UNITS: usize = 64;
/// Columns of a unit, [`UNITS`] apart, and rows of a unit.
const COLUMNS: usize = 2;
const ROWS: usize = 8;

/// Update of rows of `width` numbers from `rank` numbers each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowRank {
    pub rows: usize,
    pub width: usize,
    pub rank: usize,
    /// Rows of a sample, which share a gate.
    pub time: usize,
    /// Factor of every gate.
    pub scale: f32,
    /// Whether gates are read, `[rows / time, rank]`.
    pub gated: bool,
    /// Whether the wide matrix is `[width, rank]`; else it is `[rank, width]`.
    pub transposed: bool,
    /// Whether a bias is read, `[width]`.
    pub biased: bool,
}

/// The same on the device.
#[derive(CubeType, CubeLaunch)]
struct Call {
    rows: usize,
    width: usize,
    rank: usize,
    time: usize,
    scale: f32,
    #[cube(comptime)]
    gated: bool,
    #[cube(comptime)]
    transposed: bool,
    #[cube(comptime)]
    biased: bool,
}

impl LowRank {
    /// Takes `[base, low, wide, bias, gates]`. Returns `base + bias + gated · wide`, `[rows, width]`, and `gated`,
    /// which is `low` multiplied by its gates, `[rows, rank]`.
    pub fn add(self, inputs: [CubeTensor; 5]) -> [CubeTensor; 2] {
        let inputs = inputs.map(into_contiguous);
        let [out, gated] = [self.width, self.rank].map(|columns| empty(&inputs[0], [self.rows, columns]));
        if self.rows == 0 {
            return [out, gated];
        }
        let client = inputs[0].client.clone();
        let tiles = self.rows.div_ceil(ROWS) * self.width.div_ceil(COLUMNS * UNITS);
        let Self { rows, width, rank, time, scale, gated: by_gates, transposed, biased } = self;
        let call = CallLaunch::new(rows, width, rank, time, scale, by_gates, transposed, biased);
        let [base, low, wide, bias, gates] = inputs.map(CubeTensor::into_tensor_arg);
        let [y, g] = [&out, &gated].map(|x| x.clone().into_tensor_arg());
        let units = CubeDim::new_1d(UNITS as u32);
        add_low_rank::launch(&client, cube_each(tiles), units, base, low, wide, bias, gates, y, g, call);
        [out, gated]
    }
}

#[cube(launch)]
fn add_low_rank(
    base: &Tensor<f32>,
    low: &Tensor<f32>,
    wide: &Tensor<f32>,
    bias: &Tensor<f32>,
    gates: &Tensor<f32>,
    out: &mut Tensor<f32>,
    gated: &mut Tensor<f32>,
    call: &Call,
) {
    let (rows, width, rank) = (call.rows, call.width, call.rank);
    let across = width.div_ceil(comptime!(COLUMNS * UNITS));
    let tile = row_of_cube();
    let first = tile / across * ROWS;
    let left = tile % across * comptime!(COLUMNS * UNITS) + UNIT_POS_X as usize;
    if first < rows {
        let mut sums = Array::<f32>::new(comptime!(ROWS * COLUMNS));
        let mut row_of = Array::<usize>::new(ROWS);
        let mut gates_of = Array::<usize>::new(ROWS);
        let mut column_of = Array::<usize>::new(COLUMNS);
        #[unroll]
        for i in 0..ROWS {
            // Beyond the end, the last row is read again and not written.
            row_of[i] = min(first + i, rows - 1);
            gates_of[i] = row_of[i] / call.time * rank;
        }
        #[unroll]
        for j in 0..COLUMNS {
            column_of[j] = min(left + j * UNITS, width - 1);
            #[unroll]
            for i in 0..ROWS {
                let mut sum = base[row_of[i] * width + column_of[j]];
                if call.biased {
                    sum += bias[column_of[j]];
                }
                sums[i * COLUMNS + j] = sum;
            }
        }
        for r in 0..rank {
            let mut numbers = Array::<f32>::new(COLUMNS);
            #[unroll]
            for j in 0..COLUMNS {
                if call.transposed {
                    numbers[j] = wide[column_of[j] * rank + r];
                } else {
                    numbers[j] = wide[r * width + column_of[j]];
                }
            }
            #[unroll]
            for i in 0..ROWS {
                let factor = low[row_of[i] * rank + r] * gate(gates_of[i] + r, gates, call);
                #[unroll]
                for j in 0..COLUMNS {
                    sums[i * COLUMNS + j] += factor * numbers[j];
                }
            }
        }
        #[unroll]
        for i in 0..ROWS {
            #[unroll]
            for j in 0..COLUMNS {
                if first + i < rows && left + j * UNITS < width {
                    out[row_of[i] * width + column_of[j]] = sums[i * COLUMNS + j];
                }
            }
        }
        // The cubes of the first columns also write `gated`.
        let column = tile % across;
        if column == 0 {
            let end = min(first + ROWS, rows) * rank;
            let mut at = first * rank + UNIT_POS_X as usize;
            while at < end {
                gated[at] = low[at] * gate(at / rank / call.time * rank + at % rank, gates, call);
                at += UNITS;
            }
        }
    }
}

/// Returns the factor of the number whose gate is at `at`.
#[cube]
fn gate(at: usize, gates: &Tensor<f32>, call: &Call) -> f32 {
    let mut factor = call.scale;
    if call.gated {
        factor *= gates[at];
    }
    factor
}
