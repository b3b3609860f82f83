//! Sizes of tiles, and of what a cube holds of the factors in shared memory.

use crate::cube::fragments::LANES;

/// Numbers of a sum in a slice of the factors.
pub(super) const DEPTH: usize = 32;
/// Numbers that are read at once: 16 bytes.
pub(super) const WIDTH: usize = 8;
/// Least numbers of a sum that a cube of its own, and another kernel for the sum of shares, pay for. Sums over the 768 channels of Whisper small
/// are not split: with small batches the host's launches set the pace.
pub(super) const LEAST_SHARE: usize = 20 * DEPTH;

/// Sizes of a cube's tile and of its planes' parts, which are multiples of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub rows: usize,
    pub columns: usize,
    /// Rows and columns of a plane's part.
    pub part: [usize; 2],
}

impl Tile {
    /// The tile for a product of so many rows and columns.
    pub fn of(rows: usize, columns: usize) -> Self {
        let tile = |rows, columns, part| Self { rows, columns, part };
        match (rows, columns) {
            (_, ..=32) => tile(128, 32, [16, 32]),
            (..=32, _) => tile(32, 128, [32, 16]),
            (_, ..=64) => tile(128, 64, [32, 32]),
            (..=64, _) => tile(64, 128, [32, 32]),
            _ => tile(128, 128, [64, 32]),
        }
    }

    /// Planes side by side.
    pub fn across(&self) -> usize {
        self.columns / self.part[1]
    }

    pub fn planes(&self) -> usize {
        self.rows / self.part[0] * self.across()
    }

    /// Units of a cube.
    pub fn units(&self) -> usize {
        LANES * self.planes()
    }
}

/// Cubes of the kernel that a multiprocessor should have.
pub(super) const RESIDENT: usize = 2;

/// Among how many cubes each sum is split, so that there are at most so many `cubes`, or one for each tile.
pub(super) fn shares(depth: usize, tiles: usize, cubes: usize) -> usize {
    (cubes / tiles.max(1)).clamp(1, (depth / LEAST_SHARE).max(1))
}

/// Vectors of a line of a tile in shared memory: one more than there are, so that eight lines lie in different banks.
pub(super) fn pitch(lines_along_depth: bool, side: usize) -> usize {
    if lines_along_depth { DEPTH / WIDTH + 1 } else { side / WIDTH + 1 }
}

/// Vectors of a tile of one factor in shared memory.
pub(super) fn area(along_depth: bool, side: usize) -> usize {
    if along_depth { side * pitch(true, side) } else { DEPTH * pitch(false, side) }
}

/// Vectors of a factor's slice that a unit reads; the last ones may be beyond it.
pub(super) fn reads(side: usize, tile: Tile) -> usize {
    (side * DEPTH / WIDTH).div_ceil(tile.units())
}

/// Vectors of a line of a slice.
pub(super) fn line(along_depth: bool, side: usize) -> usize {
    if along_depth { DEPTH / WIDTH } else { side / WIDTH }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_cover_a_tile() {
        for tile in [1, 32, 33, 64, 65, 500].iter().flat_map(|m| [1, 32, 64, 500].map(|n| Tile::of(*m, n))) {
            assert_eq!(tile.rows * tile.columns, tile.planes() * tile.part[0] * tile.part[1], "{tile:?}");
        }
    }

    #[test]
    fn long_sums_are_split_where_there_are_few_tiles() {
        // A weight's gradient, a short sum, and an activation.
        assert_eq!([shares(24_000, 36, 264), shares(768, 6, 264), shares(1536, 1128, 264)], [7, 1, 1]);
    }
}
