//! Banks of low-rank updates of a linear map, gated per sample.
//!
//! Most gates are zero: a sample uses one adapter of many. Only the columns of the low rank whose gate is not zero are
//! computed, so a bank costs as much as the adapters in use.

use crate::matrix::{Matrix, MatrixMut, Threads, add_product, product};
use crate::numbers::Numbers;
use crate::vector::{Uninit, written};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Low-rank bank: `((x · aᵀ) ⊙ gates) · bᵀ`, with gates repeated over time.
///
/// `x` is `[batch, time, d_in]`, the output `[batch, time, d_out]`.
#[derive(Clone, Copy, Debug)]
pub struct Bank<'a> {
    /// Down projections, `[columns, d_in]`.
    pub a: &'a [f32],
    /// Up projections, `[d_out, columns]`.
    pub b: &'a [f32],
    /// Gates, `[batch, columns]`.
    pub gates: &'a [f32],
    /// Number of rows of a sample.
    pub time: usize,
    /// Width of the input.
    pub d_in: usize,
    /// Width of the output.
    pub d_out: usize,
}

/// Gradients that [`Bank::backward`] computes.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Gradient of the input.
    pub x: bool,
    /// Gradient of `a`.
    pub a: bool,
    /// Gradient of `b`.
    pub b: bool,
    /// Gradient of the gates. Gates of zero also have one, which takes the products of all columns.
    pub gates: bool,
}

impl Wanted {
    /// Whether the backward pass reads the input.
    pub fn needs_x(self) -> bool {
        self.a || self.gates
    }

    /// Whether the backward pass reads the low-rank part that the forward pass returns.
    pub fn needs_low(self) -> bool {
        self.b || self.gates
    }
}

/// Gradients that [`Bank::backward`] returns, each shaped as its input.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// `[batch, time, d_in]`.
    pub x: Option<Vec<f32>>,
    /// `[columns, d_in]`.
    pub a: Option<Vec<f32>>,
    /// `[d_out, columns]`.
    pub b: Option<Vec<f32>>,
    /// `[batch, columns]`.
    pub gates: Option<Vec<f32>>,
}

/// Rows that pass through all products of a pass while they are in a core's cache. So this is faster than one product
/// after another: products of few columns are limited by memory. (The general product is as fast as kernels made for 8,
/// 16 and 32 columns were; 64 rows are 5 to 20 % slower, because it packs its factors for each tile.)
const TILE: usize = 256;

/// Minimum number of rows of a piece of parallel work in the backward pass: each piece has its own sums for the
/// gradients of `a` and `b`.
const PIECE: usize = 512;

/// Maximum number of pieces of a batch, apart from those that end with a segment.
const PIECES: usize = 32;

/// Consecutive samples that use the same columns.
struct Segment<'a> {
    rows: Range<usize>,
    columns: Vec<usize>,
    /// Start of its low-rank part, `[rows, columns]`, in that of the batch.
    offset: usize,
    a: Factor<'a>,
    b: Factor<'a>,
}

/// Part of `a` or `b` for some columns: borrowed, or a copy if the columns are not adjacent.
struct Factor<'a> {
    data: Cow<'a, [f32]>,
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl Factor<'_> {
    fn matrix(&self) -> Matrix<'_> {
        Matrix::strided(&self.data, self.rows, self.columns, self.row_stride)
    }
}

/// Partial sums of a segment over some of its rows.
struct Partial<'a> {
    columns: &'a [usize],
    /// `[columns, d_in]`.
    a: Vec<f32>,
    /// `[columns, d_out]`.
    b: Vec<f32>,
    first_sample: usize,
    /// `[samples, columns]`.
    gates: Vec<f32>,
}

/// A piece of parallel work.
struct Piece<'a, 'x> {
    segment: &'a Segment<'a>,
    rows: Range<usize>,
    /// Low-rank part of the segment, if the forward pass kept it.
    low: Option<&'a [f32]>,
    /// Gradient of the rows' input; empty if it is not wanted.
    dx: &'x mut [Uninit],
    wanted: Wanted,
}

impl Bank<'_> {
    /// Returns the output, and the low-rank part of the columns in use, `x · aᵀ`, in an internal order. The backward
    /// pass would otherwise need all of `x` to recompute it.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    #[allow(unsafe_code)]
    pub fn forward(&self, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let rows = self.check();
        assert_eq!(x.len(), rows * self.d_in, "the input is [batch, time, d_in]");
        let segments = self.segments();
        let mut low = vec![0.0; low_length(&segments)];
        // SAFETY: segments cover all rows, tiles their segment, and `forward_tile` writes all rows of its tile.
        let y = unsafe {
            written(rows * self.d_out, |mut y| {
                let mut low = low.as_mut_slice();
                let mut work = Vec::new();
                for segment in &segments {
                    for rows in pieces(&segment.rows, TILE) {
                        let y = y.split_off_mut(..rows.len() * self.d_out).expect("the tile's output");
                        let low_length = rows.len() * segment.columns.len();
                        let low = low.split_off_mut(..low_length).expect("the tile's low-rank part");
                        work.push((segment, rows, low, y));
                    }
                }
                work.into_par_iter().for_each(|(segment, rows, low, y)| self.forward_tile(segment, &rows, x, low, y));
            })
        };
        (y, low)
    }

    fn forward_tile(&self, segment: &Segment, rows: &Range<usize>, x: &[f32], low: &mut [f32], y: &mut [Uninit]) {
        let columns = segment.columns.len();
        if columns == 0 {
            y.fill(Uninit::new(0.0));
            return;
        }
        let x = rows_of(x, rows, self.d_in);
        product(MatrixMut::new(low, rows.len(), columns), x, segment.a.matrix().transposed(), 1.0, Threads::One);
        let mut gated = low.to_vec();
        self.gate(segment, rows.start, &mut gated);
        let gated = Matrix::new(&gated, rows.len(), columns);
        let y = MatrixMut::unwritten(y, rows.len(), self.d_out);
        product(y, gated, segment.b.matrix().transposed(), 1.0, Threads::One);
    }

    /// Returns the gradients, given `x`, the low-rank part of [`forward`](Self::forward), and the output's gradient.
    /// `x` and the low-rank part may be empty if they are not [needed](Wanted::needs_x).
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    #[allow(unsafe_code)]
    pub fn backward(&self, x: Numbers, low: &[f32], dy: &[f32], wanted: Wanted) -> Gradients {
        let rows = self.check();
        assert!(!wanted.needs_x() || x.len() == rows * self.d_in, "the input is [batch, time, d_in]");
        assert_eq!(dy.len(), rows * self.d_out, "the gradient is [batch, time, d_out]");
        let segments = self.segments();
        assert!(!wanted.needs_low() || low.len() == low_length(&segments), "the low-rank part is the forward pass's");
        // Gates of zero have a gradient too: if there are any, gates take a separate pass over all columns.
        let dense = segments.iter().all(|segment| segment.columns.len() == self.columns());
        let all = (wanted.gates && !dense).then(|| self.segment(0..rows, (0..self.columns()).collect(), 0));
        let height = PIECE.max(rows.div_ceil(PIECES).next_multiple_of(TILE));
        let mut partials = Vec::new();
        // SAFETY: if the gradient is wanted, segments cover all rows, pieces cover their segment, and `Piece::backward`
        // writes all rows of its piece.
        let dx = unsafe {
            written(if wanted.x { rows * self.d_in } else { 0 }, |mut dx| {
                let mut work = Vec::new();
                for segment in &segments {
                    let wanted = Wanted { gates: wanted.gates && dense, ..wanted };
                    for rows in pieces(&segment.rows, height) {
                        let length = if wanted.x { rows.len() * self.d_in } else { 0 };
                        let dx = dx.split_off_mut(..length).expect("the piece's gradient");
                        let low = wanted.needs_low().then(|| &low[segment.offset..]);
                        work.push(Piece { segment, rows, low, dx, wanted });
                    }
                }
                if let Some(segment) = &all {
                    let wanted = Wanted { x: false, a: false, b: false, gates: true };
                    let rows = pieces(&segment.rows, height);
                    work.extend(rows.map(|rows| Piece { segment, rows, low: None, dx: &mut [], wanted }));
                }
                partials = work.into_par_iter().map(|piece| piece.backward(self, x, dy)).collect();
            })
        };
        Gradients {
            x: wanted.x.then_some(dx),
            a: wanted.a.then(|| self.sum_a(&partials)),
            b: wanted.b.then(|| self.sum_b(&partials)),
            gates: wanted.gates.then(|| self.sum_gates(&partials)),
        }
    }

    /// Checks the lengths; returns the number of rows of the batch.
    fn check(&self) -> usize {
        let columns = self.columns();
        assert!(columns > 0 && self.a.len() == columns * self.d_in, "`a` is [columns, d_in]");
        assert_eq!(self.b.len(), self.d_out * columns, "`b` is [d_out, columns]");
        assert!(self.gates.len().is_multiple_of(columns), "the gates are [batch, columns]");
        self.gates.len() / columns * self.time
    }

    fn columns(&self) -> usize {
        self.a.len() / self.d_in
    }

    fn segments(&self) -> Vec<Segment<'_>> {
        let mut found: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for (sample, gates) in self.gates.chunks_exact(self.columns()).enumerate() {
            let columns: Vec<_> = (0..gates.len()).filter(|j| gates[*j] != 0.0).collect();
            let end = (sample + 1) * self.time;
            match found.last_mut() {
                Some((rows, last)) if *last == columns => rows.end = end,
                _ => found.push((end - self.time..end, columns)),
            }
        }
        let mut offset = 0;
        let place = |(rows, columns): (Range<usize>, Vec<usize>)| {
            let begin = offset;
            offset += rows.len() * columns.len();
            self.segment(rows, columns, begin)
        };
        found.into_iter().map(place).collect()
    }

    fn segment(&self, rows: Range<usize>, columns: Vec<usize>, offset: usize) -> Segment<'_> {
        let (n, all) = (columns.len(), self.columns());
        let first = columns.first().copied().unwrap_or(0);
        let adjacent = columns.last().is_none_or(|last| last - first + 1 == n);
        let (a, b, b_stride): (Cow<[f32]>, Cow<[f32]>, usize) = if adjacent {
            (self.a[first * self.d_in..][..n * self.d_in].into(), self.b[first..].into(), all)
        } else {
            let a = columns.iter().flat_map(|j| &self.a[j * self.d_in..][..self.d_in]).copied();
            let b = self.b.chunks_exact(all).flat_map(|row| columns.iter().map(|j| row[*j]));
            (a.collect(), b.collect(), n)
        };
        let a = Factor { data: a, rows: n, columns: self.d_in, row_stride: self.d_in };
        let b = Factor { data: b, rows: self.d_out, columns: n, row_stride: b_stride };
        Segment { rows, columns, offset, a, b }
    }

    /// Multiplies the rows of a low-rank part, from row `first` of the batch, by their samples' gates.
    fn gate(&self, segment: &Segment, first: usize, low: &mut [f32]) {
        for (row, low) in (first..).zip(low.chunks_exact_mut(segment.columns.len())) {
            let gates = &self.gates[row / self.time * self.columns()..];
            low.iter_mut().zip(&segment.columns).for_each(|(low, j)| *low *= gates[*j]);
        }
    }

    fn sum_a(&self, partials: &[Partial]) -> Vec<f32> {
        let mut sums = vec![0.0; self.a.len()];
        sums.par_chunks_mut(self.d_in).enumerate().for_each(|(j, sums)| {
            for partial in partials.iter().filter(|partial| !partial.a.is_empty()) {
                if let Ok(k) = partial.columns.binary_search(&j) {
                    let row = &partial.a[k * self.d_in..];
                    sums.iter_mut().zip(row).for_each(|(sum, a)| *sum += a);
                }
            }
        });
        sums
    }

    fn sum_b(&self, partials: &[Partial]) -> Vec<f32> {
        let mut sums = vec![0.0; self.b.len()];
        sums.par_chunks_mut(self.columns()).with_min_len(TILE).enumerate().for_each(|(o, sums)| {
            for partial in partials.iter().filter(|partial| !partial.b.is_empty()) {
                let column = partial.b.iter().skip(o).step_by(self.d_out);
                partial.columns.iter().zip(column).for_each(|(j, b)| sums[*j] += b);
            }
        });
        sums
    }

    fn sum_gates(&self, partials: &[Partial]) -> Vec<f32> {
        let mut sums = vec![0.0; self.gates.len()];
        for partial in partials.iter().filter(|partial| !partial.gates.is_empty()) {
            let samples = sums.chunks_exact_mut(self.columns()).skip(partial.first_sample);
            for (sums, found) in samples.zip(partial.gates.chunks_exact(partial.columns.len())) {
                partial.columns.iter().zip(found).for_each(|(j, found)| sums[*j] += found);
            }
        }
        sums
    }
}

impl<'a> Piece<'a, '_> {
    /// Writes the gradient of the piece's input, if it is wanted, and sums the others.
    fn backward(self, bank: &Bank, x: Numbers, dy: &[f32]) -> Partial<'a> {
        let Self { segment, rows, low, mut dx, wanted } = self;
        let columns = segment.columns.len();
        let first_sample = rows.start / bank.time;
        let samples = rows.end.div_ceil(bank.time) - first_sample;
        let zeros = |wanted: bool, length: usize| vec![0.0; if wanted { length } else { 0 }];
        let mut sums = Partial {
            columns: &segment.columns,
            a: zeros(wanted.a, columns * bank.d_in),
            b: zeros(wanted.b, columns * bank.d_out),
            first_sample,
            gates: zeros(wanted.gates, samples * columns),
        };
        if columns == 0 {
            dx.fill(Uninit::new(0.0));
            return sums;
        }
        let (a, b) = (segment.a.matrix(), segment.b.matrix());
        let mut buffers = [(); 2].map(|()| vec![0.0; TILE.min(rows.len()) * columns]);
        for tile in pieces(&rows, TILE) {
            let height = tile.len();
            let dy = rows_of(dy, &tile, bank.d_out);
            let [low_tile, d_low] = buffers.each_mut().map(|buffer| &mut buffer[..height * columns]);
            if let Some(low) = low {
                let start = (tile.start - segment.rows.start) * columns;
                low_tile.copy_from_slice(&low[start..][..height * columns]);
            } else if wanted.needs_low() {
                let x = x.rows(tile.clone(), bank.d_in);
                let x = Matrix::new(&x, height, bank.d_in);
                product(MatrixMut::new(low_tile, height, columns), x, a.transposed(), 1.0, Threads::One);
            }
            if wanted.x || wanted.a || wanted.gates {
                product(MatrixMut::new(d_low, height, columns), dy, b, 1.0, Threads::One);
            }
            if wanted.gates {
                for (row, (low, d_low)) in tile.clone().zip(low_tile.chunks(columns).zip(d_low.chunks(columns))) {
                    let sums = &mut sums.gates[(row / bank.time - first_sample) * columns..][..columns];
                    sums.iter_mut().zip(low).zip(d_low).for_each(|((sum, low), d_low)| *sum += low * d_low);
                }
            }
            if wanted.b {
                bank.gate(segment, tile.start, low_tile);
                let low = Matrix::new(low_tile, height, columns).transposed();
                add_product(&mut sums.b, bank.d_out, low, dy, 1.0, Threads::One);
            }
            bank.gate(segment, tile.start, d_low);
            let d_low = Matrix::new(d_low, height, columns);
            if wanted.x {
                let dx = dx.split_off_mut(..height * bank.d_in).expect("the tile's gradient");
                product(MatrixMut::unwritten(dx, height, bank.d_in), d_low, a, 1.0, Threads::One);
            }
            if wanted.a {
                let x = x.rows(tile.clone(), bank.d_in);
                let x = Matrix::new(&x, height, bank.d_in);
                add_product(&mut sums.a, bank.d_in, d_low.transposed(), x, 1.0, Threads::One);
            }
        }
        sums
    }
}

/// Length of a batch's low-rank part.
fn low_length(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.rows.len() * segment.columns.len()).sum()
}

/// Returns the given rows of `x`, `[.., d]`.
fn rows_of<'a>(x: &'a [f32], rows: &Range<usize>, d: usize) -> Matrix<'a> {
    Matrix::new(&x[rows.start * d..rows.end * d], rows.len(), d)
}

/// Splits `rows` into pieces of `height`; the last may be shorter.
fn pieces(rows: &Range<usize>, height: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = rows.end;
    rows.clone().step_by(height).map(move |start| start..end.min(start + height))
}

#[cfg(test)]
mod tests;
