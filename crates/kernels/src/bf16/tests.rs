use super::*;
use crate::testing::{on_threads, random};
use proptest::prelude::*;
use undertone_testing::skipped;

/// Rounds by the definition of bfloat16: to nearest, ties to even.
fn rounded(x: &[f32]) -> Vec<f64> {
    let bits = x.iter().map(|x| x.to_bits());
    bits.map(|x| f64::from(f32::from_bits((x + 0x7fff + (x >> 16 & 1)) & 0xffff_0000))).collect()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Rows, columns, depth.
    shape: [usize; 3],
    /// Which operands are stored by columns.
    transposed: [bool; 2],
    /// Unused elements between rows.
    gap: usize,
    scale: f32,
    accumulate: bool,
}

impl Case {
    fn new(shape: [usize; 3]) -> Self {
        Self { shape, transposed: [false, true], gap: 0, scale: 0.5, accumulate: false }
    }

    fn inputs(&self) -> [Vec<f32>; 2] {
        let [rows, columns, depth] = self.shape.map(|n| n + self.gap);
        [random(rows * depth, 1), random(depth * columns, 2)]
    }

    /// Strides of rows and of columns, for each operand.
    fn strides(&self) -> [[usize; 2]; 2] {
        let [rows, columns, depth] = self.shape.map(|n| n + self.gap);
        let [a, b] = self.transposed;
        [if a { [1, rows] } else { [depth, 1] }, if b { [1, depth] } else { [columns, 1] }]
    }

    /// Returns `out`, which is 7 everywhere before.
    #[allow(unsafe_code)]
    fn run(&self, by: Instructions, inputs: &[Vec<f32>; 2], parallel: bool) -> Vec<f32> {
        let [rows, columns, depth] = self.shape;
        let [a, b] = [0, 1].map(|i| {
            let [row_stride, column_stride] = self.strides()[i];
            Operand::F32(Strided { data: inputs[i].as_ptr(), row_stride, column_stride })
        });
        let out_stride = columns + self.gap;
        let mut written = vec![7.0; rows * out_stride];
        let (out, scale, accumulate) = (written.as_mut_ptr(), self.scale, self.accumulate);
        let b = Right::Plain(b);
        let p = Product { rows, columns, depth, out, out_stride, a, b, kept: None, scale, accumulate, parallel };
        // SAFETY: the vectors hold these shapes at these strides, and nothing else uses them meanwhile.
        unsafe { product_by(by, &p) };
        written
    }

    /// Compares with the product in f64, to 1e-5 of the sum of absolute values; gaps must stay unchanged.
    fn check(&self, by: Instructions) {
        let inputs = self.inputs();
        let [_, columns, depth] = self.shape;
        let ([a, b], [at_a, at_b]) = (inputs.each_ref().map(|x| rounded(x)), self.strides());
        let before = if self.accumulate { 7.0 } else { 0.0 };
        for (i, row) in self.run(by, &inputs, true).chunks((columns + self.gap).max(1)).enumerate() {
            for (j, found) in row[..columns].iter().enumerate() {
                let term = |k: usize| a[i * at_a[0] + k * at_a[1]] * b[k * at_b[0] + j * at_b[1]];
                let (sum, size) = (0..depth).map(term).fold((0.0, 0.0), |(s, t), x| (s + x, t + x.abs()));
                let error = f64::from(*found) - (f64::from(self.scale) * sum + before);
                let tolerance = 1e-5 * (f64::from(self.scale.abs()) * size + before);
                assert!(error.abs() <= tolerance, "({i}, {j}): {found} is off by {error}");
            }
            assert!(row[columns..].iter().all(|x| *x == 7.0), "the gap of row {i} was written");
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let shape = [0_usize..70, 0..70, 0..70];
    (shape, any::<[bool; 2]>(), 0_usize..3, -2.0_f32..2.0, any::<bool>())
        .prop_map(|(shape, transposed, gap, scale, accumulate)| Case { shape, transposed, gap, scale, accumulate })
}

/// Instructions that can be tested here.
fn possible() -> Vec<Instructions> {
    let all: Vec<_> = Instructions::all().collect();
    if all.is_empty() {
        skipped("this processor has no AVX2");
    }
    all
}

proptest! {
    #[test]
    fn equals_the_product_of_rounded_factors(case in case()) {
        possible().into_iter().for_each(|by| case.check(by));
    }
}

#[test]
fn crosses_every_block() {
    // Stretches of depth; pieces; blocks of rows and of columns, which are 2496 at a depth of 400.
    let shapes = [[130, 390, 1601], [2501, 5, 801], [5, 2501, 801]];
    for by in possible() {
        for case in shapes.map(Case::new) {
            for transposed in [[false, false], [false, true], [true, false], [true, true]] {
                Case { transposed, gap: 1, accumulate: transposed[0], ..case }.check(by);
            }
        }
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let case = Case { accumulate: true, ..Case::new([333, 444, 1555]) };
    for by in possible() {
        let inputs = case.inputs();
        let (one, three) = on_threads(|| case.run(by, &inputs, true));
        assert!(one == three, "{by:?}: bits differ between threads");
        assert!(one == case.run(by, &inputs, false), "{by:?}: bits differ without threads");
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row_or_column() {
    let case = Case { transposed: [false, false], ..Case::new([19, 35, 33]) };
    for by in possible() {
        let mut inputs = case.inputs();
        (inputs[0][3 * 33 + 32], inputs[1][32 * 35 + 20]) = (f32::NAN, f32::INFINITY);
        for (at, x) in case.run(by, &inputs, false).iter().enumerate() {
            let (i, j) = (at / 35, at % 35);
            assert_eq!(x.is_nan(), i == 3, "({i}, {j}) is {x}");
            assert_eq!(x.is_infinite(), j == 20 && i != 3, "({i}, {j}) is {x}");
        }
    }
}
