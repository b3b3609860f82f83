//! Kernels for CubeCL's backends, where Burn's own operations do not do what is wanted.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::ir::{ElemType, FloatKind};
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::cubecl::{self, calculate_cube_count_elemwise};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::ops::numeric::empty_device_dtype;
use cubek::matmul::definition::MatmulElems;
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

/// Operations on f32 tensors, without autodiff.
#[backend_extension(Cube, Fusion)]
pub(crate) trait CubeOps: Backend {
    /// `lhs · rhs` over the last two axes, by multiplying and adding f32 numbers.
    #[fusion(dtype = lhs, shape = product_shape(lhs, rhs))]
    fn matmul_f32(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Dropout as `undertone_kernels` does it: the same elements for the same seed, given by its halves.
    #[fusion(dtype = x, shape = x)]
    fn dropout_f32(x: FloatTensor<Self>, p: f32, seed_low: u32, seed_high: u32) -> FloatTensor<Self>;
}

fn product_shape(lhs: &Shape, rhs: &Shape) -> Shape {
    let mut shape = lhs.clone();
    let last = shape.num_dims() - 1;
    shape[last] = rhs[last];
    shape
}

impl CubeOps for CubeBackend {
    fn matmul_f32(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let shapes = [lhs.meta.shape(), rhs.meta.shape()];
        if shapes.iter().any(|shape| shape.num_elements() == 0) {
            let shape = product_shape(shapes[0], shapes[1]);
            return Self::float_zeros(shape, &lhs.device, burn::tensor::FloatDType::F32);
        }
        let out = init_matmul_output(&lhs, &rhs, DType::F32);
        let f32 = ElemType::Float(FloatKind::F32);
        let launch = |strategy: Strategy| {
            let [lhs, rhs] = [&lhs, &rhs].map(|x| InputBinding::new(x.clone().binding(), f32));
            let mut types = MatmulElems::from_single_dtype(f32);
            launch_ref(&strategy.into(), &out.client, lhs, rhs, out.clone().binding(), &mut types)
        };
        let launched = launch(Strategy::SimpleUnit(Default::default())).or_else(|_| launch(Strategy::Naive));
        launched.expect("the naive kernel takes factors of any shape");
        out
    }

    fn dropout_f32(x: FloatTensor<Self>, p: f32, seed_low: u32, seed_high: u32) -> FloatTensor<Self> {
        let x = into_contiguous(x);
        let y = empty_device_dtype(x.client.clone(), x.device.clone(), x.meta.shape().clone(), DType::F32);
        let elements = x.meta.num_elements();
        if elements > 0 {
            let cube_dim = CubeDim::new(&x.client, elements);
            let cube_count = calculate_cube_count_elemwise(&x.client, elements, cube_dim);
            // The share that is dropped, of the 24 bits of a number in [0, 1) that f32 holds exactly.
            let least = (p * (1_u32 << 24) as f32).ceil() as u32;
            let (input, output) = (x.clone().into_tensor_arg(), y.clone().into_tensor_arg());
            let scale = 1.0 / (1.0 - p);
            dropout_kernel::launch(&x.client, cube_count, cube_dim, input, output, seed_low, seed_high, least, scale);
        }
        y
    }
}

#[cube(launch)]
fn dropout_kernel(x: &Tensor<f32>, y: &mut Tensor<f32>, seed_low: u32, seed_high: u32, least: u32, scale: f32) {
    if ABSOLUTE_POS < y.len() {
        let index = u32::cast_from(ABSOLUTE_POS);
        let number = mix(mix(index ^ seed_low) ^ seed_high) >> 8u32;
        let factor = if number < least { 0.0f32 } else { scale };
        y[ABSOLUTE_POS] = x[ABSOLUTE_POS] * factor;
    }
}

/// The finaliser of `undertone_kernels`. Unsigned products wrap on every device.
#[cube]
fn mix(x: u32) -> u32 {
    let a = (x ^ (x >> 16u32)) * 0x7FEB_352Du32;
    let b = (a ^ (a >> 15u32)) * 0x846C_A68Bu32;
    b ^ (b >> 16u32)
}
