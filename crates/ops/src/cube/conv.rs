//! Unfolding of a convolution's input (im2col).

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

/// The same on the device.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    time: usize,
    time_out: usize,
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Unfold {
    /// Returns `[batch · time out, kernel · channels]` for `[batch, time, channels]`, with zeros beyond the ends.
    pub fn forward(self, x: CubeTensor) -> CubeTensor {
        let columns = empty(&x, [self.batch * self.time_out, self.kernel * self.channels]);
        self.launch(x, &columns, true);
        columns
    }

    /// Returns the gradient of `[batch, time, channels]`: contributions of overlapping positions are summed.
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
        let sizes = SizesLaunch::new(time, time_out, channels, kernel, stride, padding);
        if unfolds {
            unfold::launch(&client, cubes, units, from, to, sizes);
        } else {
            fold::launch(&client, cubes, units, from, to, sizes);
        }
    }
}

#[cube(launch)]
fn unfold(x: &Tensor<f32>, columns: &mut Tensor<f32>, sizes: &Sizes) {
    if ABSOLUTE_POS < columns.len() {
        let width = sizes.kernel * sizes.channels;
        let (row, column) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
        let (sample, place) = (row / sizes.time_out, row % sizes.time_out);
        let at = place * sizes.stride + column / sizes.channels;
        let mut number = 0.0f32;
        if at >= sizes.padding && at < sizes.time + sizes.padding {
            number = x[(sample * sizes.time + at - sizes.padding) * sizes.channels + column % sizes.channels];
        }
        columns[ABSOLUTE_POS] = number;
    }
}

#[cube(launch)]
fn fold(columns: &Tensor<f32>, x: &mut Tensor<f32>, sizes: &Sizes) {
    if ABSOLUTE_POS < x.len() {
        let (row, channel) = (ABSOLUTE_POS / sizes.channels, ABSOLUTE_POS % sizes.channels);
        let (sample, at) = (row / sizes.time, row % sizes.time + sizes.padding);
        let mut sum = 0.0f32;
        for k in 0..sizes.kernel {
            if at >= k && (at - k) % sizes.stride == 0 {
                let place = (at - k) / sizes.stride;
                if place < sizes.time_out {
                    sum += columns[((sample * sizes.time_out + place) * sizes.kernel + k) * sizes.channels + channel];
                }
            }
        }
        x[ABSOLUTE_POS] = sum;
    }
}
