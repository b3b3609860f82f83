//! Attention by warpgroups.

use crate::cube::warpgroup::{Boxes, Kernel, Parameter, ROW, Text, has_warpgroups};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl::ir::DeviceProperties;
use burn_cubecl::tensor::CubeTensor;

const TEXT: Text = Text::new(include_str!("warpgroup.cu"));
// Names of the kernels.
const FORWARD: &str = "warpgroup_flash_forward";
const BACKWARD_QUERY: &str = "warpgroup_flash_backward_query";
const BACKWARD_KEY_VALUE: &str = "warpgroup_flash_backward_key_value";
/// Rows of a cube, and of a box.
const ROWS: usize = 64;

/// Whether the kernels compute attention that hides and drops nothing: the device has warpgroups, and heads are as wide as Whisper's.
/// Queries are `[batch, heads, queries, d_head]`.
pub(super) fn takes(properties: &DeviceProperties, [batch, heads, queries, d_head]: [usize; 4], keys: usize) -> bool {
    let in_range = [batch, heads].iter().all(|count| u16::try_from(*count).is_ok())
        && [queries, keys].iter().all(|count| i32::try_from(*count * heads * d_head).is_ok());
    has_warpgroups(properties) && d_head == ROW && in_range
}

/// Writes the output, `[batch, queries, heads · 64]`, and the logarithm of each query's sum of exponentials.
pub(super) fn forward(dtype: DType, [query, key, value]: [&CubeTensor; 3], [out, sums]: [&CubeTensor; 2]) {
    let parameters =
        [boxes(key), boxes(value), Parameter::Read(query), Parameter::Written(out), Parameter::Written(sums)];
    launch(FORWARD, [dtype, out.dtype], &parameters, [query, key], query, 1.0);
}

/// Writes the gradient of queries before they were multiplied by `scale`, in the type of `out`, and the deltas.
pub(super) fn backward_query(
    dtype: DType,
    [query, key, value]: [&CubeTensor; 3],
    [out, sums, d_out]: [&CubeTensor; 3],
    [d_query, deltas]: [&CubeTensor; 2],
    scale: f32,
) {
    let parameters = [
        boxes(key),
        boxes(value),
        Parameter::Read(query),
        Parameter::Read(d_out),
        Parameter::Read(out),
        Parameter::Read(sums),
        Parameter::Written(d_query),
        Parameter::Written(deltas),
    ];
    launch(BACKWARD_QUERY, [dtype, out.dtype], &parameters, [query, key], query, scale);
}

/// Writes the gradients of keys and values.
pub(super) fn backward_key_value(
    dtype: DType,
    [query, key, value]: [&CubeTensor; 3],
    [sums, d_out, deltas]: [&CubeTensor; 3],
    [d_key, d_value]: [&CubeTensor; 2],
) {
    let parameters = [
        boxes(query),
        boxes(d_out),
        Parameter::Read(key),
        Parameter::Read(value),
        Parameter::Read(sums),
        Parameter::Read(deltas),
        Parameter::Written(d_key),
        Parameter::Written(d_value),
    ];
    launch(BACKWARD_KEY_VALUE, [dtype, d_key.dtype], &parameters, [query, key], key, 1.0);
}

/// Launches a kernel, whose cubes have the rows of `own`.
fn launch(
    name: &'static str,
    [low, out]: [DType; 2],
    parameters: &[Parameter],
    [query, key]: [&CubeTensor; 2],
    own: &CubeTensor,
    scale: f32,
) {
    let [batch, heads, queries, d_head] = query.shape().dims();
    let sizes = [queries, key.shape()[2], heads, heads * d_head].map(|size| size as u64);
    let sizes = sizes.into_iter().chain([u64::from(scale.to_bits())]).collect();
    let constants = [
        ("WIDE", u32::from(out == DType::F32)),
        ("FORWARD", u32::from(name == FORWARD)),
        ("BACKWARD_QUERY", u32::from(name == BACKWARD_QUERY)),
        ("BACKWARD_KEY_VALUE", u32::from(name == BACKWARD_KEY_VALUE)),
    ];
    let kernel = Kernel { name, text: TEXT, constants, low };
    kernel.launch([own.shape()[2].div_ceil(ROWS), heads, batch], parameters, sizes);
}

/// Boxes of `[batch, heads, time, 64]`.
fn boxes(tensor: &CubeTensor) -> Parameter<'_> {
    let [batch, heads, time, width] = tensor.shape().dims();
    Parameter::Boxes(Boxes {
        tensor,
        shape: [batch * heads, time, width],
        distances: [time * width, width],
        lines: ROWS,
    })
}
