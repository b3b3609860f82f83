//! Element-wise functions: GELU and dropout.

use half::bf16;
use rayon::prelude::*;

use crate::bf16::round;
use crate::matrix::{Precision, precision};
use crate::numbers::Numbers;
use crate::random::kept;
use crate::simd::{Isa, exp, simd_fn};
use crate::vector::{Uninit, written};

/// Number of elements per piece of work: two or three slices of them fit the L2 cache.
const CHUNK: usize = 1 << 14;

/// Number of elements in half precision that are widened at a time: they stay in the L1 cache.
const WIDENED: usize = 1 << 10;

/// Returns the exact GELU `x · Φ(x)` of every element, with Φ from the error function (not the tanh approximation), as
/// in Whisper.
///
/// The relative error is at most 4e-7 (5e-6 far below zero on processors without fused multiply-add). But the result is
/// 0 below -13.2, where Φ leaves f32's normal numbers, and at -∞.
#[allow(unsafe_code)]
pub fn gelu(x: &[f32]) -> Vec<f32> {
    // SAFETY: each chunk is written completely.
    unsafe {
        written(x.len(), |y| {
            y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(y, x)| gelu_chunk(x, y));
        })
    }
}

/// As [`gelu`], and returns `x` as products round it, if they do now, for [`gelu_backward`].
pub fn gelu_kept(x: &[f32]) -> (Vec<f32>, Option<Vec<bf16>>) {
    if precision() == Precision::Highest {
        return (gelu(x), None);
    }
    let mut y = Vec::new();
    // Both in one pass, while a chunk lies in the cache.
    // SAFETY: each chunk is written completely.
    #[allow(unsafe_code)]
    let kept = unsafe {
        written(x.len(), |kept| {
            y = written(x.len(), |y| {
                let chunks = y.par_chunks_mut(CHUNK).zip(kept.par_chunks_mut(CHUNK)).zip(x.par_chunks(CHUNK));
                chunks.for_each(|((y, kept), x)| {
                    gelu_chunk(x, y);
                    round(x, kept);
                });
            });
        })
    };
    (y, Some(kept))
}

/// Turns the gradient of [`gelu`]'s output into that of `x`, times `Φ(x) + x φ(x)`, in place: a separate output would
/// move half as much memory again.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_backward(x: Numbers, gradient: &mut [f32]) {
    assert_eq!(x.len(), gradient.len(), "one gradient for each element");
    gradient.par_chunks_mut(CHUNK).enumerate().for_each(|(i, gradient)| {
        for (j, gradient) in gradient.chunks_mut(WIDENED).enumerate() {
            let first = i * CHUNK + j * WIDENED;
            match x.slice(first..first + gradient.len()) {
                Numbers::F32(x) => gelu_backward_chunk(x, gradient),
                half => {
                    let mut x = [0.0; WIDENED];
                    let x = &mut x[..gradient.len()];
                    half.widen(x);
                    gelu_backward_chunk(x, gradient);
                }
            }
        }
    });
}

/// Zeroes each element with probability `p` and scales the rest by `1 / (1 - p)`.
///
/// The seed and the positions alone determine which elements. So nothing is stored for the backward pass: the gradient
/// is this function of the output's gradient, with the same `p` and `seed`.
///
/// # Panics
/// If `p` is not in `[0, 1)`.
#[allow(unsafe_code)]
pub fn dropout(x: &[f32], p: f32, seed: u64) -> Vec<f32> {
    check_probability(p);
    // SAFETY: each chunk is written completely.
    unsafe {
        written(x.len(), |y| {
            let chunks = y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).enumerate();
            chunks.for_each(|(i, (y, x))| dropout_chunk(x, p, seed, first(i), y));
        })
    }
}

/// Returns `residual` plus [`dropout`] of `x`. The gradient of `residual` is the output's, and that of `x` is `dropout`
/// of it.
///
/// # Panics
/// If the lengths differ, or `p` is not in `[0, 1)`.
#[allow(unsafe_code)]
pub fn residual_dropout(residual: &[f32], x: &[f32], p: f32, seed: u64) -> Vec<f32> {
    assert_eq!(residual.len(), x.len(), "one element for each of the residual's");
    check_probability(p);
    // SAFETY: each chunk is written completely, because `residual` is as long as `x`.
    unsafe {
        written(x.len(), |y| {
            let chunks = y.par_chunks_mut(CHUNK).zip(residual.par_chunks(CHUNK)).zip(x.par_chunks(CHUNK)).enumerate();
            chunks.for_each(|(i, ((y, residual), x))| residual_dropout_chunk(residual, x, p, seed, first(i), y));
        })
    }
}

fn check_probability(p: f32) {
    assert!((0.0..1.0).contains(&p), "a probability to drop of {p} is not in [0, 1)");
}

/// Index of a chunk's first element.
fn first(chunk: usize) -> u64 {
    (chunk * CHUNK) as u64
}

simd_fn! {
    fn gelu_chunk<S>(x: &[f32], y: &mut [Uninit]) {
        for (y, x) in y.iter_mut().zip(x) {
            let a = clamped_magnitude(*x);
            let positive = if *x < 0.0 { 0.0 } else { *x };
            // x Φ(x) is x - x Φ(-x) above zero and -|x| Φ(-|x|) below: neither subtracts nearly equal numbers.
            y.write(S::fma(-a, tail::<S>(a).0, positive));
        }
    }
}

simd_fn! {
    fn gelu_backward_chunk<S>(x: &[f32], gradient: &mut [f32]) {
        const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
        for (gradient, x) in gradient.iter_mut().zip(x) {
            let a = clamped_magnitude(*x);
            let (tail, e) = tail::<S>(a);
            // The slope at -a; the slope at a is one minus it.
            let slope = S::fma(-a * FRAC_1_SQRT_2PI, e, tail);
            *gradient *= if *x < 0.0 { slope } else { 1.0 - slope };
        }
    }
}

/// Returns `|x|`, but at most 14: Φ(-14) is 0 in f32, and its product with an infinity would be NaN.
#[inline(always)]
fn clamped_magnitude(x: f32) -> f32 {
    // Not `f32::min`, which would drop a NaN.
    if x.abs() > 14.0 { 14.0 } else { x.abs() }
}

/// Returns Φ(-a), the normal distribution's tail, and `exp(-a²/2)`, for `a` in `[0, 14]`.
///
/// Their quotient, Mills' ratio up to a constant, is smooth: with `t = 1 / (1 + 0.342 a)` the polynomial `t · (c₀ + c₁
/// t + … + c₈ t⁸)`, fitted for the minimum relative error over `[0, 13.25]` (Remez; 2.1e-8, and 3.7e-8 with rounded
/// coefficients). Abramowitz and Stegun's five terms (7.1.26) have an absolute error of 1.5e-7.
#[inline(always)]
fn tail<S: Isa>(a: f32) -> (f32, f32) {
    const QUOTIENT: [f32; 9] = [
        0.136_418_54, 0.136_903_21, 0.115_803_525, 0.114_843_35, -0.044_152_442, 0.199_808_08, -0.275_780_8,
        0.143_540_89, -0.027_384_337,
    ];
    let square = a * a;
    // Half of a²'s rounding error would be a relative error of the exponential, up to 4e-6. It remains if multiply-adds
    // are not fused, because then this difference is zero.
    let rounding = S::fma(a, a, -square);
    let e = exp::<S>(-0.5 * square);
    let e = S::fma(-0.5 * rounding, e, e);
    let t = 1.0 / S::fma(0.342, a, 1.0);
    let [low @ .., high] = QUOTIENT;
    let quotient = t * low.iter().rev().fold(high, |sum, c| S::fma(sum, t, *c));
    (e * quotient, e)
}

simd_fn! {
    fn dropout_chunk<S>(x: &[f32], p: f32, seed: u64, first: u64, y: &mut [Uninit]) {
        for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
            y.write(x * kept(seed, first + i as u64, p));
        }
    }
}

simd_fn! {
    fn residual_dropout_chunk<S>(residual: &[f32], x: &[f32], p: f32, seed: u64, first: u64, y: &mut [Uninit]) {
        for (i, ((y, residual), x)) in y.iter_mut().zip(residual).zip(x).enumerate() {
            y.write(residual + x * kept(seed, first + i as u64, p));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};

    use super::*;
    use crate::simd::Baseline;
    use crate::testing::{on_threads, random};
    use proptest::prelude::*;

    fn d_gelu(x: &[f32], dy: &[f32]) -> Vec<f32> {
        let mut gradient = dy.to_vec();
        gelu_backward(Numbers::F32(x), &mut gradient);
        gradient
    }

    /// Φ.
    fn normal(x: f64) -> f64 {
        0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
    }

    /// The derivative of `x Φ(x)`.
    fn slope(x: f64) -> f64 {
        normal(x) + x * (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
    }

    /// An odd number of values from -15 to 15, near and far from zero.
    fn grid() -> Vec<f32> {
        let dense = (-150_000..=150_000).map(|i| i as f32 * 1e-4);
        dense.chain((-300..300).flat_map(|i| [1.1_f32.powi(i), -1.1_f32.powi(i)])).filter(|x| x.abs() < 15.0).collect()
    }

    #[test]
    fn gelu_is_the_erf_form() {
        let x = grid();
        for (x, y) in x.iter().zip(gelu(&x)) {
            let wide = f64::from(*x);
            let exact = wide * normal(wide);
            let error = (f64::from(y) - exact).abs();
            assert!(error <= 1.2e-7 * wide.abs().max(1.0), "gelu({x}) = {y}, not {exact}");
        }
    }

    #[test]
    fn the_tail_is_relatively_exact() {
        let most = |tail: fn(f32) -> f32| {
            let error = |a: f32| (f64::from(tail(a)) / normal(-f64::from(a)) - 1.0).abs();
            (0..130_000).map(|i| error(i as f32 * 1e-4)).fold(0.0, f64::max)
        };
        assert!(most(|a| tail::<Baseline>(a).0) < 6e-6);
        #[cfg(target_arch = "x86_64")]
        assert!(most(|a| tail::<crate::simd::Fused>(a).0) < 4e-7);
    }

    #[test]
    fn the_gradient_is_that_of_the_erf_form() {
        let x = grid();
        let dy = random(x.len(), 1);
        for ((x, dy), dx) in x.iter().zip(&dy).zip(d_gelu(&x, &dy)) {
            let exact = f64::from(*dy) * slope(f64::from(*x));
            assert!((f64::from(dx) - exact).abs() <= 2.5e-7 * f64::from(dy.abs()), "at {x}: {dx}, not {exact}");
        }
    }

    #[test]
    fn extremes_have_their_limits() {
        let x = [0.0, -0.0, 1e-30, -1e-30, 100.0, -100.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY];
        let y = gelu(&x);
        assert_eq!(y, [0.0, 0.0, 0.5e-30, -0.5e-30, 100.0, 0.0, f32::MAX, 0.0, f32::INFINITY, 0.0]);
        assert!(y[1].is_sign_negative());
        assert_eq!(d_gelu(&x, &[2.0; 10]), [1.0, 1.0, 1.0, 1.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
        assert!(gelu(&[f32::NAN])[0].is_nan() && d_gelu(&[f32::NAN], &[1.0])[0].is_nan());
    }

    #[test]
    fn dropout_zeroes_with_its_probability_and_keeps_the_mean() {
        let n = 1_000_003;
        for p in [0.0, 0.05, 0.3, 0.9] {
            let y = dropout(&vec![1.0; n], p, 7);
            let zeros = y.iter().filter(|y| **y == 0.0).count() as f64 / n as f64;
            // Six standard deviations.
            assert!((zeros - f64::from(p)).abs() <= 6.0 * (0.25 / n as f64).sqrt(), "{zeros} dropped, not {p}");
            assert!(y.iter().all(|y| *y == 0.0 || *y == 1.0 / (1.0 - p)));
        }
    }

    #[test]
    fn the_mask_goes_on_from_chunk_to_chunk() {
        let n = 2 * CHUNK + 5;
        let expected: Vec<f32> = (0..n as u64).map(|i| kept(9, i, 0.5)).collect();
        assert_eq!(dropout(&vec![1.0; n], 0.5, 9), expected);
    }

    #[test]
    fn all_is_the_same_on_any_number_of_threads() {
        let (x, dy) = (random(5 * CHUNK + 3, 1), random(5 * CHUNK + 3, 2));
        let (one, three) = on_threads(|| (gelu(&x), d_gelu(&x, &dy), residual_dropout(&dy, &x, 0.1, 3)));
        assert_eq!(one, three);
    }

    #[test]
    #[should_panic(expected = "not in [0, 1)")]
    fn dropping_everything_is_refused() {
        dropout(&[1.0], 1.0, 0);
    }

    proptest! {
        #[test]
        fn an_element_depends_on_itself_alone(x in prop::collection::vec(-20.0_f32..20.0, 0..100)) {
            let dy = random(x.len(), 3);
            let gradient = d_gelu(&x, &dy);
            for (i, y) in gelu(&x).into_iter().enumerate() {
                // The vector loop and the scalar remainder use the same arithmetic.
                prop_assert_eq!(y, gelu(&x[i..=i])[0]);
                prop_assert_eq!(gradient[i], d_gelu(&x[i..=i], &dy[i..=i])[0]);
            }
        }

        #[test]
        fn the_residual_is_added_to_the_dropout(
            x in prop::collection::vec(-2.0_f32..2.0, 0..100),
            p in 0.0_f32..0.99,
            seed: u64,
        ) {
            let residual = random(x.len(), 4);
            let expected: Vec<f32> = dropout(&x, p, seed).iter().zip(&residual).map(|(y, r)| r + y).collect();
            prop_assert_eq!(residual_dropout(&residual, &x, p, seed), expected);
            prop_assert_eq!(dropout(&x, 0.0, seed), x);
        }
    }
}
