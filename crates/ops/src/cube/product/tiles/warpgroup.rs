//! Products by warpgroups, three times as fast as those of [fragments](super::kernel) on the cards that have them.

use super::launch::{Launch, Term};
use super::matrices::Matrices;
use super::tile::Tile;
use crate::cube::warpgroup::{Boxes, Kernel, Parameter, ROW, Text, has_warpgroups};
use burn::tensor::DType;
use burn_cubecl::cubecl::ir::DeviceProperties;
use burn_cubecl::tensor::CubeTensor;

const TEXT: Text = Text::new(include_str!("warpgroup.cu"));
/// Numbers of a sum in a slice of the factors.
pub(super) const DEPTH: usize = ROW;
/// Products that the kernel adds at most.
const TERMS: usize = 3;

/// Tile of a cube for a product of so many rows and columns.
pub(super) fn tile(rows: usize, columns: usize) -> Tile {
    let side = |count| if count > 64 { 128 } else { 64 };
    let columns = side(columns);
    Tile { rows: side(rows), columns, part: [64, columns] }
}

/// Cubes that a multiprocessor runs at a time, by their registers.
pub(super) fn resident(tile: Tile) -> usize {
    if tile.rows * tile.columns == 128 * 128 { 3 } else { 5 }
}

/// Whether the kernel computes such a sum of products.
pub(super) fn takes(properties: &DeviceProperties, terms: &[Term], [low, out]: [DType; 2]) -> bool {
    let is_read = |Term { left, right, .. }: &Term| {
        // The copy engine does not read a matrix twice, as a broadcast one would be.
        let apart = [left, right].iter().all(|matrices| matrices.batch == 1 || matrices.distance > 0);
        // Its coordinates are signed numbers of 32 bits.
        let sizes = [left.rows, left.columns, right.columns, left.batch];
        apart && sizes.iter().all(|size| i32::try_from(*size).is_ok())
    };
    let is_written = out == DType::F32 || out == low;
    has_warpgroups(properties) && terms.len() <= TERMS && terms.iter().all(is_read) && is_written
}

/// Launches the kernel.
pub(super) fn launch(launch: &Launch) {
    let Term { lhs, left, right, .. } = &launch.terms[0];
    let (left_along, right_along) = (left.by_rows, !right.by_rows);
    let tile = tile(left.rows, right.columns);
    let [adds_bias, adds_base] = launch.adds;
    let kernel = Kernel {
        name: "warpgroup_product",
        text: TEXT,
        constants: [
            ("ROWS", tile.rows as u32),
            ("COLUMNS", tile.columns as u32),
            ("TERMS", launch.terms.len() as u32),
            ("LEFT_ALONG", left_along.into()),
            ("RIGHT_ALONG", right_along.into()),
            ("ADDS_BIAS", adds_bias.into()),
            ("ADDS_BASE", adds_base.into()),
            ("PAIRS", launch.pairs.into()),
            ("WIDE", u32::from(launch.y.dtype == DType::F32)),
        ],
        low: lhs.dtype,
    };
    let factors = launch.terms.iter().flat_map(|Term { lhs, rhs, left, right }| {
        [boxes(lhs, left, left_along, tile.rows), boxes(rhs, right, right_along, tile.columns)].map(Parameter::Boxes)
    });
    let others = [
        if adds_bias { Parameter::Read(launch.bias) } else { Parameter::Unused(launch.bias) },
        if adds_base { Parameter::Read(launch.base) } else { Parameter::Unused(launch.base) },
        Parameter::Written(launch.y),
    ];
    let start = |term: usize| launch.starts.get(term).map_or(launch.depth, |start| *start);
    let sizes = [
        left.rows,
        right.columns,
        launch.depth,
        start(1),
        start(2),
        launch.share,
        launch.y_pitch,
        launch.y_batch,
        launch.base_pitch,
        launch.scale.to_bits() as usize,
    ];
    let parameters: Vec<Parameter> = factors.chain(others).collect();
    kernel.launch(launch.cubes, &parameters, sizes.map(|size| size as u64).into());
}

/// Boxes of a factor, of which a tile has so many sums. Along the sums that is one box of as many lines; across them it is several.
fn boxes<'a>(tensor: &'a CubeTensor, matrices: &Matrices, along_sums: bool, sums: usize) -> Boxes<'a> {
    let Matrices { batch, rows, columns, by_rows, pitch, distance } = *matrices;
    let [lines, along] = if by_rows { [rows, columns] } else { [columns, rows] };
    let of_box = if along_sums { sums } else { DEPTH };
    Boxes { tensor, shape: [batch, lines, along], distances: [distance, pitch], lines: of_box }
}
