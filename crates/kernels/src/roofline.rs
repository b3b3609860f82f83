//! Peak performance of this machine, to compare kernels with (Williams et al., 2009).

use crate::simd::simd_fn;
use rayon::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Number of multiply-adds that hide each other's latency: 4 cycles of two units, with some reserve.
const CHAINS: usize = 12;
/// One register of AVX-512.
const WIDTH: usize = 16;
const ROUNDS: usize = 4_000_000;

/// Floating-point operations per second of all of rayon's threads, in f32 multiply-adds that never leave the registers;
/// the best of several runs.
pub fn operations_per_second() -> f64 {
    let each = (2 * CHAINS * WIDTH * ROUNDS) as f64;
    rate(each * rayon::current_num_threads() as f64, || {
        rayon::broadcast(|_| black_box(multiply_add(black_box(0.999_9), black_box(1e-4), ROUNDS)));
    })
}

/// Bytes per second that all of rayon's threads read and write together, over more than any cache holds (STREAM's
/// "scale"; McCalpin, 1995); the best of several runs.
pub fn bytes_per_second() -> f64 {
    let from = vec![1.0_f32; 1 << 26];
    let mut to = vec![0.0_f32; 1 << 26];
    rate((2 * size_of_val(from.as_slice())) as f64, || {
        to.par_chunks_mut(1 << 16).zip(from.par_chunks(1 << 16)).for_each(|(to, from)| scale(to, from, black_box(0.5)));
        black_box(&mut to);
    })
}

fn rate(work: f64, mut f: impl FnMut()) -> f64 {
    let best = (0..7).map(|_| {
        let started = Instant::now();
        f();
        started.elapsed()
    });
    work / best.min().unwrap_or(Duration::MAX).as_secs_f64()
}

simd_fn! {
    fn scale<S>(to: &mut [f32], from: &[f32], factor: f32) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = factor * *from;
        }
    }
}

/// Performs `rounds` multiply-adds on each of [`CHAINS`] registers. Returns their sum, so that none is optimised away.
/// Written in intrinsics, because compilers turn a loop over arrays into loads and stores.
#[allow(unsafe_code)]
fn multiply_add(factor: f32, term: f32, rounds: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::simd::{Level, level};
        use std::arch::x86_64::*;

        #[target_feature(enable = "avx512f")]
        fn avx512(factor: f32, term: f32, rounds: usize) -> f32 {
            let (factor, term) = (_mm512_set1_ps(factor), _mm512_set1_ps(term));
            let mut chains = [term; CHAINS];
            for _ in 0..rounds {
                for chain in &mut chains {
                    *chain = _mm512_fmadd_ps(*chain, factor, term);
                }
            }
            chains.into_iter().map(|chain| _mm512_reduce_add_ps(chain)).sum()
        }

        #[target_feature(enable = "avx2,fma")]
        fn avx2(factor: f32, term: f32, rounds: usize) -> f32 {
            let (factor, term) = (_mm256_set1_ps(factor), _mm256_set1_ps(term));
            let mut chains = [term; CHAINS];
            // Half the width, twice the rounds.
            for _ in 0..2 * rounds {
                for chain in &mut chains {
                    *chain = _mm256_fmadd_ps(*chain, factor, term);
                }
            }
            chains.into_iter().map(|chain| _mm256_cvtss_f32(chain)).sum()
        }

        match level() {
            // SAFETY: `level` has just found AVX-512 on this processor.
            Level::Avx512 => return unsafe { avx512(factor, term, rounds) },
            // SAFETY: `level` has just found AVX2 and FMA on this processor.
            Level::Avx2 => return unsafe { avx2(factor, term, rounds) },
            Level::Baseline => {}
        }
    }
    let mut chains = [term; CHAINS * WIDTH];
    for _ in 0..rounds {
        chains.iter_mut().for_each(|chain| *chain = *chain * factor + term);
    }
    chains.iter().sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_computes_more_than_it_moves() {
        let (flops, bytes) = (super::operations_per_second(), super::bytes_per_second());
        assert!(bytes > 1e8 && flops > bytes / 4.0, "{flops} FLOP/s, {bytes} bytes/s");
    }
}
