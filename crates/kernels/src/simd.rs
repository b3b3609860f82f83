//! Run-time selection of the instruction set, and arithmetic that all kernels share.

/// Target of a compiled body: it decides whether a multiply-add is one instruction.
pub(crate) trait Isa {
    /// Returns `a · b + c`, rounded once if the instruction set supports it.
    fn fma(a: f32, b: f32, c: f32) -> f32;
}

/// The target's baseline, where a fused multiply-add may be a call into the C library.
pub(crate) struct Baseline;

/// AVX2 or AVX-512 with FMA.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Fused;

impl Isa for Baseline {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

#[cfg(target_arch = "x86_64")]
impl Isa for Fused {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Instruction sets that a kernel is compiled for, best first.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// x86-64-v4.
    Avx512,
    /// x86-64-v3.
    Avx2,
    /// The target's baseline.
    Baseline,
}

/// Returns the best level of this machine.
#[cfg(target_arch = "x86_64")]
pub(crate) fn level() -> Level {
    // The standard library caches the result.
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("fma")
    {
        Level::Avx512
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
        Level::Avx2
    } else {
        Level::Baseline
    }
}

/// Defines a function whose body is compiled for each [`Level`] and selected at run time. In the body, the first type
/// parameter stands for the [`Isa`]. Every function that it calls must be `#[inline(always)]` to be compiled for that
/// level.
macro_rules! simd_fn {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$isa:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$isa: $crate::simd::Isa>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    body::<$crate::simd::Fused>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    body::<$crate::simd::Fused>($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: `level` has just found these features on this processor.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            #[allow(unreachable_code)]
            body::<$crate::simd::Baseline>($($arg),*)
        }
    };
}
pub(crate) use simd_fn;

/// Independent sums of a reduction: two registers of AVX-512, so that additions overlap.
pub(crate) const LANES: usize = 32;

/// Returns `Σ f(i)` over `0..n` in a fixed order: [`LANES`] running sums, then their sum by halves.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn sum_by(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `i` is below `whole`, and both are multiples of `LANES`.
            unsafe { std::hint::assert_unchecked(i + lane < n) };
            *sum += f(i + lane);
        }
        i += LANES;
    }
    for (lane, i) in (whole..n).enumerate() {
        sums[lane] += f(i);
    }
    halve(sums, |a, b| a + b)
}

/// Returns the maximum of `x`, ignoring NaN; -∞ without numbers.
#[inline(always)]
pub(crate) fn max_of(x: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (m, x) in most.iter_mut().zip(chunk) {
            *m = larger(*m, *x);
        }
    }
    for (m, x) in most.iter_mut().zip(rest) {
        *m = larger(*m, *x);
    }
    // The loop above ends here for LLVM: it otherwise keeps lanes in pairs throughout, as the last halves need them.
    halve(std::hint::black_box(most), larger)
}

/// Returns the larger one; `a` if `b` is NaN. It takes values: where a place is only written if it grows, LLVM stores whole
/// registers under masks, of which AVX2 on Zen takes 20 cycles each.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
pub(crate) fn halve(mut lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Returns `exp(x)` for `x ≤ 88`, with a relative error of 1.2e-7. It is 0 below -87.3, where f32's normal numbers end,
/// so that masked scores of -∞ have weight 0; NaN stays NaN.
///
/// `x = n ln 2 + r` with `|r| ≤ ln 2 / 2`: Taylor's polynomial of degree 7 for `exp(r)`, `n` into the exponent's bits.
#[inline(always)]
pub(crate) fn exp<S: Isa>(x: f32) -> f32 {
    // Adding 1.5 · 2²³ rounds to the nearest integer in any vector instruction set and leaves it in the low bits, from
    // where it is shifted into the exponent. `as i32` would saturate, which LLVM does one lane at a time.
    const ROUND: f32 = 12_582_912.0;
    // Both comparisons are false for NaN, which so reaches the polynomial; `x > -87.3` would turn it into a weight of
    // 0.
    let clamped = if x < -87.3 { -87.3 } else { x };
    let rounded = S::fma(clamped, std::f32::consts::LOG2_E, ROUND);
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    let n = rounded - ROUND;
    // ln 2 in two parts, the first with trailing zeros, keeps r exact.
    let r = S::fma(n, 2.121_944_4e-4, S::fma(n, -0.693_359_4, clamped));
    let mut p = S::fma(r, 1.381_446_7e-3, 8.368_781e-3);
    p = S::fma(r, p, 4.166_839_3e-2);
    p = S::fma(r, p, 0.166_665_2);
    p = S::fma(r, p, 0.499_999_94);
    p = S::fma(r, p, 1.0);
    p = S::fma(r, p, 1.0);
    if x < -87.3 { 0.0 } else { p * power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    simd_fn! {
        fn exp_all<S>(x: &[f32], out: &mut [f32]) {
            for (y, x) in out.iter_mut().zip(x) {
                *y = exp::<S>(*x);
            }
        }
    }

    simd_fn! {
        fn sum<S>(x: &[f32]) -> f32 {
            sum_by(x.len(), |i| S::fma(x[i], 1.0, 0.0))
        }
    }

    simd_fn! {
        fn max<S>(x: &[f32]) -> f32 {
            max_of(x)
        }
    }

    proptest! {
        #[test]
        fn exp_is_exact_to_f32(x in proptest::collection::vec(-87.0_f32..88.0, 1..80)) {
            let mut fast = vec![0.0; x.len()];
            exp_all(&x, &mut fast);
            for (x, y) in x.iter().zip(fast) {
                let exact = f64::from(*x).exp();
                prop_assert!(((f64::from(y) - exact) / exact).abs() < 2e-7, "exp({x}) = {y}, not {exact}");
            }
        }

        #[test]
        fn sums_and_maxima_take_every_element(x in proptest::collection::vec(-1.0_f32..1.0, 0..200)) {
            let exact: f64 = x.iter().map(|x| f64::from(*x)).sum();
            prop_assert!((f64::from(sum(&x)) - exact).abs() < 1e-5);
            prop_assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }

    #[test]
    fn masked_scores_weigh_nothing() {
        let mut y = [1.0; 3];
        exp_all(&[f32::NEG_INFINITY, -1000.0, 0.0], &mut y);
        assert_eq!(y, [0.0, 0.0, 1.0]);
    }

    #[test]
    fn what_is_no_number_has_no_exponential() {
        // Covers the vector loop and the scalar remainder.
        for n in [1, 2 * LANES + 3] {
            let mut y = vec![0.0; n];
            exp_all(&vec![f32::NAN; n], &mut y);
            assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
        }
    }
}
