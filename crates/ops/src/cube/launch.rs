//! Conversion from Burn's dispatching tensors to a kernel's.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId, TensorId, TensorIr,
};
use burn::backend::fusion::{FusionBackend, FusionRuntime, FusionTensor};
use burn::backend::ops::FloatTensorOps;
use burn::backend::{BackendTensor, Cube, DispatchKindConversion, DispatchTensor, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, cubecl};
use cubecl::client::Client;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;
use std::cell::Cell;
use std::sync::LazyLock;
use std::thread::available_parallelism;

/// Units of a cube that works on one row.
pub(super) const UNITS: usize = 64;

/// Units of a cube that goes through long tensors.
pub(super) const WIDE: usize = 256;

/// Grid for kernels that go through tensors, of which the longest has this many vectors: as many units as the device runs at a time, so that
/// enough reads are under way to keep its memory busy. An H200 moves 4.3 TB/s if 2.6 MB are under way, and 132 multiprocessors
/// with 2,048 units that each read 16 bytes have 4.3 MB.
pub(super) fn wide_grid(client: &Client, vectors: usize) -> (CubeCount, CubeDim) {
    let cubes = vectors.div_ceil(WIDE).clamp(1, most_cubes(client));
    (CubeCount::Static(cubes as u32, 1, 1), CubeDim::new_1d(WIDE as u32))
}

/// Number of cubes of [`WIDE`] units that the device runs at a time; a guess where the driver does not say.
pub(super) fn most_cubes(client: &Client) -> usize {
    let multiprocessors = client.properties().hardware.num_streaming_multiprocessors;
    8 * multiprocessors.map_or(32, |count| count as usize)
}

/// Distance from one vector of a unit to its next, on a [`wide_grid`].
#[cube]
pub(super) fn wide_stride() -> usize {
    CUBE_COUNT_X as usize * WIDE
}

/// Number of f32 numbers that are read at once from all of these contiguous tensors: 16 bytes, or 4 where a tensor does not begin or
/// end at a multiple of 16.
pub(super) fn vector_width<'a>(mut tensors: impl Iterator<Item = &'a CubeTensor>) -> usize {
    let is_whole = |x: &CubeTensor| {
        x.meta.num_elements().is_multiple_of(4) && x.handle.offset_start.unwrap_or(0).is_multiple_of(16)
    };
    if tensors.all(is_whole) { 4 } else { 1 }
}

/// As [`vector_width`], for tensors with rows of this many numbers: no vector reaches from one row into the next.
pub(super) fn row_vector_width<'a>(row: usize, tensors: impl Iterator<Item = &'a CubeTensor>) -> usize {
    if row.is_multiple_of(4) { vector_width(tensors) } else { 1 }
}

/// Runs `launch` on `inputs` as a separate operation in the device's queue. Returns its outputs: tensors of these
/// shapes, in f32.
///
/// `launch` runs later, when fusion executes it. It may write to inputs that nothing else holds
/// ([`CubeTensor::can_mut`]).
pub(crate) fn launched<const I: usize, const O: usize>(
    name: &str,
    inputs: [DispatchTensor; I],
    outputs: [Shape; O],
    launch: impl Fn([CubeTensor; I]) -> [CubeTensor; O] + Send + Sync + 'static,
) -> [DispatchTensor; O] {
    launched_as(name, inputs, outputs.map(|shape| (shape, DType::F32)), launch)
}

/// As [`launched`], for tensors of any types.
pub(crate) fn launched_as<const I: usize, const O: usize>(
    name: &str,
    inputs: [DispatchTensor; I],
    outputs: [(Shape, DType); O],
    launch: impl Fn([CubeTensor; I]) -> [CubeTensor; O] + Send + Sync + 'static,
) -> [DispatchTensor; O] {
    let launch = move |inputs: Vec<CubeTensor>| launch(inputs.try_into().expect("as many as there are")).into();
    queue(name, inputs.into(), outputs.into(), launch).try_into().expect("one tensor for each output")
}

/// As [`launched`], if the number of tensors depends on the model.
pub(crate) fn launched_all(
    name: &str,
    inputs: Vec<DispatchTensor>,
    outputs: Vec<Shape>,
    launch: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<DispatchTensor> {
    queue(name, inputs, outputs.into_iter().map(|shape| (shape, DType::F32)).collect(), launch)
}

/// As [`launched_all`], for tensors of any types.
pub(crate) fn queue(
    name: &str,
    inputs: Vec<DispatchTensor>,
    outputs: Vec<(Shape, DType)>,
    launch: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<DispatchTensor> {
    let inputs: Vec<Fused> = inputs.into_iter().map(queued).collect();
    let client = inputs.first().expect("a kernel has an input").client.clone();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(Fused::into_ir).collect();
    let output = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    let outputs: Vec<TensorIr> = outputs.into_iter().map(output).collect();
    let made: Vec<TensorId> = outputs.iter().map(|output| output.id).collect();
    let ir = CustomOpIr { id: name.into(), inputs: inputs.clone(), outputs, scalars: Vec::new() };
    let run = OperationFn(move |handles: &mut Handles| {
        let tensors = inputs.iter().map(|input| handles.get_float_tensor::<CubeBackend>(input)).collect();
        let tensors = launch(tensors);
        tensors.iter().take(1).for_each(|tensor| pace(&tensor.client));
        for (id, tensor) in made.iter().zip(tensors) {
            handles.register_float_tensor::<CubeBackend>(id, tensor);
        }
        Ok(())
    });
    let made = client.register(StreamId::current(), OperationIr::Custom(ir), run).into_iter();
    made.map(|x| <DispatchTensor as DispatchKindConversion<Cube>>::from_backend(BackendTensor::Float(x))).collect()
}

/// Operations after which the fusing thread waits for the launching one where they share a core: the queue between them takes 64 tasks,
/// and most operations are two to ten.
const PACE: usize = 3;

/// Lets the launching thread catch up, if there are too few cores for the threads of training, fusing and launching. A thread that finds
/// a queue full spins for milliseconds, on the very core that would empty it: with two cores a step of RoBERTa took 105 to 170 ms, and
/// takes 35 now.
fn pace(client: &Client) {
    static FEW_CORES: LazyLock<bool> = LazyLock::new(|| available_parallelism().is_ok_and(|cores| cores.get() < 4));
    thread_local! {
        static OPERATIONS: Cell<usize> = const { Cell::new(0) };
    }
    if *FEW_CORES {
        let operation = OPERATIONS.get() + 1;
        OPERATIONS.set(operation % PACE);
        if operation == PACE {
            // An error of the device is returned by what reads its results.
            let _ = client.exclusive(|| ());
        }
    }
}

type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;
type Handles = HandleContainer<<Runtime as FusionRuntime>::FusionHandle>;
type Fused = FusionTensor<Runtime>;

/// Returns a tensor as fusion queues it: tensors of all kinds are the same there.
fn queued(x: DispatchTensor) -> Fused {
    let x = <DispatchTensor as DispatchKindConversion<Cube>>::try_into_backend(x);
    match x.expect("kernels for CubeCL are given its tensors, without autodiff") {
        BackendTensor::Float(x) | BackendTensor::Int(x) | BackendTensor::Bool(x) | BackendTensor::Quantized(x) => x,
        _ => unreachable!("no kernel is given anything but a tensor"),
    }
}

/// Identity of a tensor without autodiff: that of its clones, and of no other tensor of the process.
pub(crate) fn identity(x: DispatchTensor) -> TensorId {
    queued(x).id
}

/// Allocates f32 numbers on the device of `like`, with contiguous rows. Burn's usual tensors align rows for CUDA's
/// reads, which the kernels here do not support.
pub(crate) fn empty(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    empty_as(like, shape, DType::F32)
}

/// The same for numbers of another type.
pub(super) fn empty_as(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// Allocates zeros in the shape and type of `like`.
pub(super) fn zeros(like: CubeTensor) -> CubeTensor {
    into_contiguous(CubeBackend::float_zeros(like.shape(), &like.device, like.dtype.into()))
}

/// A float type as CubeCL calls it.
pub(super) fn element(dtype: DType) -> ElemType {
    ElemType::Float(match dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        _ => FloatKind::F32,
    })
}

/// Returns one cube for each of `rows`. WebGPU allows at most 65,535 along an axis.
pub(super) fn cube_each(rows: usize) -> CubeCount {
    let along = rows.clamp(1, 1 << 15);
    CubeCount::Static(along as u32, rows.div_ceil(along) as u32, 1)
}

/// Row of this cube among those of [`cube_each`]; there may be cubes beyond the last row.
#[cube]
pub(super) fn row_of_cube() -> usize {
    CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize
}

/// Returns the sum over all units of a cube of [`UNITS`], added in the same order each time.
#[cube]
pub(super) fn summed(shares: &mut Shared<[f32]>, share: f32) -> f32 {
    sync_cube();
    shares[UNIT_POS_X as usize] = share;
    sync_cube();
    let mut sum = 0.0f32;
    for at in 0..UNITS {
        sum += shares[at];
    }
    sum
}

/// Returns the maximum over all units of a cube of [`UNITS`].
#[cube]
pub(super) fn highest(shares: &mut Shared<[f32]>, share: f32) -> f32 {
    sync_cube();
    shares[UNIT_POS_X as usize] = share;
    sync_cube();
    let mut top = shares[0];
    for at in 1..UNITS {
        top = max(top, shares[at]);
    }
    top
}

/// Returns the sum over all units of a cube of [`UNITS`] or [`WIDE`], halves added to each other: in the same order each time, by fewer
/// reads than [`summed`].
#[cube]
pub(super) fn sum_of_cube(shares: &mut Shared<[f32]>, share: f32) -> f32 {
    let unit = UNIT_POS_X as usize;
    sync_cube();
    shares[unit] = share;
    let mut half = CUBE_DIM_X as usize / 2;
    while half > 0 {
        sync_cube();
        if unit < half {
            shares[unit] += shares[unit + half];
        }
        half /= 2;
    }
    sync_cube();
    shares[0]
}

/// Returns the maximum over all units of a cube, as [`sum_of_cube`] does the sum.
#[cube]
pub(super) fn highest_of_cube(shares: &mut Shared<[f32]>, share: f32) -> f32 {
    let unit = UNIT_POS_X as usize;
    sync_cube();
    shares[unit] = share;
    let mut half = CUBE_DIM_X as usize / 2;
    while half > 0 {
        sync_cube();
        if unit < half {
            shares[unit] = max(shares[unit], shares[unit + half]);
        }
        half /= 2;
    }
    sync_cube();
    shares[0]
}
