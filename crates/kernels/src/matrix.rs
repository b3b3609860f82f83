//! Strided matrices over slices, and their product.

use crate::bf16::{Operand, Packed, Product, Right, Strided};
use crate::numbers::{Numbers, Widen};
use crate::transpose::transposed;
use crate::vector::{Uninit, written};
use gemm::Parallelism;
use half::bf16;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Precision of the factors of products, by PyTorch's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout.
    #[default]
    Highest,
    /// Factors rounded to bfloat16, sums in f32: up to twice as fast on Zen 4 and later.
    Medium,
}

static MEDIUM: AtomicBool = AtomicBool::new(false);

/// Sets the precision of all products of this process that begin after the call. Returns false, and changes nothing, if
/// the processor does not support it.
pub fn set_precision(precision: Precision) -> bool {
    let possible = precision == Precision::Highest || crate::bf16::available();
    if possible {
        MEDIUM.store(precision == Precision::Medium, Ordering::Relaxed);
    }
    possible
}

/// Returns the precision of products that begin now.
pub fn precision() -> Precision {
    if MEDIUM.load(Ordering::Relaxed) { Precision::Medium } else { Precision::Highest }
}

/// Returns numbers as products in bfloat16 would round them, if that is the precision of products now.
#[allow(unsafe_code)]
pub fn rounded(numbers: &[f32]) -> Option<Vec<bf16>> {
    /// Numbers that a thread rounds at a time.
    const CHUNK: usize = 1 << 14;
    (precision() == Precision::Medium).then(|| {
        let round = |to: &mut [Uninit<bf16>]| {
            let chunks = to.par_chunks_mut(CHUNK).zip(numbers.par_chunks(CHUNK));
            chunks.for_each(|(to, from)| crate::bf16::round(from, to));
        };
        // SAFETY: each chunk is written completely.
        unsafe { written(numbers.len(), round) }
    })
}

/// Read-only matrix: element `(i, j)` lies at `i · row_stride + j · column_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

/// Writable matrix, with rows `row_stride` apart.
///
/// It holds a pointer instead of a slice so that [`split`](Self::split) can return blocks whose rows interleave in
/// memory without overlapping.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `MatrixMut` has exclusive access to its elements for its lifetime, as a `&mut [f32]` would.
#[allow(unsafe_code)]
unsafe impl Send for MatrixMut<'_> {}

/// Threads of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread alone, for callers that are a piece of parallel work themselves.
    One,
    /// All threads of rayon's current pool.
    All,
}

impl<'a, T> Matrix<'a, T> {
    /// Creates a matrix of `[rows, columns]` in row-major order.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Creates a matrix of rows of `columns` contiguous elements, `row_stride` apart; they may overlap.
    ///
    /// # Panics
    /// If the last element lies outside of `data`.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(extent(rows, columns, row_stride) <= data.len(), "{rows}×{columns} reaches outside of its slice");
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// Returns row `i` of a matrix that is not transposed.
    ///
    /// # Panics
    /// If there is no such row, or its elements are not contiguous.
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.rows && self.column_stride == 1, "row {i} of {}", self.rows);
        &self.data[i * self.row_stride..][..self.columns]
    }

    /// Returns its first rows and columns.
    ///
    /// # Panics
    /// If there are fewer.
    fn first(self, rows: usize, columns: usize) -> Self {
        assert!(rows <= self.rows && columns <= self.columns, "{rows}×{columns} of {}×{}", self.rows, self.columns);
        Self { rows, columns, ..self }
    }

    /// Returns the transposed matrix over the same data.
    pub fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

impl<T: Widen> Matrix<'_, T> {
    /// Returns its numbers in f32, `[rows, columns]`.
    pub(crate) fn widened(&self) -> Vec<f32> {
        let mut wide = vec![0.0; self.rows * self.columns];
        let (length, stride) =
            if self.column_stride == 1 { (self.columns, self.row_stride) } else { (self.rows, self.column_stride) };
        for (i, row) in wide.chunks_mut(length.max(1)).enumerate() {
            T::widen(&self.data[i * stride..][..length], row);
        }
        if self.column_stride == 1 { wide } else { transposed(&wide, self.columns, self.rows, self.rows) }
    }
}

impl Matrix<'_> {
    fn operand(&self) -> Operand {
        Operand::F32(Strided {
            data: self.data.as_ptr(),
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        })
    }
}

impl Matrix<'_, bf16> {
    fn operand(&self) -> Operand {
        Operand::Bf16(Strided {
            data: self.data.as_ptr(),
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        })
    }
}

impl<'a> MatrixMut<'a> {
    /// Creates a matrix of `[rows, columns]` in row-major order.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Creates a matrix of rows of `columns` contiguous elements, `row_stride` apart.
    ///
    /// # Panics
    /// If rows overlap, or the last element lies outside of `data`.
    pub fn strided(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(rows <= 1 || row_stride >= columns, "rows of a matrix to write must not overlap");
        assert!(extent(rows, columns, row_stride) <= data.len(), "{rows}×{columns} reaches outside of its slice");
        Self { data: data.as_mut_ptr(), rows, columns, row_stride, lifetime: PhantomData }
    }

    /// As [`new`](Self::new), over uninitialised memory that every use of the matrix only writes.
    pub(crate) fn unwritten(data: &'a mut [Uninit], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "the length of a {rows}×{columns} matrix");
        Self { data: data.as_mut_ptr().cast(), rows, columns, row_stride: columns, lifetime: PhantomData }
    }

    /// Returns some of its columns.
    ///
    /// # Panics
    /// If there are fewer columns.
    pub(crate) fn columns(self, columns: Range<usize>) -> Self {
        assert!(columns.start <= columns.end && columns.end <= self.columns, "{columns:?} of {} columns", self.columns);
        Self { data: self.data.wrapping_add(columns.start), columns: columns.len(), ..self }
    }

    /// Splits into blocks of at most `width` columns and `height` rows: first all blocks of the first columns, top to
    /// bottom.
    ///
    /// # Panics
    /// If `height` or `width` is 0.
    #[allow(unsafe_code)]
    pub fn split(self, height: usize, width: usize) -> Vec<Self> {
        let mut blocks = Vec::new();
        for column in (0..self.columns).step_by(width) {
            for row in (0..self.rows).step_by(height) {
                // SAFETY: the block begins inside the matrix. Blocks share no element, and `self` is gone.
                let data = unsafe { self.data.add(row * self.row_stride + column) };
                let rows = height.min(self.rows - row);
                let columns = width.min(self.columns - column);
                blocks.push(Self { data, rows, columns, row_stride: self.row_stride, lifetime: PhantomData });
            }
        }
        blocks
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[allow(unsafe_code)]
    pub(crate) fn row(&mut self, i: usize) -> &mut [Uninit] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        // SAFETY: the row lies inside the matrix, whose elements nothing else can access meanwhile; `Uninit` guarantees
        // nothing about their contents.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(i * self.row_stride).cast(), self.columns) }
    }

    /// Returns `count` rows from `start`.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn rows_from(&mut self, start: usize, count: usize) -> MatrixMut<'_> {
        assert!(start + count <= self.rows, "rows {start}..{} of {}", start + count, self.rows);
        let data = self.data.wrapping_add(start * self.row_stride);
        MatrixMut { data, rows: count, columns: self.columns, row_stride: self.row_stride, lifetime: PhantomData }
    }
}

/// Right factor of products.
#[derive(Debug)]
pub(crate) enum RightFactor<'a> {
    /// As it lies in memory.
    Plain(Matrix<'a>),
    /// As it lies in memory, rounded before.
    Rounded(Matrix<'a, bf16>),
    /// Row-major copy, with its number of columns.
    Copied(Vec<f32>, usize),
    /// Rounded to bfloat16 and packed.
    Packed(Packed),
}

impl<'a> RightFactor<'a> {
    /// Makes a factor of rows of `columns` contiguous numbers, `row_stride` apart.
    ///
    /// # Panics
    /// If the last one lies outside of `numbers`.
    pub(crate) fn new(numbers: Numbers<'a>, rows: usize, columns: usize, row_stride: usize) -> Self {
        match numbers {
            Numbers::F32(numbers) => Self::Plain(Matrix::strided(numbers, rows, columns, row_stride)),
            Numbers::Bf16(numbers) => Self::Rounded(Matrix::strided(numbers, rows, columns, row_stride)),
            Numbers::F16(numbers) => {
                let rows = Matrix::strided(numbers, rows, columns, row_stride);
                Self::Copied(rows.widened(), columns)
            }
        }
    }

    /// Returns the transposed factor.
    ///
    /// # Panics
    /// If it is packed.
    pub(crate) fn transposed(self) -> Self {
        match self {
            Self::Plain(matrix) => Self::Plain(matrix.transposed()),
            Self::Rounded(matrix) => Self::Rounded(matrix.transposed()),
            Self::Copied(data, columns) => {
                let rows = data.len() / columns.max(1);
                Self::Copied(transposed(&data, rows, columns, columns), rows)
            }
            Self::Packed(_) => unreachable!("factors are packed last"),
        }
    }

    /// Does once what each of several products would do first, in the precision that is set now.
    #[allow(unsafe_code)]
    pub(crate) fn shared(self) -> Self {
        let medium = precision() == Precision::Medium;
        let (operand, columns, rows) = match &self {
            Self::Plain(matrix) if medium => (matrix.operand(), matrix.columns, matrix.rows),
            Self::Rounded(matrix) if medium => (matrix.operand(), matrix.columns, matrix.rows),
            Self::Rounded(matrix) => return Self::Copied(matrix.widened(), matrix.columns),
            Self::Plain(Matrix { data, rows, columns, row_stride: 1, column_stride }) if *column_stride != 1 => {
                return Self::Copied(transposed(data, *columns, *rows, *column_stride), *columns);
            }
            Self::Plain(_) | Self::Copied(..) | Self::Packed(_) => return self,
        };
        // SAFETY: the constructors checked that every element lies inside the matrix's slice, which is borrowed;
        // `set_precision` has found the instructions.
        Self::Packed(unsafe { crate::bf16::packed(operand, columns, rows) })
    }
}

fn extent(rows: usize, columns: usize, row_stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns }
}

/// Computes `out = scale · a · b`: writes every element of `out`.
///
/// # Panics
/// If the shapes do not fit.
pub fn product(out: MatrixMut, a: Matrix, b: Matrix, scale: f32, threads: Threads) {
    multiply(out, a, b, scale, threads, false);
}

/// As [`product`], with as many of the first rows and columns of `b` as `a` has columns and `out` has.
///
/// # Panics
/// If there are fewer, or only some of the rows of a factor that is packed are needed.
pub(crate) fn product_by(out: MatrixMut, a: Matrix, b: &RightFactor, scale: f32, threads: Threads) {
    let (rows, columns) = (a.columns, out.columns);
    match b {
        RightFactor::Plain(b) => product(out, a, b.first(rows, columns), scale, threads),
        RightFactor::Copied(b, width) => product(out, a, Matrix::strided(b, rows, columns, *width), scale, threads),
        RightFactor::Packed(b) => {
            assert!(b.holds(rows, columns), "{rows} rows and {columns} columns of {b:?}");
            multiply_in_bf16(out, a, Right::Packed(b), None, scale, threads, false);
        }
        RightFactor::Rounded(b) if precision() == Precision::Medium => {
            multiply_in_bf16(out, a, Right::Plain(b.first(rows, columns).operand()), None, scale, threads, false);
        }
        RightFactor::Rounded(b) => {
            let b = b.first(rows, columns);
            product(out, a, Matrix::new(&b.widened(), rows, columns), scale, threads);
        }
    }
}

/// Computes `out = a · b`, or with `accumulate` `out += a · b`, on all threads, and returns `a` as it was rounded, `[rows, columns]`.
/// `None` if it was not rounded row by row: products are in f32, or `a` is a single row or column. With `accumulate` every element of `out` must have been written.
///
/// # Panics
/// If the shapes do not fit, or rows of `a` are not contiguous or have gaps between them.
#[allow(unsafe_code)]
pub(crate) fn product_kept(out: MatrixMut, a: Matrix, b: Matrix, accumulate: bool) -> Option<Vec<bf16>> {
    if precision() == Precision::Highest || out.rows < 2 || a.columns < 2 || out.columns == 0 {
        multiply(out, a, b, 1.0, Threads::All, accumulate);
        return None;
    }
    assert!(a.column_stride == 1 && a.row_stride == a.columns, "rows of {}, {} apart", a.columns, a.row_stride);
    let mut kept = Vec::with_capacity(a.rows * a.columns);
    let memory = Some(kept.as_mut_ptr());
    multiply_in_bf16(out, a, Right::Plain(b.operand()), memory, 1.0, Threads::All, accumulate);
    // SAFETY: every row of `a` was packed, and written as it was.
    unsafe { kept.set_len(a.rows * a.columns) };
    Some(kept)
}

/// Computes `out += scale · a · b`.
///
/// # Panics
/// If the shapes do not fit.
pub fn add_product(out: &mut [f32], row_stride: usize, a: Matrix, b: Matrix, scale: f32, threads: Threads) {
    let (rows, columns) = (a.rows, b.columns);
    multiply(MatrixMut::strided(out, rows, columns, row_stride), a, b, scale, threads, true);
}

/// With `accumulate`, every element of `out` must have been written: [`add_product`] takes initialised memory only.
#[allow(unsafe_code)]
fn multiply(out: MatrixMut, a: Matrix, b: Matrix, scale: f32, threads: Threads, accumulate: bool) {
    let fits = a.columns == b.rows && out.rows == a.rows && out.columns == b.columns;
    assert!(fits, "{}×{} times {}×{} is not {}×{}", a.rows, a.columns, b.rows, b.columns, out.rows, out.columns);
    // With one row, all of `b` would be rounded and used only once: f32 is three times as fast there.
    if MEDIUM.load(Ordering::Relaxed) && out.rows > 1 {
        return multiply_in_bf16(out, a, Right::Plain(b.operand()), None, scale, threads, accumulate);
    }
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // SAFETY: the constructors checked that every element of the three matrices lies inside its slice and that rows of
    // `out` do not overlap; `out` is borrowed mutably, so it overlaps neither `a` nor `b`. It is read only when
    // accumulating, which callers do on initialised memory.
    unsafe {
        gemm::gemm(
            out.rows,
            out.columns,
            a.columns,
            out.data,
            1,
            out.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0_f32,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// As [`multiply`], and with its requirement.
#[allow(unsafe_code)]
fn multiply_in_bf16(
    out: MatrixMut,
    a: Matrix,
    b: Right,
    kept: Option<*mut bf16>,
    scale: f32,
    threads: Threads,
    accumulate: bool,
) {
    assert_eq!(out.rows, a.rows, "rows of a product");
    let product = Product {
        rows: out.rows,
        columns: out.columns,
        depth: a.columns,
        out: out.data,
        out_stride: out.row_stride,
        a: a.operand(),
        b,
        kept,
        scale,
        accumulate,
        parallel: threads == Threads::All,
    };
    // SAFETY: as in `multiply`; `set_precision` has found the instructions.
    unsafe { crate::bf16::product(&product) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_without_depth_writes_zeros_and_adds_nothing() {
        let mut out = [7.0; 6];
        product(MatrixMut::new(&mut out, 2, 3), Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3), 1.0, Threads::One);
        assert_eq!(out, [0.0; 6]);
        let mut out = [7.0; 6];
        add_product(&mut out, 3, Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3), 1.0, Threads::One);
        assert_eq!(out, [7.0; 6]);
    }

    #[test]
    #[should_panic(expected = "is not 2×2")]
    fn shapes_that_do_not_fit_are_refused() {
        let mut out = [0.0; 4];
        let (a, b) = ([1.0; 6], [1.0; 4]);
        product(MatrixMut::new(&mut out, 2, 2), Matrix::new(&a, 2, 3), Matrix::new(&b, 2, 2), 1.0, Threads::One);
    }

    #[test]
    fn blocks_cover_a_matrix_once() {
        let mut data = [0.0; 15];
        let blocks = MatrixMut::strided(&mut data, 3, 4, 5).split(2, 2);
        assert_eq!(blocks.len(), 4);
        for (i, mut block) in blocks.into_iter().enumerate() {
            for row in 0..block.rows() {
                block.row(row).iter_mut().for_each(|x| _ = x.write(1.0 + i as f32));
            }
        }
        // The fifth column is a gap between rows.
        assert_eq!(data, [1., 1., 3., 3., 0., 1., 1., 3., 3., 0., 2., 2., 4., 4., 0.]);
        let widths: Vec<usize> = MatrixMut::new(&mut data, 3, 5).split(3, 2).iter().map(|b| b.columns).collect();
        assert_eq!(widths, [2, 2, 1]);
    }
}
