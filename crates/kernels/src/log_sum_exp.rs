//! The largest element and the logarithm of a sum of exponentials, for probabilities of a whole vocabulary.

use crate::simd::{exp, max_of, simd_fn, sum_by};

/// Returns `ln Σ exp(x)`, with a relative error of the sum of 2e-7; -∞ for an empty slice or one of -∞ alone, NaN if an
/// element is NaN.
pub fn log_sum_exp(x: &[f32]) -> f32 {
    let most = largest(x);
    if most == f32::NEG_INFINITY {
        return if x.iter().any(|x| x.is_nan()) { f32::NAN } else { most };
    }
    most + sum_of_exponentials(x, most).ln()
}

/// Returns the position of the largest element, the first of equals; 0 if there is no number.
pub fn argmax(x: &[f32]) -> usize {
    let most = largest(x);
    x.iter().position(|x| *x == most).unwrap_or_default()
}

simd_fn! {
    fn largest<S>(x: &[f32]) -> f32 {
        max_of(x)
    }
}

simd_fn! {
    fn sum_of_exponentials<S>(x: &[f32], most: f32) -> f32 {
        sum_by(x.len(), |i| exp::<S>(x[i] - most))
    }
}

#[cfg(test)]
mod tests {
    use super::{argmax, log_sum_exp};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_logarithm_of_the_sum(x in prop::collection::vec(-90.0_f32..90.0, 1..200)) {
            let exact = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            prop_assert!((f64::from(log_sum_exp(&x)) - exact).abs() < 1e-6 * exact.abs().max(1.0), "{exact}");
        }
    }

    #[test]
    fn the_largest_is_found_first() {
        let mut x = vec![1.0; 100];
        (x[70], x[90]) = (2.0, 2.0);
        assert_eq!((argmax(&x), argmax(&[]), argmax(&[f32::NEG_INFINITY, 0.0])), (70, 0, 1));
    }

    #[test]
    fn what_is_suppressed_adds_nothing() {
        let none = f32::NEG_INFINITY;
        assert_eq!(log_sum_exp(&[none, 2.0, none]), 2.0);
        assert_eq!((log_sum_exp(&[none; 3]), log_sum_exp(&[])), (none, none));
        assert!(log_sum_exp(&[1.0, f32::NAN]).is_nan() && log_sum_exp(&[f32::NAN; 40]).is_nan());
    }
}
