//! Launch of a kernel for tiles.

use super::matrices::Matrices;
use burn_cubecl::cubecl::prelude::CubeCount;
use burn_cubecl::tensor::CubeTensor;

/// What a kernel for tiles is given. Sizes and distances are in numbers.
pub(super) struct Launch<'a> {
    /// Products that are added.
    pub terms: &'a [Term<'a>],
    pub bias: &'a CubeTensor,
    pub base: &'a CubeTensor,
    /// The product, or the shares of its sums.
    pub y: &'a CubeTensor,
    /// Tiles of a matrix, shares of each sum, and matrices.
    pub cubes: [usize; 3],
    /// Where terms begin among the numbers of a sum.
    pub starts: Vec<usize>,
    /// Numbers of each sum, and those of them that a cube adds.
    pub depth: usize,
    pub share: usize,
    /// Factor of the products.
    pub scale: f32,
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

/// Factors of a product.
pub(super) struct Term<'a> {
    pub lhs: &'a CubeTensor,
    pub rhs: &'a CubeTensor,
    pub left: Matrices,
    pub right: Matrices,
}

impl<'a> Term<'a> {
    /// `None` if the kernels do not read such matrices.
    pub fn of(lhs: &'a CubeTensor, rhs: &'a CubeTensor) -> Option<Self> {
        let (left, right) = (Matrices::of(lhs)?, Matrices::of(rhs)?);
        let is_whole = left.batch == right.batch && left.columns > 0;
        (is_whole && left.is_aligned(lhs) && right.is_aligned(rhs)).then_some(Self { lhs, rhs, left, right })
    }

    /// Whether a kernel can add both terms.
    pub fn is_like(&self, other: &Self) -> bool {
        let key = |Self { left, right, .. }: &Self| (left.batch, left.rows, right.columns, left.by_rows, right.by_rows);
        key(self) == key(other)
    }
}

impl Launch<'_> {
    pub fn cube_count(&self) -> CubeCount {
        let [x, y, z] = self.cubes.map(|count| count as u32);
        CubeCount::Static(x, y, z)
    }
}
