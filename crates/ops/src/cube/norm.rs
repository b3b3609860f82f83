//! Layer norm, one cube per row.

use super::launch::{UNITS, cube_each, empty, most_cubes, row_of_cube, row_vector_width, summed, zeros};
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

/// Units of a cube that sum neighbouring vectors of a row, and rows that the cube sums side by side.
const ACROSS: usize = 16;
const DOWN: usize = UNITS / ACROSS;
/// Rows that a unit reads before it adds them.
const READS: usize = 4;
/// Least rows of a slab, which is summed by cubes of its own.
const LEAST_SLAB: usize = 2 * DOWN * READS;

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
        Self::launch_backward([x, statistics, weight, dy], false).0
    }

    /// Returns the gradients of input, weight and bias.
    pub fn backward(inputs: [CubeTensor; 4]) -> [CubeTensor; 3] {
        let (dx, sums) = Self::launch_backward(inputs, true);
        let [slabs, _, width] = sums.meta.shape().dims();
        let [d_weight, d_bias] = [(); 2].map(|()| empty(&dx, [width]));
        if dx.meta.num_elements() == 0 {
            return [dx, zeros(d_weight), zeros(d_bias)];
        }
        let n = row_vector_width(width, [&sums, &d_weight, &d_bias].into_iter());
        let vectors = width / n;
        let units = CubeDim::new_1d(UNITS as u32);
        let cubes = CubeCount::Static(vectors.div_ceil(ACROSS) as u32, 2, 1);
        let client = dx.client.clone();
        let [sums, dw, db] = [&sums, &d_weight, &d_bias].map(|x| x.clone().into_tensor_arg());
        layer_norm_backward_collect::launch(&client, cubes, units, n, sums, dw, db, vectors, slabs);
        [dx, d_weight, d_bias]
    }

    /// Returns the gradient of the input and, if they are wanted, sums over slabs of rows, `[slabs, 2, width]`.
    fn launch_backward(inputs: [CubeTensor; 4], wants_sums: bool) -> (CubeTensor, CubeTensor) {
        let [x, statistics, weight, dy] = inputs.map(into_contiguous);
        let (rows, width) = rows(&x, &weight);
        let n = row_vector_width(width, [&x, &weight, &dy].into_iter());
        let vectors = width / n;
        let groups = vectors.div_ceil(ACROSS).max(1);
        let slabs = (most_cubes(&x.client) / groups).clamp(1, rows.div_ceil(LEAST_SLAB).max(1));
        let (dx, sums) = (empty(&x, x.shape()), empty(&x, [slabs, 2, width]));
        if rows * width > 0 {
            let cubes = cube_each(rows + if wants_sums { slabs * groups } else { 0 });
            let [s, w, dy, out, all] = [&statistics, &weight, &dy, &dx, &sums].map(|x| x.clone().into_tensor_arg());
            let (client, units) = (x.client.clone(), CubeDim::new_1d(UNITS as u32));
            let x = x.into_tensor_arg();
            let slabs = if wants_sums { slabs } else { 0 };
            let height = rows.div_ceil(slabs.max(1));
            layer_norm_backward::launch(&client, cubes, units, n, x, s, w, dy, out, all, rows, vectors, slabs, height);
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
/// of rows: the gradient times the normalised input, and the gradient. A row has so many `vectors`, and a slab is `height` rows.
#[cube(launch)]
fn layer_norm_backward<N: Size>(
    x: &Tensor<Vector<f32, N>>,
    statistics: &Tensor<f32>,
    weight: &Tensor<Vector<f32, N>>,
    dy: &Tensor<Vector<f32, N>>,
    dx: &mut Tensor<Vector<f32, N>>,
    sums: &mut Tensor<Vector<f32, N>>,
    rows: usize,
    vectors: usize,
    slabs: usize,
    height: usize,
) {
    let row = row_of_cube();
    if row < rows {
        row_backward::<N>(x, statistics, weight, dy, dx, row, vectors);
    } else {
        let groups = vectors.div_ceil(ACROSS);
        let (slab, group) = ((row - rows) / groups, (row - rows) % groups);
        if slab < slabs {
            slab_backward::<N>(x, statistics, dy, sums, slab, group, rows, vectors, height);
        }
    }
}

#[cube]
fn row_backward<N: Size>(
    x: &Tensor<Vector<f32, N>>,
    statistics: &Tensor<f32>,
    weight: &Tensor<Vector<f32, N>>,
    dy: &Tensor<Vector<f32, N>>,
    dx: &mut Tensor<Vector<f32, N>>,
    row: usize,
    vectors: usize,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let width = f32::cast_from(vectors * x.vector_size());
    let (unit, first) = (UNIT_POS_X as usize, row * vectors);
    let mean = Vector::<f32, N>::new(statistics[2 * row]);
    let inverse = Vector::<f32, N>::new(statistics[2 * row + 1]);
    let mut plain = Vector::<f32, N>::new(0.0f32);
    let mut along = Vector::<f32, N>::new(0.0f32);
    let mut at = unit;
    while at < vectors {
        let scaled = dy[first + at] * weight[at];
        plain += scaled;
        along += scaled * ((x[first + at] - mean) * inverse);
        at += UNITS;
    }
    let mut of_plain = 0.0f32;
    let mut of_along = 0.0f32;
    #[unroll]
    for i in 0..plain.vector_size() {
        of_plain += plain.extract(i);
        of_along += along.extract(i);
    }
    let plain = Vector::<f32, N>::new(summed(&mut shares, of_plain) / width);
    let along = Vector::<f32, N>::new(summed(&mut shares, of_along) / width);
    at = unit;
    while at < vectors {
        let normal = (x[first + at] - mean) * inverse;
        dx[first + at] = (dy[first + at] * weight[at] - plain - normal * along) * inverse;
        at += UNITS;
    }
}

#[cube]
fn slab_backward<N: Size>(
    x: &Tensor<Vector<f32, N>>,
    statistics: &Tensor<f32>,
    dy: &Tensor<Vector<f32, N>>,
    sums: &mut Tensor<Vector<f32, N>>,
    slab: usize,
    group: usize,
    rows: usize,
    vectors: usize,
    height: usize,
) {
    let (across, down) = (UNIT_POS_X as usize % ACROSS, UNIT_POS_X as usize / ACROSS);
    let column = group * ACROSS + across;
    let mut of_weight = Vector::<f32, N>::new(0.0f32);
    let mut of_bias = Vector::<f32, N>::new(0.0f32);
    if column < vectors {
        let end = min((slab + 1) * height, rows);
        let mut row = slab * height + down;
        while row + comptime!((READS - 1) * DOWN) < end {
            let mut gradients = Array::<Vector<f32, N>>::new(READS);
            let mut inputs = Array::<Vector<f32, N>>::new(READS);
            #[unroll]
            for i in 0..READS {
                gradients[i] = dy[(row + i * DOWN) * vectors + column];
                inputs[i] = x[(row + i * DOWN) * vectors + column];
            }
            #[unroll]
            for i in 0..READS {
                of_weight += gradients[i] * normal::<N>(inputs[i], statistics, row + i * DOWN);
                of_bias += gradients[i];
            }
            row += comptime!(READS * DOWN);
        }
        while row < end {
            let gradient = dy[row * vectors + column];
            of_weight += gradient * normal::<N>(x[row * vectors + column], statistics, row);
            of_bias += gradient;
            row += DOWN;
        }
    }
    let of_weight = summed_down::<N>(of_weight);
    let of_bias = summed_down::<N>(of_bias);
    if down == 0 && column < vectors {
        sums[2 * slab * vectors + column] = of_weight;
        sums[(2 * slab + 1) * vectors + column] = of_bias;
    }
}

/// Normalised numbers of a row.
#[cube]
fn normal<N: Size>(x: Vector<f32, N>, statistics: &Tensor<f32>, row: usize) -> Vector<f32, N> {
    (x - Vector::new(statistics[2 * row])) * Vector::new(statistics[2 * row + 1])
}

/// Returns the sum over the units of a cube that are below one another, to the uppermost of them.
#[cube]
fn summed_down<N: Size>(share: Vector<f32, N>) -> Vector<f32, N> {
    let mut shares = Shared::<[Vector<f32, N>]>::new_slice(UNITS);
    shares[UNIT_POS_X as usize] = share;
    sync_cube();
    let mut sum = share;
    #[unroll]
    for i in 1..DOWN {
        sum += shares[(UNIT_POS_X as usize + comptime!(i * ACROSS)) % UNITS];
    }
    sum
}

/// Adds the sums of slabs: cubes of the first row to the weight's gradient, those of the second to the bias's.
#[cube(launch)]
fn layer_norm_backward_collect<N: Size>(
    sums: &Tensor<Vector<f32, N>>,
    d_weight: &mut Tensor<Vector<f32, N>>,
    d_bias: &mut Tensor<Vector<f32, N>>,
    vectors: usize,
    slabs: usize,
) {
    let (across, down) = (UNIT_POS_X as usize % ACROSS, UNIT_POS_X as usize / ACROSS);
    let column = CUBE_POS_X as usize * ACROSS + across;
    let mut share = Vector::<f32, N>::new(0.0f32);
    if column < vectors {
        let mut slab = down;
        while slab < slabs {
            share += sums[(2 * slab + CUBE_POS_Y as usize) * vectors + column];
            slab += DOWN;
        }
    }
    let sum = summed_down::<N>(share);
    if down == 0 && column < vectors {
        if CUBE_POS_Y == 0 {
            d_weight[column] = sum;
        } else {
            d_bias[column] = sum;
        }
    }
}
