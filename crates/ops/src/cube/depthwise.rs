//! Convolution of each channel by itself over time.

use super::launch::empty;
use burn::backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// A depthwise convolution of `[batch, time, channels]` to the same shape, with weights of `[channels, 1, kernel]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    pub batch: usize,
    pub time: usize,
    pub channels: usize,
    pub kernel: usize,
}

/// Number of slabs of rows that are summed in parallel.
const SLABS: usize = 32;

impl Depthwise {
    /// Returns the output; with the `reversed` kernel, the gradient of the input from that of the output.
    pub fn convolve(self, [x, weight]: [CubeTensor; 2], reversed: bool) -> CubeTensor {
        let [x, weight] = [x, weight].map(into_contiguous);
        let y = empty(&x, x.shape());
        if let Some((cubes, units)) = each(&y) {
            let client = y.client.clone();
            let [x, weight, y] = [&x, &weight, &y].map(|x| x.clone().into_tensor_arg());
            convolve::launch(&client, cubes, units, x, weight, y, self.time, self.channels, self.kernel, reversed);
        }
        y
    }

    /// Number of sums of the weight's gradient.
    pub fn slabs(self) -> usize {
        (self.batch * self.time).clamp(1, SLABS)
    }

    /// Returns the gradient of the weight as sums over slabs of rows, `[slabs, kernel, channels]`.
    pub fn weight_sums(self, [x, dy]: [CubeTensor; 2]) -> CubeTensor {
        let [x, dy] = [x, dy].map(into_contiguous);
        let (rows, slabs) = (self.batch * self.time, self.slabs());
        let sums = empty(&x, [slabs, self.kernel, self.channels]);
        if let Some((cubes, units)) = each(&sums) {
            let client = sums.client.clone();
            let [x, dy, sums] = [&x, &dy, &sums].map(|x| x.clone().into_tensor_arg());
            let Self { time, channels, kernel, .. } = self;
            weight_sums::launch(&client, cubes, units, x, dy, sums, rows, slabs, time, channels, kernel);
        }
        sums
    }
}

/// Returns one unit for each element of `out`; `None` if there are none.
fn each(out: &CubeTensor) -> Option<(CubeCount, CubeDim)> {
    let elements = out.meta.num_elements();
    let units = CubeDim::new(&out.client, elements.max(1));
    (elements > 0).then(|| (calculate_cube_count_elemwise(&out.client, elements, units), units))
}

#[cube(launch)]
fn convolve(
    x: &Tensor<f32>,
    weight: &Tensor<f32>,
    y: &mut Tensor<f32>,
    time: usize,
    channels: usize,
    kernel: usize,
    #[comptime] reversed: bool,
) {
    if ABSOLUTE_POS < y.len() {
        let (row, channel) = (ABSOLUTE_POS / channels, ABSOLUTE_POS % channels);
        let (at, half) = (row % time, kernel / 2);
        let mut sum = 0.0f32;
        for k in 0..kernel {
            if at + k >= half && at + k < time + half {
                let mut tap = k;
                if reversed {
                    tap = kernel - 1 - k;
                }
                sum += x[(row + k - half) * channels + channel] * weight[channel * kernel + tap];
            }
        }
        y[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch)]
fn weight_sums(
    x: &Tensor<f32>,
    dy: &Tensor<f32>,
    sums: &mut Tensor<f32>,
    rows: usize,
    slabs: usize,
    time: usize,
    channels: usize,
    kernel: usize,
) {
    if ABSOLUTE_POS < sums.len() {
        let channel = ABSOLUTE_POS % channels;
        let tap = ABSOLUTE_POS / channels % kernel;
        let half = kernel / 2;
        let mut row = ABSOLUTE_POS / channels / kernel;
        let mut sum = 0.0f32;
        while row < rows {
            let at = row % time + tap;
            if at >= half && at < time + half {
                sum += x[(row + tap - half) * channels + channel] * dy[row * channels + channel];
            }
            row += slabs;
        }
        sums[ABSOLUTE_POS] = sum;
    }
}
