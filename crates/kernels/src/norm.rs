//! Layer norm, and sums over rows.

use rayon::prelude::*;

use crate::simd::{Isa, simd_fn, sum_by};
use crate::vector::{Uninit, written};

/// Number of rows per piece of work. Sums over rows are computed within each piece and then over the pieces in order,
/// so this number determines their bits.
const ROWS: usize = 64;

/// Gradients of [`forward`]'s arguments, as far as they are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Gradient of the input, `[rows, d]`.
    pub x: Option<Vec<f32>>,
    /// Gradient of the weight, `[d]`.
    pub weight: Option<Vec<f32>>,
    /// Gradient of the bias, `[d]`.
    pub bias: Option<Vec<f32>>,
}

/// Layer norm of `x` `[rows, d]` over the last axis, with `weight` and `bias` `[d]`. Returns the output `[rows, d]` and
/// the statistics `[rows, 2]` that [`backward`] needs: mean and `1 / √(variance + epsilon)`.
///
/// # Panics
/// If `x` is not whole rows, or `bias` is not as long as `weight`.
#[allow(unsafe_code)]
pub fn forward(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
    let d = weight.len();
    assert_eq!(bias.len(), d, "a bias for each weight");
    let mut statistics = vec![0.0; 2 * rows(x, d)];
    // SAFETY: `x` is whole rows, `statistics` has two elements for each, and each block is written completely.
    let y = unsafe {
        written(x.len(), |y| {
            let blocks = y.par_chunks_mut(ROWS * d).zip(x.par_chunks(ROWS * d));
            blocks.zip(statistics.par_chunks_mut(ROWS * 2)).for_each(|((y, x), statistics)| {
                forward_block(x, weight, bias, epsilon, y, statistics);
            });
        })
    };
    (y, statistics)
}

/// Returns the gradients of [`forward`] from its `x` `[rows, d]`, its `statistics` `[rows, 2]`, its `weight` `[d]` and
/// its output's gradient `dy` `[rows, d]`: that of the input if `wants_x`, those of weight and bias if
/// `wants_parameters`.
///
/// # Panics
/// If the shapes disagree.
#[allow(unsafe_code)]
pub fn backward(
    x: &[f32],
    statistics: &[f32],
    weight: &[f32],
    dy: &[f32],
    wants_x: bool,
    wants_parameters: bool,
) -> Gradients {
    let d = weight.len();
    let rows = rows(x, d);
    assert_eq!(statistics.len(), 2 * rows, "two statistics of each row");
    assert_eq!(dy.len(), x.len(), "one gradient for each element");
    // The gradients of weight and bias from each block of rows.
    let mut partial = vec![0.0; if wants_parameters { rows.div_ceil(ROWS) * 2 * d } else { 0 }];
    // SAFETY: there is nothing to write, or each block is written completely, because all arguments have the same rows.
    let dx = unsafe {
        written(if wants_x { x.len() } else { 0 }, |dx| {
            // An unwanted gradient is empty, and has no blocks.
            let (mut dx, mut partial) = (dx.chunks_mut(ROWS * d), partial.chunks_mut(2 * d));
            let blocks: Vec<_> = x.chunks(ROWS * d).map(|x| (x, dx.next(), partial.next())).collect();
            let blocks = blocks.into_par_iter().zip(dy.par_chunks(ROWS * d)).zip(statistics.par_chunks(ROWS * 2));
            blocks.for_each(|(((x, dx, partial), dy), statistics)| {
                backward_block(x, statistics, weight, dy, dx, partial);
            });
        })
    };
    let parameters = wants_parameters.then(|| {
        let mut weight = in_order(&partial, 2 * d);
        let bias = weight.split_off(d);
        (weight, bias)
    });
    let (weight, bias) = parameters.unzip();
    Gradients { x: wants_x.then_some(dx), weight, bias }
}

/// Returns the sum over the rows of `x` `[rows, columns]`: `[columns]`.
///
/// # Panics
/// If `x` is not whole rows.
pub fn column_sums(x: &[f32], columns: usize) -> Vec<f32> {
    let mut partial = vec![0.0; rows(x, columns).div_ceil(ROWS) * columns];
    let blocks = partial.par_chunks_mut(columns).zip(x.par_chunks(ROWS * columns));
    blocks.for_each(|(sums, x)| add_rows(x, sums));
    in_order(&partial, columns)
}

/// Number of rows of `d` elements in `x`.
///
/// # Panics
/// If `x` is not whole rows.
pub(crate) fn rows(x: &[f32], d: usize) -> usize {
    assert!(d > 0 && x.len().is_multiple_of(d), "{} elements are not rows of {d}", x.len());
    x.len() / d
}

/// Sum of the blocks' sums `[blocks, n]`, in order.
fn in_order(partial: &[f32], n: usize) -> Vec<f32> {
    let mut sums = vec![0.0; n];
    add_rows(partial, &mut sums);
    sums
}

simd_fn! {
    /// Adds each row of `x` `[rows, columns]` to `sums` `[columns]`.
    fn add_rows<S>(x: &[f32], sums: &mut [f32]) {
        for row in x.chunks_exact(sums.len()) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += x;
            }
        }
    }
}

simd_fn! {
    fn forward_block<S>(
        x: &[f32],
        weight: &[f32],
        bias: &[f32],
        epsilon: f32,
        y: &mut [Uninit],
        statistics: &mut [f32],
    ) {
        let d = weight.len();
        let scale = 1.0 / d as f32;
        for ((x, y), statistics) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(statistics.chunks_exact_mut(2)) {
            // Two passes over a row in the L1 cache: subtracting the squared mean from the mean of squares would cancel
            // digits.
            let mean = scale * sum_by(x.len(), |i| x[i]);
            let variance = scale * sum_by(x.len(), |i| (x[i] - mean) * (x[i] - mean));
            let deviation = 1.0 / (variance + epsilon).sqrt();
            for (((y, x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                y.write(S::fma((x - mean) * deviation, *weight, *bias));
            }
            statistics.copy_from_slice(&[mean, deviation]);
        }
    }
}

simd_fn! {
    /// Writes the input's gradient and adds to the parameters' (weight, then bias), if wanted.
    fn backward_block<S>(
        x: &[f32],
        statistics: &[f32],
        weight: &[f32],
        dy: &[f32],
        dx: Option<&mut [Uninit]>,
        parameters: Option<&mut [f32]>,
    ) {
        let d = weight.len();
        let mut dx = dx.map(|dx| dx.chunks_exact_mut(d));
        let mut parameters = parameters.map(|sums| sums.split_at_mut(d));
        for ((x, dy), statistics) in x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(statistics.chunks_exact(2)) {
            let (mean, deviation) = (statistics[0], statistics[1]);
            if let Some(dx) = dx.as_mut().and_then(Iterator::next) {
                input_gradient::<S>(x, mean, deviation, weight, dy, dx);
            }
            if let Some((dweight, dbias)) = &mut parameters {
                for (((dweight, dbias), x), dy) in dweight.iter_mut().zip(dbias.iter_mut()).zip(x).zip(dy) {
                    *dweight = S::fma(*dy, (x - mean) * deviation, *dweight);
                    *dbias += dy;
                }
            }
        }
    }
}

/// Computes the gradient of one row. With x̂ = (x - mean) · deviation and g = dy · weight, it is `deviation · (g -
/// mean(g) - x̂ · mean(g · x̂))`, because mean and deviation depend on every x of the row.
#[inline(always)]
fn input_gradient<S: Isa>(x: &[f32], mean: f32, deviation: f32, weight: &[f32], dy: &[f32], dx: &mut [Uninit]) {
    let (dy, weight) = (&dy[..x.len()], &weight[..x.len()]);
    let scale = 1.0 / x.len() as f32;
    let shift = scale * sum_by(x.len(), |i| dy[i] * weight[i]);
    let slope = scale * sum_by(x.len(), |i| dy[i] * weight[i] * ((x[i] - mean) * deviation));
    for (((dx, x), dy), weight) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
        let normal = (x - mean) * deviation;
        dx.write(deviation * S::fma(-normal, slope, S::fma(*dy, *weight, -shift)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
    use proptest::prelude::*;

    const EPSILON: f32 = 1e-5;

    /// The definition, in f64.
    fn exact(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let d = weight.len();
        let row = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / d as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
            let normal = |x: f64| (x - mean) / (variance + f64::from(EPSILON)).sqrt();
            x.iter().zip(weight).zip(bias).map(|((x, w), b)| normal(*x) * w + b).collect::<Vec<_>>()
        };
        x.chunks_exact(d).flat_map(row).collect()
    }

    /// `Σ dy · y`, whose gradients [`backward`] returns.
    fn loss(x: &[f64], weight: &[f64], bias: &[f64], dy: &[f64]) -> f64 {
        exact(x, weight, bias).iter().zip(dy).map(|(y, dy)| y * dy).sum()
    }

    fn sample(rows: usize, d: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>, Vec<f32>) {
        (random(rows * d, 1), random(d, 2), random(d, 3), random(rows * d, 4))
    }

    #[test]
    fn gradients_are_those_of_the_definition() {
        let (x, weight, bias, dy) = sample(5, 37);
        let (_, statistics) = forward(&x, &weight, &bias, EPSILON);
        let gradients = backward(&x, &statistics, &weight, &dy, true, true);
        let (x, weight, bias, dy) = (wide(&x), wide(&weight), wide(&bias), wide(&dy));
        let by_x = numeric_gradient(&x, |x| loss(x, &weight, &bias, &dy));
        let by_weight = numeric_gradient(&weight, |weight| loss(&x, weight, &bias, &dy));
        let by_bias = numeric_gradient(&bias, |bias| loss(&x, &weight, bias, &dy));
        assert_close(&gradients.x.expect("wanted"), &by_x, 1e-5);
        assert_close(&gradients.weight.expect("wanted"), &by_weight, 1e-5);
        assert_close(&gradients.bias.expect("wanted"), &by_bias, 1e-5);
    }

    #[test]
    fn a_large_mean_does_not_swallow_the_variance() {
        let x: Vec<f32> = random(700, 5).iter().map(|x| 1000.0 + x).collect();
        let (y, _) = forward(&x, &[1.0; 350], &[0.0; 350], EPSILON);
        assert_close(&y, &exact(&wide(&x), &[1.0; 350], &[0.0; 350]), 1e-3);
    }

    #[test]
    fn only_what_is_wanted_is_given() {
        let (x, weight, bias, dy) = sample(130, 9);
        let (_, statistics) = forward(&x, &weight, &bias, EPSILON);
        let all = backward(&x, &statistics, &weight, &dy, true, true);
        let input = backward(&x, &statistics, &weight, &dy, true, false);
        let parameters = backward(&x, &statistics, &weight, &dy, false, true);
        assert_eq!(input, Gradients { x: all.x.clone(), weight: None, bias: None });
        assert_eq!(parameters, Gradients { x: None, ..all });
        let nothing = Gradients { x: None, weight: None, bias: None };
        assert_eq!(backward(&x, &statistics, &weight, &dy, false, false), nothing);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let (x, weight, bias, dy) = sample(1000, 50);
        let (one, three) = on_threads(|| {
            let (y, statistics) = forward(&x, &weight, &bias, EPSILON);
            (backward(&x, &statistics, &weight, &dy, true, true), column_sums(&x, 50), y, statistics)
        });
        assert_eq!(one, three);
    }

    #[test]
    #[should_panic(expected = "10 elements are not rows of 4")]
    fn half_a_row_is_refused() {
        column_sums(&[0.0; 10], 4);
    }

    proptest! {
        #[test]
        fn all_shapes_follow_the_definition(rows in 0_usize..150, d in 1_usize..70) {
            let (x, weight, bias, dy) = sample(rows, d);
            let (y, statistics) = forward(&x, &weight, &bias, EPSILON);
            assert_close(&y, &exact(&wide(&x), &wide(&weight), &wide(&bias)), 2e-4);
            let gradients = backward(&x, &statistics, &weight, &dy, true, true);
            let column = |x: &[f64], j: usize| x.iter().skip(j).step_by(d).sum::<f64>();
            let normal = exact(&wide(&x), &vec![1.0; d], &vec![0.0; d]);
            let products: Vec<f64> = normal.iter().zip(&dy).map(|(x, dy)| x * f64::from(*dy)).collect();
            let by_weight: Vec<f64> = (0..d).map(|j| column(&products, j)).collect();
            let by_bias: Vec<f64> = (0..d).map(|j| column(&wide(&dy), j)).collect();
            assert_close(&gradients.weight.expect("wanted"), &by_weight, 1e-3);
            assert_close(&gradients.bias.expect("wanted"), &by_bias, 1e-5);
            assert_close(&column_sums(&dy, d), &by_bias, 1e-5);
            // A shift of a row leaves its norm unchanged, so the gradient along it is zero.
            for dx in gradients.x.expect("wanted").chunks_exact(d) {
                let size: f32 = dx.iter().map(|dx| dx.abs()).sum();
                prop_assert!(dx.iter().sum::<f32>().abs() <= 1e-4 * (1.0 + size));
            }
        }
    }
}
