//! Launch of a kernel for tiles.

use super::matrices::Matrices;
use burn_cubecl::cubecl::prelude::CubeCount;
use burn_cubecl::tensor::CubeTensor;

/// What a kernel for tiles is given. Sizes and distances are in numbers.
pub(super) struct Launch<'a> {
    pub lhs: &'a CubeTensor,
    pub rhs: &'a CubeTensor,
    pub bias: &'a CubeTensor,
    pub base: &'a CubeTensor,
    /// The product, or the shares of its sums.
    pub y: &'a CubeTensor,
    pub left: &'a Matrices,
    pub right: &'a Matrices,
    /// Tiles of a matrix, shares of each sum, and matrices.
    pub cubes: [usize; 3],
    /// Numbers of each sum that a cube adds.
    pub share: usize,
    /// Distance of the product's rows, and of its matrices.
    pub y_pitch: usize,
    pub y_batch: usize,
    /// Distance of the base's rows.
    pub base_pitch: usize,
    /// Whether the kernel adds the bias and the base.
    pub adds: [bool; 2],
    /// Whether two neighbours of a row can be read and written at once.
    pub pairs: bool,
}

impl Launch<'_> {
    pub fn cube_count(&self) -> CubeCount {
        let [x, y, z] = self.cubes.map(|count| count as u32);
        CubeCount::Static(x, y, z)
    }
}
