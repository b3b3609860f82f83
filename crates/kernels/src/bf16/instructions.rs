//! Instruction sets that packing and multiplying are written for.

/// Instruction set of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// AVX-512 with `vdpbf16ps`: Zen 4, Cooper Lake and Sapphire Rapids, and later.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
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
            let wide = level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
            [wide.then_some(Self::Avx512Bf16), (level() != Level::Baseline).then_some(Self::Avx2)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let found: [Option<Self>; 0] = [];
        found.into_iter().flatten()
    }
}
