//! Helpers of this crate's tests.

pub use undertone_testing::random;

/// Asserts that `actual` equals `expected` within `tolerance`, absolutely and relatively.
pub fn assert_close(actual: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "lengths");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*a) - e).abs();
        assert!(error <= tolerance * (1.0 + e.abs()), "at {i}: {a} is not {e} within {tolerance}");
    }
}

/// Derivative of `f` at every element of `x`, by central differences in f64.
pub fn numeric_gradient(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let (h, old) = (1e-5, x[i]);
            x[i] = old + h;
            let above = f(&x);
            x[i] = old - h;
            let below = f(&x);
            x[i] = old;
            (above - below) / (2.0 * h)
        })
        .collect()
}

/// Returns a class for each row; `None` for every third one, which is ignored.
pub fn targets(rows: usize, classes: usize) -> Vec<Option<usize>> {
    (0..rows).map(|i| (i % 3 != 1).then_some(i * 7 % classes)).collect()
}

/// Converts to f64.
pub fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Results of `f` on one thread and on three.
pub fn on_threads<T: Send>(f: impl Fn() -> T + Sync) -> (T, T) {
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("a pool");
    (pool(1).install(&f), pool(3).install(&f))
}
