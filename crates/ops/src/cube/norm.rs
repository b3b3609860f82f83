//! Layer norm, one cube per row.

use super::launch::{UNITS, cube_each, empty, row_of_cube, summed, zeros};
use burn::backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Layer norm over the last axis of `[.., width]`, with scale and shift of `[width]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorm {
    pub epsilon: f32,
}

/// Number of slabs of rows that are summed in parallel.
const SLABS: usize = 64;

impl LayerNorm {
    /// Returns the output, and mean and inverse standard deviation of each row, `[rows, 2]`.
    pub fn forward(self, [x, weight, bias]: [CubeTensor; 3]) -> [CubeTensor; 2] {
        let [x, weight, bias] = [x, weight, bias].map(into_contiguous);
        let (rows, width) = rows(&x, &weight);
        let (y, statistics) = (empty(&x, x.shape()), empty(&x, [rows, 2]));
        if rows * width > 0 {
            let [w, b, out, s] = [&weight, &bias, &y, &statistics].map(|x| x.clone().into_tensor_arg());
            let (client, units) = (x.client.clone(), CubeDim::new_1d(UNITS as u32));
            let x = x.into_tensor_arg();
            layer_norm_forward::launch(&client, cube_each(rows), units, x, w, b, out, s, rows, width, self.epsilon);
        }
        [y, statistics]
    }

    /// Returns the gradient of the input.
    pub fn backward_x([x, statistics, weight, dy]: [CubeTensor; 4]) -> CubeTensor {
        Self::launch_backward([x, statistics, weight, dy], 0).0
    }

    /// Returns the gradients of input, weight and bias.
    pub fn backward(inputs: [CubeTensor; 4]) -> [CubeTensor; 3] {
        let rows = inputs[1].meta.shape()[0];
        let (dx, sums) = Self::launch_backward(inputs, rows.clamp(1, SLABS));
        let (slabs, width) = (sums.meta.shape()[0], sums.meta.shape()[2]);
        let [d_weight, d_bias] = [(); 2].map(|()| empty(&dx, [width]));
        if rows == 0 {
            return [dx, zeros(d_weight), zeros(d_bias)];
        }
        if width > 0 {
            let units = CubeDim::new_1d(UNITS as u32);
            let cubes = CubeCount::Static(width.div_ceil(UNITS) as u32, 1, 1);
            let client = dx.client.clone();
            let [sums, dw, db] = [&sums, &d_weight, &d_bias].map(|x| x.clone().into_tensor_arg());
            layer_norm_backward_collect::launch(&client, cubes, units, sums, dw, db, width, slabs);
        }
        [dx, d_weight, d_bias]
    }

    /// Returns the gradient of the input, and sums over `slabs` slabs of rows, `[slabs, 2, width]`.
    fn launch_backward(inputs: [CubeTensor; 4], slabs: usize) -> (CubeTensor, CubeTensor) {
        let [x, statistics, weight, dy] = inputs.map(into_contiguous);
        let (rows, width) = rows(&x, &weight);
        let (dx, sums) = (empty(&x, x.shape()), empty(&x, [slabs.max(1), 2, width]));
        if rows * width > 0 {
            let cubes = cube_each(rows + slabs * width.div_ceil(UNITS));
            let [s, w, dy, out, all] = [&statistics, &weight, &dy, &dx, &sums].map(|x| x.clone().into_tensor_arg());
            let (client, units) = (x.client.clone(), CubeDim::new_1d(UNITS as u32));
            let x = x.into_tensor_arg();
            layer_norm_backward::launch(&client, cubes, units, x, s, w, dy, out, all, rows, width, slabs);
        }
        (dx, sums)
    }
}

fn rows(x: &CubeTensor, weight: &CubeTensor) -> (usize, usize) {
    let width = weight.meta.num_elements();
    (x.meta.num_elements() / width.max(1), width)
}

#[cube(launch)]
fn layer_norm_forward(
    x: &Tensor<f32>,
    weight: &Tensor<f32>,
    bias: &Tensor<f32>,
    y: &mut Tensor<f32>,
    statistics: &mut Tensor<f32>,
    rows: usize,
    width: usize,
    epsilon: f32,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let row = row_of_cube();
    let unit = UNIT_POS_X as usize;
    if row < rows {
        let first = row * width;
        let mut share = 0.0f32;
        let mut at = unit;
        while at < width {
            share += x[first + at];
            at += UNITS;
        }
        let mean = summed(&mut shares, share) / f32::cast_from(width);
        share = 0.0f32;
        at = unit;
        while at < width {
            let centred = x[first + at] - mean;
            share += centred * centred;
            at += UNITS;
        }
        let variance = summed(&mut shares, share) / f32::cast_from(width);
        let inverse = 1.0f32 / (variance + epsilon).sqrt();
        at = unit;
        while at < width {
            y[first + at] = (x[first + at] - mean) * inverse * weight[at] + bias[at];
            at += UNITS;
        }
        if unit == 0 {
            statistics[2 * row] = mean;
            statistics[2 * row + 1] = inverse;
        }
    }
}

/// The first cubes each compute the gradient of one row of the input. Each other cube sums some columns over one slab
/// of rows: the gradient times the normalised input, and the gradient.
#[cube(launch)]
fn layer_norm_backward(
    x: &Tensor<f32>,
    statistics: &Tensor<f32>,
    weight: &Tensor<f32>,
    dy: &Tensor<f32>,
    dx: &mut Tensor<f32>,
    sums: &mut Tensor<f32>,
    rows: usize,
    width: usize,
    slabs: usize,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let row = row_of_cube();
    let unit = UNIT_POS_X as usize;
    if row < rows {
        let first = row * width;
        let mean = statistics[2 * row];
        let inverse = statistics[2 * row + 1];
        let mut plain = 0.0f32;
        let mut along = 0.0f32;
        let mut at = unit;
        while at < width {
            let scaled = dy[first + at] * weight[at];
            plain += scaled;
            along += scaled * ((x[first + at] - mean) * inverse);
            at += UNITS;
        }
        let plain = summed(&mut shares, plain) / f32::cast_from(width);
        let along = summed(&mut shares, along) / f32::cast_from(width);
        at = unit;
        while at < width {
            let normal = (x[first + at] - mean) * inverse;
            dx[first + at] = (dy[first + at] * weight[at] - plain - normal * along) * inverse;
            at += UNITS;
        }
    } else {
        let across = width.div_ceil(UNITS);
        let slab = (row - rows) / across;
        let column = (row - rows) % across * UNITS + unit;
        if slab < slabs && column < width {
            let mut of_weight = 0.0f32;
            let mut of_bias = 0.0f32;
            let mut row = slab;
            while row < rows {
                let gradient = dy[row * width + column];
                of_weight += gradient * ((x[row * width + column] - statistics[2 * row]) * statistics[2 * row + 1]);
                of_bias += gradient;
                row += slabs;
            }
            sums[2 * slab * width + column] = of_weight;
            sums[(2 * slab + 1) * width + column] = of_bias;
        }
    }
}

#[cube(launch)]
fn layer_norm_backward_collect(
    sums: &Tensor<f32>,
    d_weight: &mut Tensor<f32>,
    d_bias: &mut Tensor<f32>,
    width: usize,
    slabs: usize,
) {
    let column = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    if column < width {
        let mut of_weight = 0.0f32;
        let mut of_bias = 0.0f32;
        for slab in 0..slabs {
            of_weight += sums[2 * slab * width + column];
            of_bias += sums[(2 * slab + 1) * width + column];
        }
        d_weight[column] = of_weight;
        d_bias[column] = of_bias;
    }
}
