//! Products by warpgroups, three times as fast as those of [fragments](super::kernel) on the cards that have them.

use super::launch::Launch;
use super::matrices::Matrices;
use super::tile::Tile;
use crate::cube::warpgroup::{Boxes, Kernel, Parameter, ROW, Text, has_warpgroups};
use burn::tensor::DType;
use burn_cubecl::cubecl::ir::DeviceProperties;
use burn_cubecl::tensor::CubeTensor;

const TEXT: Text = Text::new(include_str!("warpgroup.cu"));
/// Sums of a cube.
pub(super) const TILE: Tile = Tile { rows: 128, columns: 128, part: [64, 128] };
/// Numbers of a sum in a slice of the factors.
pub(super) const DEPTH: usize = ROW;
/// Cubes that a multiprocessor runs at a time, by their registers.
pub(super) const RESIDENT: usize = 3;

/// Whether the kernel computes such a product: the device has warpgroups, and tiles are not mostly empty.
pub(super) fn takes(properties: &DeviceProperties, [left, right]: [&Matrices; 2], [low, out]: [DType; 2]) -> bool {
    let fills_tiles = left.rows > TILE.rows / 2 && right.columns > TILE.columns / 2;
    // The copy engine does not read a matrix twice, as a broadcast one would be.
    let apart = [left, right].iter().all(|matrices| matrices.batch == 1 || matrices.distance > 0);
    // Its coordinates are signed numbers of 32 bits.
    let sizes = [left.rows, left.columns, right.columns, left.batch];
    let in_range = sizes.iter().all(|size| i32::try_from(*size).is_ok());
    has_warpgroups(properties) && fills_tiles && apart && in_range && (out == DType::F32 || out == low)
}

/// Launches the kernel.
pub(super) fn launch(launch: &Launch) {
    let Launch { left, right, .. } = launch;
    let (left_along, right_along) = (left.by_rows, !right.by_rows);
    let [adds_bias, adds_base] = launch.adds;
    let kernel = Kernel {
        name: "warpgroup_product",
        text: TEXT,
        constants: [
            ("LEFT_ALONG", left_along),
            ("RIGHT_ALONG", right_along),
            ("ADDS_BIAS", adds_bias),
            ("ADDS_BASE", adds_base),
            ("PAIRS", launch.pairs),
            ("WIDE", launch.y.dtype == DType::F32),
        ],
        low: launch.lhs.dtype,
    };
    let parameters = [
        Parameter::Boxes(boxes(launch.lhs, left, left_along, TILE.rows)),
        Parameter::Boxes(boxes(launch.rhs, right, right_along, TILE.columns)),
        if adds_bias { Parameter::Read(launch.bias) } else { Parameter::Unused(launch.bias) },
        if adds_base { Parameter::Read(launch.base) } else { Parameter::Unused(launch.base) },
        Parameter::Written(launch.y),
    ];
    let sizes =
        [left.rows, right.columns, left.columns, launch.share, launch.y_pitch, launch.y_batch, launch.base_pitch];
    kernel.launch(launch.cubes, &parameters, sizes.map(|size| size as u64).into());
}

/// Boxes of a factor, of which a tile has so many sums. Along the sums that is one box of as many lines; across them it is several.
fn boxes<'a>(tensor: &'a CubeTensor, matrices: &Matrices, along_sums: bool, sums: usize) -> Boxes<'a> {
    let Matrices { batch, rows, columns, by_rows, pitch, distance } = *matrices;
    let [lines, along] = if by_rows { [rows, columns] } else { [columns, rows] };
    let of_box = if along_sums { sums } else { DEPTH };
    Boxes { tensor, shape: [batch, lines, along], distances: [distance, pitch], lines: of_box }
}
