//! Numbers as they are held in memory: in f32, or in half precision, which takes half the bytes.
//!
//! Kernels compute with numbers in half precision as with the same ones in f32: they widen them piece by piece while they
//! run, so that a whole matrix in f32 never exists beside them.

use crate::simd::simd_fn;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Matrix in row-major order: a weight, or an input that is kept for the backward pass.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// In f32.
    F32(&'a [f32]),
    /// In bfloat16.
    Bf16(&'a [bf16]),
    /// In IEEE's half precision.
    F16(&'a [f16]),
}

/// Evaluates an expression with the slice of a [`Numbers`], for whichever type of number it has.
macro_rules! with_slice {
    ($numbers:expr, |$slice:ident| $result:expr) => {
        match $numbers {
            $crate::numbers::Numbers::F32($slice) => $result,
            $crate::numbers::Numbers::Bf16($slice) => $result,
            $crate::numbers::Numbers::F16($slice) => $result,
        }
    };
}
pub(crate) use with_slice;

/// Number of elements that are widened at a time: 16 MiB in f32. Of the matrices of Whisper and BERT, only vocabularies
/// and the wide layers of the largest models have more. In tests it is small enough that there is more than one piece.
const PIECE: usize = if cfg!(test) { 1 << 12 } else { 1 << 22 };

/// Fewest rows and columns of a piece, if there is more than one. Small products add in another order: where each sum is
/// over contiguous numbers, those with up to 256 results, and else those with up to 64 rows and columns. Pieces are
/// wider, so that they give the bits of the whole.
pub(crate) const LEAST_ROWS: usize = 512;
pub(crate) const LEAST_COLUMNS: usize = 128;

impl<'a> Numbers<'a> {
    /// Number of elements.
    pub fn len(self) -> usize {
        with_slice!(self, |numbers| numbers.len())
    }

    /// Whether it has no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns ranges of about equal length that cover `count` rows or columns: all at once in f32, otherwise as many as
    /// are widened at a time, but about `least`.
    pub(crate) fn pieces(self, count: usize, least: usize) -> impl Iterator<Item = Range<usize>> {
        let pieces = if matches!(self, Self::F32(_)) { 1 } else { self.len().div_ceil(PIECE).min(count / least) };
        let step = count.div_ceil(pieces.max(1)).max(1);
        (0..count).step_by(step).map(move |start| start..count.min(start + step))
    }

    /// Returns some of its elements as they are.
    pub(crate) fn slice(self, elements: Range<usize>) -> Self {
        match self {
            Self::F32(numbers) => Self::F32(&numbers[elements]),
            Self::Bf16(numbers) => Self::Bf16(&numbers[elements]),
            Self::F16(numbers) => Self::F16(&numbers[elements]),
        }
    }

    /// Writes all of them in f32 to `to`, which has the same length.
    pub(crate) fn widen(self, to: &mut [f32]) {
        with_slice!(self, |numbers| Widen::widen(numbers, to));
    }

    /// Returns some rows in f32; each has `width` elements.
    pub(crate) fn rows(self, rows: Range<usize>, width: usize) -> Cow<'a, [f32]> {
        let all = rows.start * width..rows.end * width;
        match self {
            Self::F32(numbers) => Cow::Borrowed(&numbers[all]),
            Self::Bf16(numbers) => Cow::Owned(widened(&numbers[all], width, 0..width)),
            Self::F16(numbers) => Cow::Owned(widened(&numbers[all], width, 0..width)),
        }
    }

    /// Returns some columns of rows of `width` elements in f32, `[rows, columns]`.
    pub(crate) fn columns(self, columns: Range<usize>, width: usize) -> Cow<'a, [f32]> {
        match self {
            Self::F32(numbers) if columns == (0..width) => Cow::Borrowed(numbers),
            Self::F32(numbers) => Cow::Owned(widened(numbers, width, columns)),
            Self::Bf16(numbers) => Cow::Owned(widened(numbers, width, columns)),
            Self::F16(numbers) => Cow::Owned(widened(numbers, width, columns)),
        }
    }
}

/// Returns numbers in half precision, if each of them has the same bits when it is widened again.
pub fn halved_exactly<T: Half>(numbers: &[f32]) -> Option<Vec<T>> {
    /// Numbers at a time: most matrices that do not fit differ within the first ones.
    const PIECE: usize = 1 << 14;
    let mut halves = vec![T::default(); numbers.len()];
    let fits = halves.par_chunks_mut(PIECE).zip(numbers.par_chunks(PIECE)).all(|(halves, numbers)| {
        T::narrow(numbers, halves);
        let mut wide = vec![0.0; numbers.len()];
        T::widen(halves, &mut wide);
        wide.iter().zip(numbers).all(|(wide, number)| wide.to_bits() == number.to_bits())
    });
    fits.then_some(halves)
}

/// Returns `columns` of rows of `width` numbers, in f32.
fn widened<T: Widen>(numbers: &[T], width: usize, columns: Range<usize>) -> Vec<f32> {
    let mut wide = vec![0.0; numbers.len() / width.max(1) * columns.len()];
    let rows = numbers.par_chunks_exact(width.max(1));
    wide.par_chunks_exact_mut(columns.len().max(1))
        .zip(rows)
        .with_min_len(16)
        .for_each(|(wide, row)| T::widen(&row[columns.clone()], wide));
    wide
}

/// Numbers that a slice of f32 is made from. `half` has instructions for slices of its types, not for single numbers.
pub trait Widen: Sync + Sized {
    /// Writes `from` into `to`, which has the same length.
    fn widen(from: &[Self], to: &mut [f32]);
}

/// Number type of half precision: `f16` or `bf16`.
pub trait Half: Widen + Send + Copy + Default {
    /// Writes `from` into `to`, which has the same length, rounded.
    fn narrow(from: &[f32], to: &mut [Self]);
}

impl<T: Widen + Send + Copy + Default> Half for T
where
    [T]: HalfFloatSliceExt,
{
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Widen for f32 {
    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

impl Widen for bf16 {
    fn widen(from: &[Self], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "a place for each number");
        widen_bf16(from, to);
    }
}

simd_fn! {
    fn widen_bf16<S>(from: &[bf16], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }
}

impl Widen for f16 {
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn pieces_cover_a_matrix_once_and_one_in_f32_is_not_copied() {
        let numbers = random(30 * 400, 1);
        let half: Vec<bf16> = numbers.iter().map(|x| bf16::from_f32(*x)).collect();
        let rounded: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        let (full, half) = (Numbers::F32(&numbers), Numbers::Bf16(&half));
        assert!(full.pieces(30, 1).eq(std::iter::once(0..30)) && half.pieces(30, 31).eq(std::iter::once(0..30)));
        assert!(matches!(full.rows(0..30, 400), Cow::Borrowed(_)));
        assert!(matches!(full.columns(0..400, 400), Cow::Borrowed(_)));
        let rows: Vec<Range<usize>> = half.pieces(30, 1).collect();
        assert!(rows.len() > 1 && rows.iter().all(|rows| rows.len() * 400 <= PIECE), "{rows:?}");
        let found: Vec<f32> = rows.into_iter().flat_map(|rows| half.rows(rows, 400).into_owned()).collect();
        assert_eq!(found, rounded);
        for columns in half.pieces(400, LEAST_COLUMNS) {
            assert!(columns.len() >= LEAST_COLUMNS, "{columns:?}");
            let expected: Vec<f32> = rounded.chunks(400).flat_map(|row| &row[columns.clone()]).copied().collect();
            assert_eq!(half.columns(columns, 400), expected);
        }
        assert_eq!(Numbers::F16(&[]).pieces(0, 3).count(), 0);
    }

    #[test]
    fn numbers_are_halved_if_none_of_them_changes() {
        let numbers: Vec<f32> = random(40_000, 2).iter().map(|x| f16::from_f32(*x).to_f32()).collect();
        let halves = halved_exactly::<f16>(&numbers).expect("numbers of f16");
        assert!(halves.iter().zip(&numbers).all(|(half, number)| half.to_f32() == *number));
        assert_eq!(halved_exactly::<bf16>(&numbers), None);
        let odd = [0.1, 65536.0, f32::from_bits(1), -0.1];
        for (place, number) in [0, 20_000, 39_999].into_iter().flat_map(|place| odd.map(|number| (place, number))) {
            let mut numbers = numbers.clone();
            numbers[place] = number;
            assert_eq!(halved_exactly::<f16>(&numbers), None, "{number} at {place}");
        }
        let special = [0.0, -0.0, f32::INFINITY, 65504.0, f32::powi(2.0, -24)];
        assert!(halved_exactly::<f16>(&special).is_some() && halved_exactly::<bf16>(&[f32::MIN_POSITIVE]).is_some());
        assert_eq!(halved_exactly::<f16>(&[]), Some(Vec::new()));
    }
}
