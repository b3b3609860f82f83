//! What each place of a convolution's output meets, side by side.

use super::launch::empty;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// A convolution over time of `[batch, time, channels]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfold {
    pub batch: usize,
    pub time: usize,
    pub time_out: usize,
    pub channels: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
}

impl Unfold {
    /// `[batch · time out, kernel · channels]` of `[batch, time, channels]`; zeros beyond the ends.
    pub fn forward(self, x: CubeTensor) -> CubeTensor {
        let columns = empty(&x, [self.batch * self.time_out, self.kernel * self.channels]);
        self.launch(x, &columns, true);
        columns
    }

    /// The gradient of `[batch, time, channels]`: what places have in common is summed.
    pub fn backward(self, d_columns: CubeTensor) -> CubeTensor {
        let dx = empty(&d_columns, [self.batch, self.time, self.channels]);
        self.launch(d_columns, &dx, false);
        dx
    }

    fn launch(self, from: CubeTensor, to: &CubeTensor, unfolds: bool) {
        let (from, elements) = (into_contiguous(from), to.meta.num_elements());
        if elements == 0 {
            return;
        }
        let client = from.client.clone();
        let units = CubeDim::new(&client, elements);
        let cubes = calculate_cube_count_elemwise(&client, elements, units);
        let [from, to] = [from, to.clone()].map(CubeTensor::into_tensor_arg);
        let Self { time, time_out, channels, kernel, stride, padding, .. } = self;
        if unfolds {
            unfold::launch(&client, cubes, units, from, to, time, time_out, channels, kernel, stride, padding);
        } else {
            fold::launch(&client, cubes, units, from, to, time, time_out, channels, kernel, stride, padding);
        }
    }
}

#[cube(launch)]
#[allow(clippy::too_many_arguments)]
fn unfold(
    x: &Tensor<f32>,
    columns: &mut Tensor<f32>,
    time: usize,
    time_out: usize,
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) {
    if ABSOLUTE_POS < columns.len() {
        let width = kernel * channels;
        let (row, column) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
        let (sample, place) = (row / time_out, row % time_out);
        let at = place * stride + column / channels;
        let mut number = 0.0f32;
        if at >= padding && at < time + padding {
            number = x[(sample * time + at - padding) * channels + column % channels];
        }
        columns[ABSOLUTE_POS] = number;
    }
}

#[cube(launch)]
#[allow(clippy::too_many_arguments)]
fn fold(
    columns: &Tensor<f32>,
    x: &mut Tensor<f32>,
    time: usize,
    time_out: usize,
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) {
    if ABSOLUTE_POS < x.len() {
        let (row, channel) = (ABSOLUTE_POS / channels, ABSOLUTE_POS % channels);
        let (sample, at) = (row / time, row % time + padding);
        let mut sum = 0.0f32;
        for k in 0..kernel {
            if at >= k && (at - k) % stride == 0 {
                let place = (at - k) / stride;
                if place < time_out {
                    sum += columns[((sample * time_out + place) * kernel + k) * channels + channel];
                }
            }
        }
        x[ABSOLUTE_POS] = sum;
    }
}
