//! Tiling of attention into the work of cubes and units.

/// Units along each side of a cube.
pub(super) const SIDE: usize = 8;
/// Maximum bytes of shared memory of a cube, so that a multiprocessor can run more than one.
pub(super) const MOST_SHARED: usize = 48 << 10;

/// Tile sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub d_head: usize,
    /// Channels of a unit. Channels beyond the last are 0.
    pub own: usize,
    /// Rows of a unit.
    pub each: usize,
    /// Scores of a unit in each of its rows.
    pub pairs: usize,
}

/// Kernels of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    BackwardQuery,
    BackwardKeyValue,
}

impl Tile {
    /// Returns the largest tile for `pass` that fits into `shared` bytes of shared memory; `None` if not even the
    /// smallest does.
    pub fn new(pass: Pass, d_head: usize, shared: usize) -> Option<Self> {
        let own = d_head.div_ceil(SIDE);
        let tiles = [(4, 4), (4, 2), (2, 2), (2, 1), (1, 1)].map(|(each, pairs)| Self { d_head, own, each, pairs });
        tiles.into_iter().find(|tile| 4 * tile.numbers(pass) <= shared.min(MOST_SHARED))
    }

    /// Returns the tile with no more rows to a unit than `rows` needs.
    pub fn for_rows(self, rows: usize) -> Self {
        Self { each: self.each.min(rows.div_ceil(SIDE).next_power_of_two()), ..self }
    }

    /// Number of values that `pass` keeps in shared memory.
    pub fn numbers(&self, pass: Pass) -> usize {
        let of_rows = self.rows() * self.stride();
        let of_others = self.others() * self.stride();
        // One number of each unit for each of its rows.
        let found = SIDE * self.rows();
        match pass {
            Pass::Forward => of_rows + 2 * of_others + self.scores() + found,
            Pass::BackwardQuery => 2 * (of_rows + of_others) + self.scores() + found,
            Pass::BackwardKeyValue => 2 * (of_rows + of_others) + 2 * self.scores(),
        }
    }

    /// Rows of a cube.
    pub fn rows(&self) -> usize {
        SIDE * self.each
    }

    /// Rows of the other side that are loaded at a time.
    pub fn others(&self) -> usize {
        SIDE * self.pairs
    }

    /// Distance of rows in shared memory: one more than the channels, so that neighbours lie in different banks.
    pub fn stride(&self) -> usize {
        SIDE * self.own + 1
    }

    /// Number of values of a tile of scores; [`across`](Self::across) is the distance of its rows.
    pub fn scores(&self) -> usize {
        self.rows() * self.across()
    }

    pub fn across(&self) -> usize {
        self.others() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardQuery, Pass::BackwardKeyValue];

    #[test]
    fn tiles_fit_and_are_as_large_as_they_can_be() {
        let tile = |pass, d_head, kib: usize| Tile::new(pass, d_head, kib << 10).map(|tile| (tile.each, tile.pairs));
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 32)), [Some((4, 4)), Some((4, 2)), Some((4, 2))]);
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 16)), [Some((2, 2)), Some((2, 1)), Some((2, 1))]);
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 200)), [Some((4, 4)); 3]);
        for (pass, kib) in PASSES.into_iter().flat_map(|pass| [16, 32, 48, 99].map(|kib| (pass, kib))) {
            for tile in (1..500).filter_map(|d_head| Tile::new(pass, d_head, kib << 10)) {
                assert!(4 * tile.numbers(pass) <= (kib << 10).min(MOST_SHARED), "{tile:?}");
                assert!(tile.own * SIDE >= tile.d_head, "{tile:?}");
            }
        }
    }

    #[test]
    fn few_rows_take_small_tiles() {
        let tile = Tile::new(Pass::Forward, 64, 32 << 10).expect("a tile");
        assert_eq!([1, 8, 9, 16, 17, 1500].map(|rows| tile.for_rows(rows).each), [1, 1, 2, 2, 4, 4]);
    }
}
