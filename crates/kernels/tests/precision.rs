//! The choice of precision holds for the whole process, so it is tested in one of its own.

use half::bf16;
use undertone_kernels::linear;
use undertone_kernels::matrix::{Precision, set_precision};
use undertone_kernels::weight::Weight;
use undertone_testing::skipped;

#[test]
fn medium_precision_is_near_the_highest_and_never_it() {
    let (rows, d_in, d_out) = (70, 130, 50);
    let values =
        |n: usize, step: usize| -> Vec<f32> { (0..n).map(|i| (i * step % 1000) as f32 / 500.0 - 1.0).collect() };
    let (x, weight) = (values(rows * d_in, 379), values(d_out * d_in, 617));
    let run = || linear::forward(&x, Weight::F32(&weight), None, d_in, d_out);
    let highest = run();
    if !set_precision(Precision::Medium) {
        return skipped("this processor has no AVX512-BF16");
    }
    let medium = run();
    // Rounded before, it is not rounded again.
    let half: Vec<bf16> = weight.iter().map(|x| bf16::from_f32(*x)).collect();
    assert_eq!(linear::forward(&x, Weight::Bf16(&half), None, d_in, d_out), medium);
    assert!(set_precision(Precision::Highest), "the highest precision can always be had");
    assert_eq!(run(), highest);
    assert_ne!(medium, highest);
    // Each factor is off by up to 2⁻⁹ of itself; 130 products of such errors, at random signs.
    for (m, h) in medium.iter().zip(&highest) {
        assert!((m - h).abs() < 130_f32.sqrt() * 2.0_f32.powi(-7), "{m} is not near {h}");
    }
}
