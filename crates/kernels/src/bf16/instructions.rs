//! Instruction sets that packing and multiplying are written for.

/// Instruction set of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// AVX-512 with `vdpbf16ps`: Zen 4 and later. Of Intel's processors, Cooper Lake and Sapphire Rapids and later have it, and take twice
    /// as long for it as for FMAs.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// AVX-512: factors are rounded to bfloat16 and multiplied as `f32`.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA: factors are rounded to bfloat16 and multiplied as `f32`.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Instructions {
    /// Those of this processor, best first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let found = {
            use crate::simd::{Level, level};
            let wide = level() == Level::Avx512;
            let mut wide = [(wide && has_avx512_bf16()).then_some(Self::Avx512Bf16), wide.then_some(Self::Avx512)];
            // By the maker, and not by measuring: a seed gives the same bits every time.
            if is_of_intel() {
                wide.reverse();
            }
            let [first, second] = wide;
            [first, second, (level() != Level::Baseline).then_some(Self::Avx2)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let found: [Option<Self>; 0] = [];
        found.into_iter().flatten()
    }
}

/// Whether this processor has the instructions of AVX512-BF16.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx512_bf16() -> bool {
    // The standard library caches the result.
    is_x86_feature_detected!("avx512bf16")
}

/// Whether this processor is one of Intel's.
#[cfg(target_arch = "x86_64")]
fn is_of_intel() -> bool {
    let std::arch::x86_64::CpuidResult { ebx, ecx, edx, .. } = std::arch::x86_64::__cpuid(0);
    [ebx, edx, ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}
