//! Dropout as in `undertone_kernels`: a seed drops the same elements.

use super::launch::empty;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Seed of the dropped elements, and scale of the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drop {
    pub seed_low: u32,
    pub seed_high: u32,
    /// Elements whose random number, of 24 bits, is below this are dropped.
    pub least: u32,
    pub scale: f32,
}

impl Drop {
    pub fn new(p: f64, seed: u64) -> Self {
        let p = p as f32;
        // f32 holds the numbers in [0, 1) of 24 bits exactly.
        let least = (p * (1_u32 << 24) as f32).ceil() as u32;
        Self { seed_low: seed as u32, seed_high: (seed >> 32) as u32, least, scale: 1.0 / (1.0 - p) }
    }

    pub(super) fn launch(self) -> DroppedLaunch {
        DroppedLaunch::new(self.seed_low, self.seed_high, self.least, self.scale)
    }
}

/// The same on the device.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Dropped {
    seed_low: u32,
    seed_high: u32,
    least: u32,
    scale: f32,
}

/// Returns `x` with some elements dropped, added to `residual` if there is one.
pub(crate) fn dropout(residual: Option<CubeTensor>, x: CubeTensor, drop: Drop) -> CubeTensor {
    let x = into_contiguous(x);
    let y = empty(&x, x.meta.shape().clone());
    let elements = x.meta.num_elements();
    if elements > 0 {
        let cube_dim = CubeDim::new(&x.client, elements);
        let cube_count = calculate_cube_count_elemwise(&x.client, elements, cube_dim);
        let added = residual.is_some();
        let residual = residual.map_or_else(|| x.clone(), into_contiguous).into_tensor_arg();
        let (input, output) = (x.clone().into_tensor_arg(), y.clone().into_tensor_arg());
        dropout_kernel::launch(&x.client, cube_count, cube_dim, residual, input, output, drop.launch(), added);
    }
    y
}

#[cube(launch)]
fn dropout_kernel(
    residual: &Tensor<f32>,
    x: &Tensor<f32>,
    y: &mut Tensor<f32>,
    dropped: &Dropped,
    #[comptime] added: bool,
) {
    if ABSOLUTE_POS < y.len() {
        let factor = factor(u32::cast_from(ABSOLUTE_POS), dropped);
        let mut sum = x[ABSOLUTE_POS] * factor;
        if added {
            sum += residual[ABSOLUTE_POS];
        }
        y[ABSOLUTE_POS] = sum;
    }
}

/// Returns the factor of the element at `index`.
#[cube]
pub(super) fn factor(index: u32, dropped: &Dropped) -> f32 {
    let number = mix(mix(index ^ dropped.seed_low) ^ dropped.seed_high) >> 8u32;
    let mut factor = dropped.scale;
    if number < dropped.least {
        factor = 0.0f32;
    }
    factor
}

/// The finaliser of `undertone_kernels`. Unsigned products wrap on every device.
#[cube]
fn mix(x: u32) -> u32 {
    let a = (x ^ (x >> 16u32)) * 0x7FEB_352Du32;
    let b = (a ^ (a >> 15u32)) * 0x846C_A68Bu32;
    b ^ (b >> 16u32)
}
