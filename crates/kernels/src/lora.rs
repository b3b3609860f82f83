//! Banks of low-rank updates of a linear map, gated sample by sample.
//!
//! Most gates are zero: a sample goes through one adapter of many. Only the columns of the low rank whose gate is not
//! zero are computed, so a bank costs what the adapters in use cost.

use crate::matrix::{Matrix, MatrixMut, Threads, add_product, product};
use crate::slim;
use crate::vector::{Uninit, written};
use rayon::prelude::*;
use std::ops::Range;

/// `((x · aᵀ) ⊙ gates) · bᵀ`, gates repeated over time.
///
/// `x` is `[batch, time, d_in]`, the output `[batch, time, d_out]`.
#[derive(Clone, Copy, Debug)]
pub struct Bank<'a> {
    /// `[columns, d_in]`.
    pub a: &'a [f32],
    /// `[d_out, columns]`.
    pub b: &'a [f32],
    /// `[batch, columns]`.
    pub gates: &'a [f32],
    /// Rows of a sample.
    pub time: usize,
    /// Width of the input.
    pub d_in: usize,
    /// Width of the output.
    pub d_out: usize,
}

/// Which gradients [`Bank::backward`] computes.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// That of the input.
    pub x: bool,
    /// That of `a`.
    pub a: bool,
    /// That of `b`.
    pub b: bool,
    /// Those of the gates. A gate of zero has one too, which takes the products of all columns.
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

/// What [`Bank::backward`] gives: the wanted gradients, each shaped as its input.
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

/// Rows that are taken through all products of a pass while they lie in a core's L2 cache: 64 rows of 1536 floats are
/// 400 kB.
const TILE: usize = 64;

/// The same where the general product packs its factors anew for each tile.
const WIDE_TILE: usize = 256;

/// Rows of a piece of parallel work of the backward pass, at least: each has its own sums for the gradients of `a` and
/// `b`.
const PIECE: usize = 512;

/// Pieces that a batch is divided into, at most, but for ends of segments.
const PIECES: usize = 32;

/// Consecutive samples that use the same columns.
struct Segment {
    rows: Range<usize>,
    columns: Vec<usize>,
    /// Floats from one row of the low-rank part to the next.
    width: usize,
    /// Where its low-rank part begins in that of the batch.
    offset: usize,
}

impl Segment {
    fn new(rows: Range<usize>, columns: Vec<usize>, offset: usize) -> Self {
        let width = if columns.is_empty() { 0 } else { slim::width(columns.len()).unwrap_or(columns.len()) };
        Self { rows, columns, width, offset }
    }

    fn is_slim(&self) -> bool {
        slim::width(self.columns.len()).is_some()
    }

    fn tile(&self) -> usize {
        if self.is_slim() { TILE } else { WIDE_TILE }
    }

    /// The low-rank part of `rows`, from that of the batch.
    fn of<'a>(&self, low: &'a [f32], rows: &Range<usize>) -> &'a [f32] {
        &low[self.offset + (rows.start - self.rows.start) * self.width..][..rows.len() * self.width]
    }

    /// `out = x · tall`: `[rows, d]` times `[d, width]`.
    fn narrow(&self, x: &[f32], tall: &[f32], d: usize, out: &mut [f32]) {
        if self.is_slim() {
            return slim::narrow(x, tall, d, self.width, out);
        }
        let rows = x.len() / d;
        let (x, tall) = (Matrix::new(x, rows, d), Matrix::new(tall, d, self.width));
        product(MatrixMut::new(out, rows, self.width), x, tall, 1.0, Threads::One);
    }

    /// `out = low · flat`: `[rows, width]` times `[columns, d]`. Writes all of `out`.
    fn widen(&self, low: &[f32], flat: &[f32], d: usize, out: &mut [Uninit]) {
        if self.is_slim() {
            return slim::widen(low, flat, d, self.width, out);
        }
        let rows = out.len() / d;
        let (low, flat) = (Matrix::new(low, rows, self.width), Matrix::new(flat, self.width, d));
        product(MatrixMut::unwritten(out, rows, d), low, flat, 1.0, Threads::One);
    }

    /// `sums += lowᵀ · x`: `[rows, width]` and `[rows, d]` to `[columns, d]`.
    fn add_outer(&self, low: &[f32], x: &[f32], d: usize, sums: &mut [f32]) {
        if self.is_slim() {
            return slim::add_outer(low, x, d, self.width, sums);
        }
        let rows = x.len() / d;
        let (low, x) = (Matrix::new(low, rows, self.width).transposed(), Matrix::new(x, rows, d));
        add_product(sums, d, low, x, 1.0, Threads::One);
    }
}

/// A segment's sums over some of its rows.
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

/// A segment's factors as the backward pass multiplies by them.
struct Factors {
    /// `[columns, d_in]`.
    a_flat: Vec<f32>,
    /// `[d_in, width]`, of columns whose low-rank part the forward pass has left out.
    a_tall: Vec<f32>,
    /// `[d_out, width]`.
    b_tall: Vec<f32>,
}

/// A piece of parallel work: the segment's factors and gradients of the rows, which are empty where there are none.
struct Piece<'a, 'x> {
    segment: &'a Segment,
    factors: &'a Factors,
    rows: Range<usize>,
    dx: &'x mut [Uninit],
    wanted: Wanted,
}

impl Bank<'_> {
    /// The output, and the low-rank part of the columns in use, `x · aᵀ`, in an order of its own: what the backward pass
    /// would otherwise read all of `x` for again.
    ///
    /// # Panics
    /// If a slice has not its shape's length.
    #[allow(unsafe_code)]
    pub fn forward(&self, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let rows = self.check();
        assert_eq!(x.len(), rows * self.d_in, "the input is [batch, time, d_in]");
        let segments = self.segments();
        let mut low = vec![0.0; segments.last().map_or(0, |last| last.offset + last.rows.len() * last.width)];
        let factors: Vec<_> = segments.iter().map(|s| (self.a_tall(s), self.b_flat(s))).collect();
        // SAFETY: segments cover all rows, tiles their segment, and `forward_tile` writes all rows of its tile.
        let y = unsafe {
            written(rows * self.d_out, |mut y| {
                let mut low = low.as_mut_slice();
                let mut work = Vec::new();
                for (segment, factors) in segments.iter().zip(&factors) {
                    for rows in pieces(&segment.rows, segment.tile()) {
                        let y = y.split_off_mut(..rows.len() * self.d_out).expect("the tile's output");
                        let low = low.split_off_mut(..rows.len() * segment.width).expect("the tile's low-rank part");
                        work.push((segment, factors, rows, low, y));
                    }
                }
                work.into_par_iter().for_each(|(segment, (a, b), rows, low, y)| {
                    self.forward_tile(
                        segment,
                        rows.start,
                        &x[rows.start * self.d_in..rows.end * self.d_in],
                        (a, b),
                        low,
                        y,
                    );
                });
            })
        };
        (y, low)
    }

    fn forward_tile(
        &self,
        segment: &Segment,
        first: usize,
        x: &[f32],
        (a, b): (&[f32], &[f32]),
        low: &mut [f32],
        y: &mut [Uninit],
    ) {
        if segment.columns.is_empty() {
            y.fill(Uninit::new(0.0));
            return;
        }
        segment.narrow(x, a, self.d_in, low);
        let mut gated = low.to_vec();
        self.gate(segment, first, &mut gated);
        segment.widen(&gated, b, self.d_out, y);
    }

    /// The gradients, given `x` and the low-rank part of [`forward`](Self::forward), where they are
    /// [needed](Wanted::needs_x) (otherwise they may be empty), and the output's gradient.
    ///
    /// # Panics
    /// If a slice has not its shape's length.
    #[allow(unsafe_code)]
    pub fn backward(&self, x: &[f32], low: &[f32], dy: &[f32], wanted: Wanted) -> Gradients {
        let rows = self.check();
        assert!(!wanted.needs_x() || x.len() == rows * self.d_in, "the input is [batch, time, d_in]");
        assert_eq!(dy.len(), rows * self.d_out, "the gradient is [batch, time, d_out]");
        let used = self.segments();
        let length = used.last().map_or(0, |last| last.offset + last.rows.len() * last.width);
        assert!(!wanted.needs_low() || low.len() == length, "the low-rank part is that of the forward pass");
        let unused = if wanted.gates { self.complements(&used) } else { Vec::new() };
        let only_gates = Wanted { x: false, a: false, b: false, gates: true };
        let factors = |s: &Segment, kept: bool| Factors {
            a_flat: if kept && wanted.x { self.a_flat(s) } else { Vec::new() },
            a_tall: if kept { Vec::new() } else { self.a_tall(s) },
            b_tall: self.b_tall(s),
        };
        let used_factors: Vec<_> = used.iter().map(|s| factors(s, true)).collect();
        let unused_factors: Vec<_> = unused.iter().map(|s| factors(s, false)).collect();
        let height = PIECE.max(rows.div_ceil(PIECES).next_multiple_of(WIDE_TILE));
        let mut partials = Vec::new();
        // SAFETY: where the gradient is wanted, segments cover all rows, pieces their segment, and `Piece::backward`
        // writes all rows of its piece.
        let dx = unsafe {
            written(if wanted.x { rows * self.d_in } else { 0 }, |mut dx| {
                let mut work = Vec::new();
                for (segment, factors) in used.iter().zip(&used_factors) {
                    for rows in pieces(&segment.rows, height) {
                        let length = if wanted.x { rows.len() * self.d_in } else { 0 };
                        let dx = dx.split_off_mut(..length).expect("the piece's gradient");
                        work.push(Piece { segment, factors, rows, dx, wanted });
                    }
                }
                for (segment, factors) in unused.iter().zip(&unused_factors) {
                    for rows in pieces(&segment.rows, height) {
                        work.push(Piece { segment, factors, rows, dx: &mut [], wanted: only_gates });
                    }
                }
                partials = work.into_par_iter().map(|piece| piece.backward(self, x, low, dy)).collect();
            })
        };
        Gradients {
            x: wanted.x.then_some(dx),
            a: wanted.a.then(|| self.sum_a(&partials)),
            b: wanted.b.then(|| self.sum_b(&partials)),
            gates: wanted.gates.then(|| self.sum_gates(&partials)),
        }
    }

    /// Checks the lengths; the number of rows of the batch.
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

    fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        for (sample, gates) in self.gates.chunks_exact(self.columns()).enumerate() {
            let columns: Vec<_> = (0..gates.len()).filter(|j| gates[*j] != 0.0).collect();
            let rows = sample * self.time..(sample + 1) * self.time;
            match segments.last_mut() {
                Some(last) if last.columns == columns => last.rows.end = rows.end,
                last => {
                    let offset = last.map_or(0, |last| last.offset + last.rows.len() * last.width);
                    segments.push(Segment::new(rows, columns, offset));
                }
            }
        }
        segments
    }

    /// The same rows with the columns that they do not use, where there are any.
    fn complements(&self, segments: &[Segment]) -> Vec<Segment> {
        let rest =
            |s: &Segment| (0..self.columns()).filter(|j| s.columns.binary_search(j).is_err()).collect::<Vec<_>>();
        let all = segments.iter().map(|s| Segment::new(s.rows.clone(), rest(s), 0));
        all.filter(|s| !s.columns.is_empty()).collect()
    }

    /// The segment's rows of `a`, `[columns, d_in]`.
    fn a_flat(&self, segment: &Segment) -> Vec<f32> {
        segment.columns.iter().flat_map(|j| &self.a[j * self.d_in..][..self.d_in]).copied().collect()
    }

    /// The same transposed and padded, `[d_in, width]`.
    fn a_tall(&self, segment: &Segment) -> Vec<f32> {
        let mut tall = vec![0.0; self.d_in * segment.width];
        for (k, j) in segment.columns.iter().enumerate() {
            let row = &self.a[j * self.d_in..][..self.d_in];
            tall.iter_mut().skip(k).step_by(segment.width).zip(row).for_each(|(tall, a)| *tall = *a);
        }
        tall
    }

    /// The segment's columns of `b`, padded: `[d_out, width]`.
    fn b_tall(&self, segment: &Segment) -> Vec<f32> {
        let mut tall = vec![0.0; self.d_out * segment.width];
        for (tall, b) in tall.chunks_exact_mut(segment.width.max(1)).zip(self.b.chunks_exact(self.columns())) {
            tall.iter_mut().zip(&segment.columns).for_each(|(tall, j)| *tall = b[*j]);
        }
        tall
    }

    /// The same transposed, `[columns, d_out]`.
    fn b_flat(&self, segment: &Segment) -> Vec<f32> {
        let column = |j: &usize| self.b.iter().skip(*j).step_by(self.columns()).copied();
        segment.columns.iter().flat_map(column).collect()
    }

    /// Multiplies the rows of a low-rank part, from row `first` of the batch, by their samples' gates.
    fn gate(&self, segment: &Segment, first: usize, low: &mut [f32]) {
        for (row, low) in (first..).zip(low.chunks_exact_mut(segment.width)) {
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
    /// Writes the gradient of the piece's input, where it is wanted, and sums the others.
    fn backward(self, bank: &Bank, x: &[f32], low: &[f32], dy: &[f32]) -> Partial<'a> {
        let Self { segment, factors, rows, mut dx, wanted } = self;
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
        let kept = factors.a_tall.is_empty();
        let mut buffers = [(); 2].map(|()| vec![0.0; segment.tile() * segment.width]);
        for tile in pieces(&rows, segment.tile()) {
            let x = if wanted.needs_x() { &x[tile.start * bank.d_in..tile.end * bank.d_in] } else { &[] };
            let dy = &dy[tile.start * bank.d_out..tile.end * bank.d_out];
            let [low_tile, d_low] = buffers.each_mut().map(|buffer| &mut buffer[..tile.len() * segment.width]);
            if !kept {
                segment.narrow(x, &factors.a_tall, bank.d_in, low_tile);
            } else if wanted.needs_low() {
                low_tile.copy_from_slice(segment.of(low, &tile));
            }
            if wanted.x || wanted.needs_x() {
                segment.narrow(dy, &factors.b_tall, bank.d_out, d_low);
            }
            if wanted.gates {
                // Of the gated low-rank part: the gates' own factor is the part before it.
                for ((row, low), d_low) in
                    tile.clone().zip(low_tile.chunks(segment.width)).zip(d_low.chunks(segment.width))
                {
                    let sums = &mut sums.gates[(row / bank.time - first_sample) * columns..][..columns];
                    sums.iter_mut().zip(low).zip(d_low).for_each(|((sum, low), d_low)| *sum += low * d_low);
                }
            }
            if wanted.b {
                bank.gate(segment, tile.start, low_tile);
                segment.add_outer(low_tile, dy, bank.d_out, &mut sums.b);
            }
            if wanted.x || wanted.a {
                bank.gate(segment, tile.start, d_low);
            }
            if wanted.x {
                let dx = dx.split_off_mut(..tile.len() * bank.d_in).expect("the tile's gradient");
                segment.widen(d_low, &factors.a_flat, bank.d_in, dx);
            }
            if wanted.a {
                segment.add_outer(d_low, x, bank.d_in, &mut sums.a);
            }
        }
        sums
    }
}

/// `rows` in pieces of `height`; the last may be shorter.
fn pieces(rows: &Range<usize>, height: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = rows.end;
    rows.clone().step_by(height).map(move |start| start..end.min(start + height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
    use proptest::prelude::*;

    const ALL: Wanted = Wanted { x: true, a: true, b: true, gates: true };

    #[derive(Clone, Copy, Debug)]
    struct Shape {
        batch: usize,
        time: usize,
        d_in: usize,
        d_out: usize,
        columns: usize,
    }

    /// `x`, `a`, `b` and gates, of which only every `sparsity`th counts, another one in every second sample.
    fn inputs(shape: Shape, sparsity: usize) -> [Vec<f32>; 4] {
        let Shape { batch, time, d_in, d_out, columns } = shape;
        let mut gates = random(batch * columns, 4);
        for (i, gate) in gates.iter_mut().enumerate() {
            if !(i % columns / 3 + i / columns / 2).is_multiple_of(sparsity) {
                *gate = 0.0;
            }
        }
        [random(batch * time * d_in, 1), random(columns * d_in, 2), random(d_out * columns, 3), gates]
    }

    fn bank<'a>([_, a, b, gates]: &'a [Vec<f32>; 4], shape: Shape) -> Bank<'a> {
        Bank { a, b, gates, time: shape.time, d_in: shape.d_in, d_out: shape.d_out }
    }

    fn by_definition([x, a, b, gates]: [&[f64]; 4], shape: Shape) -> Vec<f64> {
        let Shape { time, d_in, d_out, columns, .. } = shape;
        let mut y = Vec::new();
        for (row, x) in x.chunks(d_in).enumerate() {
            let gates = &gates[row / time * columns..][..columns];
            let dot = |a: &[f64]| x.iter().zip(a).map(|(x, a)| x * a).sum::<f64>();
            let low: Vec<f64> = a.chunks(d_in).zip(gates).map(|(a, gate)| dot(a) * gate).collect();
            y.extend((0..d_out).map(|o| low.iter().zip(&b[o * columns..]).map(|(low, b)| low * b).sum::<f64>()));
        }
        y
    }

    fn shapes(rows: usize, d: usize, columns: usize) -> impl Strategy<Value = Shape> {
        (1..5_usize, 1..rows, 1..d, 1..d, 1..columns).prop_map(|(batch, time, d_in, d_out, columns)| Shape {
            batch,
            time,
            d_in,
            d_out,
            columns,
        })
    }

    proptest! {
        #[test]
        fn equals_its_definition(shape in shapes(90, 50, 70), sparsity in 1_usize..5) {
            let inputs = inputs(shape, sparsity);
            let (y, _) = bank(&inputs, shape).forward(&inputs[0]);
            let wide_inputs = inputs.each_ref().map(|input| wide(input));
            assert_close(&y, &by_definition(wide_inputs.each_ref().map(Vec::as_slice), shape), 2e-5);
        }

        #[test]
        fn gradients_are_the_derivatives(shape in shapes(6, 7, 45), sparsity in 1_usize..5, bits in 0_u8..16) {
            let inputs = inputs(shape, sparsity);
            let bank = bank(&inputs, shape);
            let (y, low) = bank.forward(&inputs[0]);
            let dy = random(y.len(), 5);
            let [x, a, b, gates] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let wanted = Wanted { x, a, b, gates };
            let input: &[f32] = if wanted.needs_x() { &inputs[0] } else { &[] };
            let found = bank.backward(input, if wanted.needs_low() { &low } else { &[] }, &dy, wanted);
            let wide_inputs = inputs.each_ref().map(|input| wide(input));
            for (i, (found, wanted)) in
                [(found.x, x), (found.a, a), (found.b, b), (found.gates, gates)].into_iter().enumerate()
            {
                prop_assert_eq!(found.is_some(), wanted);
                let expected = numeric_gradient(&wide_inputs[i], |varied| {
                    let mut inputs = wide_inputs.each_ref().map(Vec::as_slice);
                    inputs[i] = varied;
                    by_definition(inputs, shape).iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum()
                });
                if let Some(found) = found {
                    assert_close(&found, &expected, 2e-5);
                }
            }
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        for columns in [12, 50] {
            let shape = Shape { batch: 3, time: 700, d_in: 40, d_out: 24, columns };
            let inputs = inputs(shape, if columns == 12 { 4 } else { 1 });
            let bank = bank(&inputs, shape);
            let (one, three) = on_threads(|| bank.forward(&inputs[0]));
            assert_eq!(one, three);
            let dy = random(one.0.len(), 5);
            let (one, three) = on_threads(|| {
                let found = bank.backward(&inputs[0], &one.1, &dy, ALL);
                [found.x, found.a, found.b, found.gates]
            });
            assert_eq!(one, three);
        }
    }

    #[test]
    fn samples_of_the_same_columns_share_a_segment_and_the_others_are_their_complement() {
        let gates = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0];
        let shape = Shape { batch: 4, time: 2, d_in: 1, d_out: 1, columns: 3 };
        let inputs = [vec![], vec![0.0; 3], vec![0.0; 3], gates.to_vec()];
        let bank = bank(&inputs, shape);
        let used = bank.segments();
        let of = |s: &[Segment]| s.iter().map(|s| (s.rows.clone(), s.columns.clone())).collect::<Vec<_>>();
        assert_eq!(of(&used), [(0..4, vec![0, 1]), (4..6, vec![]), (6..8, vec![2])]);
        assert_eq!(of(&bank.complements(&used)), [(0..4, vec![2]), (4..6, vec![0, 1, 2]), (6..8, vec![0, 1])]);
    }

    #[test]
    fn a_column_that_no_sample_uses_is_not_read() {
        let shape = Shape { batch: 2, time: 3, d_in: 4, d_out: 5, columns: 2 };
        let mut inputs = inputs(shape, 1);
        inputs[3] = vec![0.5, 0.0, 0.25, 0.0];
        inputs[1][4..].fill(f32::NAN);
        let bank = bank(&inputs, shape);
        let (y, low) = bank.forward(&inputs[0]);
        let found = bank.backward(&inputs[0], &low, &y, Wanted { gates: false, ..ALL });
        for values in [y, found.x.unwrap_or_default(), found.a.unwrap_or_default(), found.b.unwrap_or_default()] {
            assert!(!values.is_empty() && values.iter().all(|v| v.is_finite()));
        }
    }
}
