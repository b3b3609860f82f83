//! Registers of AVX2 and AVX-512 behind one name, for kernels that are written once for both.
#![allow(unsafe_code)]

use half::{bf16, f16};
use std::arch::x86_64::*;

/// Register of f32 numbers. Its functions need the features of its instruction set.
pub(crate) trait Register: Copy {
    const LANES: usize;
    unsafe fn zero() -> Self;
    /// A number in every lane.
    unsafe fn splat(x: f32) -> Self;
    /// Reads [`LANES`](Self::LANES) numbers at any address.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes all lanes to any address.
    unsafe fn store(self, to: *mut f32);
    /// As [`load`](Self::load), of wider numbers than there are in memory.
    unsafe fn load_bf16(from: *const bf16) -> Self;
    /// As [`load_bf16`](Self::load_bf16).
    unsafe fn load_f16(from: *const f16) -> Self;
    /// Returns `a · b + c`.
    unsafe fn fma(a: Self, b: Self, c: Self) -> Self;
    /// Sums of its quarters or halves.
    unsafe fn fold(self) -> __m128;
}

/// Functions of a [`Register`], written without what is the same for all of them.
macro_rules! instructions {
    ($(fn $name:ident($($argument:tt)*) $(-> $returned:ty)? { $($body:tt)* })*) => {
        $(
            #[inline(always)]
            unsafe fn $name($($argument)*) $(-> $returned)? {
                // SAFETY: the caller guarantees the features, and that the numbers may be read or written.
                unsafe { $($body)* }
            }
        )*
    };
}

impl Register for __m512 {
    const LANES: usize = 16;
    instructions! {
        fn zero() -> Self { _mm512_setzero_ps() }
        fn splat(x: f32) -> Self { _mm512_set1_ps(x) }
        fn load(from: *const f32) -> Self { _mm512_loadu_ps(from) }
        fn store(self, to: *mut f32) { _mm512_storeu_ps(to, self) }
        fn load_bf16(from: *const bf16) -> Self {
            // The bits of bf16 are the upper ones of f32.
            let numbers = _mm256_loadu_si256(from.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
        }
        fn load_f16(from: *const f16) -> Self { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        fn fma(a: Self, b: Self, c: Self) -> Self { _mm512_fmadd_ps(a, b, c) }
        fn fold(self) -> __m128 {
            _mm256_add_ps(_mm512_castps512_ps256(self), _mm512_extractf32x8_ps::<1>(self)).fold()
        }
    }
}

impl Register for __m256 {
    const LANES: usize = 8;
    instructions! {
        fn zero() -> Self { _mm256_setzero_ps() }
        fn splat(x: f32) -> Self { _mm256_set1_ps(x) }
        fn load(from: *const f32) -> Self { _mm256_loadu_ps(from) }
        fn store(self, to: *mut f32) { _mm256_storeu_ps(to, self) }
        fn load_bf16(from: *const bf16) -> Self {
            let numbers = _mm_loadu_si128(from.cast());
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers)))
        }
        fn load_f16(from: *const f16) -> Self { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
        fn fma(a: Self, b: Self, c: Self) -> Self { _mm256_fmadd_ps(a, b, c) }
        fn fold(self) -> __m128 { _mm_add_ps(_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self)) }
    }
}

/// Number of a weight.
pub(crate) trait Number: Copy {
    /// Reads as many numbers as `V` has lanes. It needs the features of `V`.
    unsafe fn load<V: Register>(from: *const Self) -> V;
    fn wide(self) -> f32;
}

/// Implements [`Number`] with the function of a register that loads it, and the one that makes an f32 of it.
macro_rules! number {
    ($number:ty, $load:ident, $wide:path) => {
        impl Number for $number {
            #[inline(always)]
            unsafe fn load<V: Register>(from: *const Self) -> V {
                // SAFETY: the caller guarantees the features, and that the numbers may be read.
                unsafe { V::$load(from) }
            }
            #[inline(always)]
            fn wide(self) -> f32 {
                $wide(self)
            }
        }
    };
}

number!(f32, load, std::convert::identity);
number!(bf16, load_bf16, bf16::to_f32);
number!(f16, load_f16, f16::to_f32);
