//! Linear maps.

use crate::few_rows;
use crate::matrix::{Matrix, MatrixMut, RightFactor, Threads, add_product, product, product_by, product_kept};
use crate::norm::{column_sums, rows};
use crate::numbers::{LEAST_COLUMNS, LEAST_ROWS, Numbers};
use crate::vector::{assume_written, written};
use half::bf16;
use rayon::prelude::*;

/// Whether products of few rows widen weights in half precision in registers, on this processor. Elsewhere each product widens them
/// in memory first, which takes longer than to read them in f32.
pub fn widens_in_registers() -> bool {
    few_rows::available()
}

/// Returns `x · weightᵀ + bias`, `[rows, d_out]`: `x` is `[rows, d_in]`, `weight` `[d_out, d_in]`, `bias` `[d_out]`.
///
/// # Panics
/// If the length of a slice differs from its shape.
pub fn forward(x: &[f32], weight: Numbers, bias: Option<&[f32]>, d_in: usize, d_out: usize) -> Vec<f32> {
    compute(x, weight, bias, [d_in, d_out], false).0
}

/// As [`forward`], and returns `x` as its product rounded it, for the backward pass: `None` if it did not.
///
/// # Panics
/// As [`forward`].
pub fn forward_kept(
    x: &[f32],
    weight: Numbers,
    bias: Option<&[f32]>,
    d_in: usize,
    d_out: usize,
) -> (Vec<f32>, Option<Vec<bf16>>) {
    compute(x, weight, bias, [d_in, d_out], true)
}

#[allow(unsafe_code)]
fn compute(
    x: &[f32],
    weight: Numbers,
    bias: Option<&[f32]>,
    [d_in, d_out]: [usize; 2],
    keep: bool,
) -> (Vec<f32>, Option<Vec<bf16>>) {
    assert_eq!(weight.len(), d_out * d_in, "the weight is [d_out, d_in]");
    assert!(bias.is_none_or(|bias| bias.len() == d_out), "the bias is [d_out]");
    let rows = rows(x, d_in);
    if rows == 0 {
        return (Vec::new(), None);
    }
    if rows <= few_rows::MOST_ROWS && few_rows::available() {
        // SAFETY: the product writes every element.
        return (unsafe { written(rows * d_out, |out| few_rows::product(out, x, weight, bias, d_in)) }, None);
    }
    let (x, mut kept) = (Matrix::new(x, rows, d_in), None);
    // SAFETY: the products, or the bias before them, write every element.
    let y = unsafe {
        written(rows * d_out, |out| {
            if let Some(bias) = bias {
                out.par_chunks_exact_mut(d_out).with_min_len(64).for_each(|row| {
                    row.write_copy_of_slice(bias);
                });
            }
            for outputs in weight.pieces(d_out, LEAST_ROWS) {
                let numbers = weight.rows(outputs.clone(), d_in);
                let numbers = Matrix::new(&numbers, outputs.len(), d_in).transposed();
                if keep && outputs.start == 0 {
                    let out = MatrixMut::unwritten(out, rows, d_out).columns(outputs);
                    kept = product_kept(out, x, numbers, bias.is_some());
                } else if bias.is_some() {
                    let out = &mut assume_written(out)[outputs.start..];
                    add_product(out, d_out, x, numbers, 1.0, Threads::All);
                } else {
                    let out = MatrixMut::unwritten(out, rows, d_out).columns(outputs);
                    product(out, x, numbers, 1.0, Threads::All);
                }
            }
        })
    };
    (y, kept)
}

/// Returns the gradient of `x`, `[rows, d_in]`, from that of the output, `[rows, d_out]`.
///
/// # Panics
/// If the length of a slice differs from its shape.
#[allow(unsafe_code)]
pub fn backward_x(dy: &[f32], weight: Numbers, d_in: usize, d_out: usize) -> Vec<f32> {
    let rows = rows(dy, d_out);
    let dy = Matrix::new(dy, rows, d_out);
    // SAFETY: the products write all of their output.
    unsafe {
        written(rows * d_in, |out| {
            // Columns, so that each element is one sum over all rows, whatever the pieces are.
            for inputs in weight.pieces(d_in, LEAST_COLUMNS) {
                let numbers = weight.columns(inputs.clone(), d_in);
                let numbers = Matrix::new(&numbers, d_out, inputs.len());
                let out = MatrixMut::unwritten(out, rows, d_in).columns(inputs);
                product(out, dy, numbers, 1.0, Threads::All);
            }
        })
    }
}

/// Returns the gradient of the weight, `[d_out, d_in]`.
///
/// # Panics
/// If the length of a slice differs from its shape.
#[allow(unsafe_code)]
pub fn backward_weight(dy: &[f32], x: Numbers, d_in: usize, d_out: usize) -> Vec<f32> {
    let rows = rows(dy, d_out);
    assert_eq!(x.len(), rows * d_in, "the input is [rows, d_in]");
    let (dy, x) = (Matrix::new(dy, rows, d_out).transposed(), RightFactor::new(x, rows, d_in, d_in));
    // SAFETY: a product writes all of its output.
    unsafe {
        written(d_out * d_in, |out| product_by(MatrixMut::unwritten(out, d_out, d_in), dy, &x, 1.0, Threads::All))
    }
}

/// Returns the gradient of the bias, `[d_out]`.
pub fn backward_bias(dy: &[f32], d_out: usize) -> Vec<f32> {
    column_sums(dy, d_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
    use half::f16;
    use proptest::prelude::*;

    fn by_definition(x: &[f64], weight: &[f64], bias: Option<&[f64]>, d_in: usize) -> Vec<f64> {
        let affine = |x: &[f64], o: usize| {
            let product: f64 = x.iter().zip(&weight[o * d_in..]).map(|(x, w)| x * w).sum();
            product + bias.map_or(0.0, |b| b[o])
        };
        x.chunks(d_in).flat_map(|x| (0..weight.len() / d_in).map(|o| affine(x, o)).collect::<Vec<_>>()).collect()
    }

    proptest! {
        #[test]
        fn equals_its_definition(rows in 1_usize..40, d_in in 1_usize..40, d_out in 1_usize..40, biased: bool) {
            let (x, weight, bias) = (random(rows * d_in, 1), random(d_out * d_in, 2), random(d_out, 3));
            let y = forward(&x, Numbers::F32(&weight), biased.then_some(&bias), d_in, d_out);
            let wide_bias = wide(&bias);
            let expected = by_definition(&wide(&x), &wide(&weight), biased.then_some(&wide_bias), d_in);
            assert_close(&y, &expected, 1e-5);
        }

        #[test]
        fn gradients_are_the_derivatives(rows in 1_usize..6, d_in in 1_usize..6, d_out in 1_usize..6) {
            let (x, weight, dy) = (random(rows * d_in, 1), random(d_out * d_in, 2), random(rows * d_out, 3));
            let (wide_x, wide_weight) = (wide(&x), wide(&weight));
            let loss = |y: Vec<f64>| y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
            let expected = numeric_gradient(&wide_x, |x| loss(by_definition(x, &wide_weight, None, d_in)));
            assert_close(&backward_x(&dy, Numbers::F32(&weight), d_in, d_out), &expected, 1e-5);
            let expected = numeric_gradient(&wide_weight, |w| loss(by_definition(&wide_x, w, None, d_in)));
            assert_close(&backward_weight(&dy, Numbers::F32(&x), d_in, d_out), &expected, 1e-5);
            let bias = vec![0.0; d_out];
            let expected = numeric_gradient(&bias, |b| loss(by_definition(&wide_x, &wide_weight, Some(b), d_in)));
            assert_close(&backward_bias(&dy, d_out), &expected, 1e-5);
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let (rows, d_in, d_out) = (2065, 40, 24);
        let (x, weight, bias) = (random(rows * d_in, 1), random(d_out * d_in, 2), random(d_out, 3));
        let (one, three) = on_threads(|| forward(&x, Numbers::F32(&weight), Some(&bias), d_in, d_out));
        assert_eq!(one, three);
        assert_close(&one, &by_definition(&wide(&x), &wide(&weight), Some(&wide(&bias)), d_in), 1e-5);
        let dy = random(rows * d_out, 4);
        let (one, three) = on_threads(|| backward_weight(&dy, Numbers::F32(&x), d_in, d_out));
        assert_eq!(one, three);
        let (one, three) = on_threads(|| backward_x(&dy, Numbers::F32(&weight), d_in, d_out));
        assert_eq!(one, three);
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_the_batch_is() {
        let (d_in, d_out) = (75, 1003);
        let (x, weight, bias) = (random(64 * d_in, 1), random(d_out * d_in, 2), random(d_out, 3));
        let forward = |rows: usize| forward(&x[..rows * d_in], Numbers::F32(&weight), Some(&bias), d_in, d_out);
        let (two, all) = (forward(2), forward(64));
        for rows in 2..=64 {
            let some = forward(rows);
            assert!(some[..2 * d_out] == two && all[..rows * d_out] == some, "{rows} rows");
        }
    }

    #[test]
    fn a_weight_in_half_precision_gives_the_bits_of_its_numbers_in_f32() {
        // The first two matrices are widened in one piece, the others in several.
        for (d_in, d_out) in [(30, 40), (7, 300), (70, 1200), (300, 700)] {
            let half: Vec<bf16> = random(d_out * d_in, 4).into_iter().map(bf16::from_f32).collect();
            let full: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
            let other: Vec<f16> = full.iter().map(|x| f16::from_f32(*x)).collect();
            let wide: Vec<f32> = other.iter().map(|x| x.to_f32()).collect();
            let bias = random(d_out, 2);
            for rows in [1, 2, 37, 130] {
                let (x, dy) = (random(rows * d_in, 1), random(rows * d_out, 3));
                for [held, numbers] in
                    [[Numbers::Bf16(&half), Numbers::F32(&full)], [Numbers::F16(&other), Numbers::F32(&wide)]]
                {
                    for bias in [None, Some(&bias[..])] {
                        let [a, b] = [held, numbers].map(|weight| forward(&x, weight, bias, d_in, d_out));
                        assert!(a == b, "forward, {rows} rows of {d_in} to {d_out}");
                    }
                    let [a, b] = [held, numbers].map(|weight| backward_x(&dy, weight, d_in, d_out));
                    assert!(a == b, "backward, {rows} rows of {d_in} to {d_out}");
                }
            }
            assert!(forward(&[], Numbers::Bf16(&half), Some(&bias), d_in, d_out).is_empty());
        }
    }
}
