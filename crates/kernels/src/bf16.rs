//! Products of `f32` matrices that are rounded to bfloat16 first and summed in `f32`.
//!
//! `vdpbf16ps` multiplies and adds 32 pairs of bfloat16 where an FMA handles 16 pairs of `f32`: twice the peak.
//! A factor is rounded to 8 bits, to nearest even, so a product of two is off by at most 2⁻⁷ of itself; its 16 bits are
//! exact in `f32`. Subnormal numbers count as zero; infinities and NaN propagate.
//!
//! The structure is that of BLIS (Van Zee & van de Geijn, 2015). Both operands are rounded into *strips*, 16 rows of
//! `a` or 16 columns of `b` wide. Line `p` of a strip is a register with elements `2p` and `2p + 1` of each along k, as
//! the instruction requires them. A tile of 8 × 48 sums stays in 24 registers: 3 lines of `b` and 8 broadcast pairs of
//! `a` are 11 loads for 24 instructions, and Zen 4 starts one of either per cycle.
//!
//! All threads share the strips, so that each element is read and rounded once per block of 2²⁰. If an element is used
//! in only 64 multiplications, as in attention, rounding takes 13 to 19 % of the time; in a layer's product it takes 1
//! to 6 %.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

/// A matrix to read: element `(i, j)` lies at `i · row_stride + j · column_stride`. One of the two strides is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) data: *const f32,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

/// `out = scale · a · b`, or `out += scale · a · b`, for `a` of `[rows, depth]` and `b` of `[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    /// Rows of `columns` contiguous elements, `out_stride` apart.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) scale: f32,
    pub(crate) accumulate: bool,
    /// Whether to use all threads of rayon's current pool. The result has the same bits either way.
    pub(crate) parallel: bool,
}

// SAFETY: whoever calls `product` promises that nothing else uses the memory meanwhile; threads that share a `Product`
// write blocks of `out` that share no element.
#[allow(unsafe_code)]
unsafe impl Sync for Product {}
// SAFETY: as above, and `a` and `b` are only read.
#[allow(unsafe_code)]
unsafe impl Sync for Operand {}

/// Whether this processor has the instructions.
pub(crate) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        crate::simd::level() == crate::simd::Level::Avx512 && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Computes `p`.
///
/// # Panics
/// If it is not [`available`].
///
/// # Safety
/// Every element of the three matrices lies inside memory that is valid for the whole call. Nothing else uses the
/// memory of `out` meanwhile, and nothing writes that of `a` and `b`. Rows of `out` do not overlap; with `accumulate`
/// all of its elements are initialised.
#[allow(unsafe_code)]
pub(crate) unsafe fn product(p: &Product) {
    assert!(available(), "no AVX512-BF16 here for {p:?}");
    // SAFETY: the features are available, and the caller guarantees the rest.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        avx512::product(p);
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512 {
    use super::{Operand, Product};
    use rayon::prelude::*;
    use std::arch::x86_64::*;
    use std::array;
    use std::cell::Cell;
    use std::mem::transmute;
    use std::ops::Range;

    /// `f32`s, or pairs of bfloat16, in a register: the width of a strip.
    const LANES: usize = 16;
    /// Rows of a tile: half a strip of `a`.
    const TILE_ROWS: usize = 8;
    /// Strips of `b` in a tile.
    const TILE_STRIPS: usize = 3;
    /// Longest stretch of k: 16 rows of it are 24 KB in the L1 cache, `PIECE`'s columns 288 KB in the L2 cache, and
    /// `out` is read and written again 1/768 as often as it is added to.
    const DEPTH: usize = 768;
    /// Rows and columns of one task: 80 µs at full depth, which bounds how long other threads wait for the last one.
    const PIECE: [usize; 2] = [64, 192];
    /// Elements of each operand in strips at once: 2 MB.
    const BLOCK: usize = 1 << 20;
    /// Strips that one task rounds: it reads 512 contiguous bytes at a time at least.
    const PACK: usize = 8;
    /// Number of multiplications below which threads take longer to wake than to work: 20 µs of one core.
    const WORTH_THREADS: usize = 1 << 21;

    /// Index vector that selects pairs from two halves.
    const PAIRS: [u16; 2 * LANES] = [
        0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
        15, 31,
    ];

    /// The strips of one operand; strip `s` begins at line `s · stride(depth)`.
    type Strips = Vec<__m512i>;

    thread_local! {
        /// Strips of `a` and `b`, kept for the next product: new memory costs a page fault per 4 KB. They are removed
        /// while in use, because a waiting thread may run another task that multiplies.
        static STRIPS: Cell<[Strips; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
    }

    impl Operand {
        fn transposed(self) -> Self {
            Self { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
        }

        /// The same matrix without its first rows and columns.
        fn skip(self, rows: usize, columns: usize) -> Self {
            Self { data: self.at(rows, columns), ..self }
        }

        fn at(self, i: usize, j: usize) -> *const f32 {
            self.data.wrapping_add(i.wrapping_mul(self.row_stride)).wrapping_add(j.wrapping_mul(self.column_stride))
        }
    }

    impl Product {
        /// Contribution of these ranges of rows, columns and depth; stretches of depth come in order, and the first one
        /// writes.
        fn part(&self, rows: Range<usize>, columns: Range<usize>, depth: Range<usize>) -> Self {
            Self {
                rows: rows.len(),
                columns: columns.len(),
                depth: depth.len(),
                out: self.out.wrapping_add(rows.start * self.out_stride + columns.start),
                a: self.a.skip(rows.start, depth.start),
                b: self.b.skip(depth.start, columns.start),
                accumulate: self.accumulate || depth.start > 0,
                ..*self
            }
        }
    }

    /// Lines from one strip to the next: whole chunks of 16, plus one so that strips do not share cache sets.
    fn stride(depth: usize) -> usize {
        depth.div_ceil(2).next_multiple_of(LANES) + 1
    }

    /// Splits `0..len` into ranges of `step`.
    fn steps(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
        (0..len).step_by(step).map(move |start| start..len.min(start + step))
    }

    /// Mask of the lanes below `n`.
    fn mask(n: usize) -> __mmask16 {
        if n < LANES { (1 << n) - 1 } else { !0 }
    }

    /// # Safety
    /// As [`super::product`], and its features are there.
    pub(super) unsafe fn product(p: &Product) {
        if p.depth == 0 {
            for row in 0..if p.accumulate { 0 } else { p.rows } {
                // SAFETY: the row lies inside of `out`.
                unsafe { p.out.wrapping_add(row * p.out_stride).write_bytes(0, p.columns) };
            }
        } else if p.parallel && p.rows * p.columns * p.depth >= WORTH_THREADS {
            // The steps within start faster on one of the pool's threads.
            // SAFETY: the caller guarantees it.
            rayon::scope(|_| unsafe { blocks(p) });
        } else {
            // SAFETY: as above.
            unsafe { blocks(&Product { parallel: false, ..*p }) };
        }
    }

    /// Computes a product whose depth is not 0. Its stretches depend on the depth alone, and their contributions to an
    /// element are added in order: hence the same bits on any number of threads.
    ///
    /// # Safety
    /// As [`product`].
    unsafe fn blocks(p: &Product) {
        let [mut a, mut b] = STRIPS.take();
        let depth = p.depth.div_ceil(p.depth.div_ceil(DEPTH)).next_multiple_of(2 * LANES);
        let side = BLOCK / depth / PIECE[1] * PIECE[1];
        for columns in steps(p.columns, side) {
            for depth in steps(p.depth, depth) {
                let p = p.part(0..p.rows, columns.clone(), depth);
                // SAFETY: `part` stays inside the matrices; the caller guarantees the rest.
                unsafe { pack_all(&mut b, p.b.transposed(), p.columns, p.depth, p.parallel) };
                for rows in steps(p.rows, side) {
                    let p = p.part(rows, 0..p.columns, 0..p.depth);
                    // SAFETY: as above, and both operands' strips are those of `p`.
                    unsafe {
                        pack_all(&mut a, p.a, p.rows, p.depth, p.parallel);
                        multiply_all(&p, &a, &b);
                    }
                }
            }
        }
        STRIPS.set([a, b]);
    }

    /// Packs `count` rows of `from`.
    ///
    /// # Safety
    /// As [`pack`].
    unsafe fn pack_all(to: &mut Strips, from: Operand, count: usize, depth: usize, parallel: bool) {
        let lines = count.div_ceil(LANES) * stride(depth);
        if to.len() < lines {
            // SAFETY: the caller guarantees the feature.
            to.resize(lines, unsafe { _mm512_setzero_si512() });
        }
        let group = PACK * LANES;
        let pack_group = |(i, to): (usize, &mut [__m512i])| {
            // SAFETY: these rows lie inside `from`, and the caller guarantees the rest.
            unsafe { pack(to, from.skip(i * group, 0), group.min(count - i * group), depth) };
        };
        let to = &mut to[..lines];
        if parallel {
            to.par_chunks_mut(PACK * stride(depth)).enumerate().with_max_len(1).for_each(pack_group);
        } else {
            to.chunks_mut(PACK * stride(depth)).enumerate().for_each(pack_group);
        }
    }

    /// Rounds `count` rows of `from` into strips. Lanes beyond `count` and the missing partner of an odd depth are
    /// zeros.
    ///
    /// # Safety
    /// The features are there, and `count` × `depth` elements of `from` may be read.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn pack(to: &mut [__m512i], from: Operand, count: usize, depth: usize) {
        debug_assert!(from.row_stride == 1 || from.column_stride == 1, "one stride is 1");
        let stride = stride(depth);
        if from.row_stride == 1 {
            // Line by line across all strips, in the order of memory.
            for k in steps(depth, 2) {
                for (s, strip) in to.chunks_mut(stride).enumerate() {
                    // SAFETY: the masks exclude elements beyond `count` and `depth`.
                    strip[k.start / 2] =
                        unsafe { interleave(from.skip(s * LANES, k.start), count - s * LANES, k.len()) };
                }
            }
        } else {
            for (s, strip) in to.chunks_mut(stride).enumerate() {
                for (k, lines) in steps(depth, 2 * LANES).zip(strip.as_chunks_mut().0) {
                    // SAFETY: as above.
                    *lines = unsafe { transpose(from.skip(s * LANES, k.start), count - s * LANES, k.len()) };
                }
            }
        }
    }

    /// Loads a line of a matrix whose columns are contiguous: two columns, or one and zeros.
    ///
    /// # Safety
    /// The features are there, and `rows`, at most 16, × `columns` elements of `from` may be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn interleave(from: Operand, rows: usize, columns: usize) -> __m512i {
        // SAFETY: masked lanes are not read; a prefetch of any address is harmless, and one of eight columns ahead
        // gains 3 %.
        unsafe {
            for ahead in [8, 9] {
                _mm_prefetch::<_MM_HINT_T0>(from.at(0, ahead).cast());
            }
            let first = _mm512_maskz_loadu_ps(mask(rows), from.data);
            let second = _mm512_maskz_loadu_ps(mask(if columns > 1 { rows } else { 0 }), from.at(0, 1));
            let halves = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first));
            _mm512_permutexvar_epi16(transmute::<[u16; 2 * LANES], __m512i>(PAIRS), halves)
        }
    }

    /// Loads sixteen lines of a matrix whose rows are contiguous.
    ///
    /// # Safety
    /// The features are there, and `rows` × `columns`, at most 32, elements of `from` may be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn transpose(from: Operand, rows: usize, columns: usize) -> [__m512i; LANES] {
        let masks = [mask(columns), mask(columns.saturating_sub(LANES))];
        let mut x = [_mm512_setzero_si512(); LANES];
        for (i, x) in x.iter_mut().enumerate() {
            let [low, high] = if i < rows { masks } else { [0, 0] };
            // SAFETY: masked lanes are not read.
            unsafe {
                let low = _mm512_maskz_loadu_ps(low, from.at(i, 0));
                let high = _mm512_maskz_loadu_ps(high, from.at(i, LANES));
                *x = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            }
        }
        // Within lanes of 128 bits, pairs of rows, then fours: `x[4i + c]` has columns c, c + 4, c + 8, c + 12 of rows
        // 4i..4i + 4.
        let y = x;
        for i in 0..LANES / 2 {
            x[2 * i] = _mm512_unpacklo_epi32(y[2 * i], y[2 * i + 1]);
            x[2 * i + 1] = _mm512_unpackhi_epi32(y[2 * i], y[2 * i + 1]);
        }
        let y = x;
        for i in (0..LANES).step_by(4) {
            for c in 0..2 {
                x[i + 2 * c] = _mm512_unpacklo_epi64(y[i + c], y[i + c + 2]);
                x[i + 2 * c + 1] = _mm512_unpackhi_epi64(y[i + c], y[i + c + 2]);
            }
        }
        // Then whole lanes: 0x88 takes the even ones of both registers, 0xdd the odd ones.
        let y = x;
        for c in 0..4 {
            let even =
                [_mm512_shuffle_i32x4::<0x88>(y[c], y[c + 4]), _mm512_shuffle_i32x4::<0x88>(y[c + 8], y[c + 12])];
            let odd = [_mm512_shuffle_i32x4::<0xdd>(y[c], y[c + 4]), _mm512_shuffle_i32x4::<0xdd>(y[c + 8], y[c + 12])];
            x[c] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
            x[c + 4] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
            x[c + 8] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
            x[c + 12] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
        }
        x
    }

    /// Multiplies the strips that `pack_all` made of all of `p`.
    ///
    /// # Safety
    /// As [`product`], for a `p` no deeper than [`DEPTH`].
    unsafe fn multiply_all(p: &Product, a: &[__m512i], b: &[__m512i]) {
        let [height, width] = PIECE;
        let across = p.columns.div_ceil(width);
        let piece = |i: usize| {
            let (row, column) = (i / across * height, i % across * width);
            let rows = row..p.rows.min(row + height);
            let columns = column..p.columns.min(column + width);
            let a = &a[row / LANES * stride(p.depth)..];
            let b = &b[column / LANES * stride(p.depth)..];
            // SAFETY: pieces share no element of `out`, and begin with a strip; the caller guarantees the rest.
            unsafe { multiply(&p.part(rows, columns, 0..p.depth), a, b) };
        };
        let pieces = 0..p.rows.div_ceil(height) * across;
        if p.parallel { pieces.into_par_iter().with_max_len(1).for_each(piece) } else { pieces.for_each(piece) }
    }

    /// Multiplies one piece, tile by tile. A strip of `a` stays in the L1 cache while all of `b` passes.
    ///
    /// # Safety
    /// The features are there, the strips are those of `p`, and `out` may be written, and read to accumulate.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn multiply(p: &Product, a: &[__m512i], b: &[__m512i]) {
        let strips = p.columns.div_ceil(LANES);
        let groups = strips.div_ceil(TILE_STRIPS);
        for rows in steps(p.rows, TILE_ROWS) {
            let a = a[rows.start / LANES * stride(p.depth)..].as_ptr().cast::<u32>();
            let a = a.wrapping_add(rows.start % LANES);
            for group in 0..groups {
                // 4 strips are 2 + 2, not 3 + 1: one strip alone would load more than it multiplies.
                let (first, end) = (group * strips / groups, (group + 1) * strips / groups);
                let tile = p.part(rows.clone(), first * LANES..p.columns.min(end * LANES), 0..p.depth);
                let b = b[first * stride(p.depth)..].as_ptr();
                // SAFETY: the caller guarantees it for the whole product.
                unsafe {
                    match end - first {
                        1 => multiply_tile::<1>(&tile, a, b),
                        2 => multiply_tile::<2>(&tile, a, b),
                        _ => multiply_tile::<TILE_STRIPS>(&tile, a, b),
                    }
                }
            }
        }
    }

    /// Multiplies at most [`TILE_ROWS`] rows by at most `STRIPS` strips.
    ///
    /// # Safety
    /// As [`multiply`]: `a` points to the first row's pair in the first line of its strip, `b` to the first line.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn multiply_tile<const STRIPS: usize>(p: &Product, a: *const u32, b: *const __m512i) {
        let mut sums = [[_mm512_setzero_ps(); STRIPS]; TILE_ROWS];
        // Plain loops: with iterators, a build with assertions keeps the sums in memory, at half the speed.
        let strips: [_; STRIPS] = array::from_fn(|s| b.wrapping_add(s * stride(p.depth)));
        for line in 0..p.depth.div_ceil(2) {
            // SAFETY: every strip has this line, and a register is 16 pairs of bfloat16 whatever its type.
            unsafe {
                let pairs = &*a.wrapping_add(line * LANES).cast::<[i32; TILE_ROWS]>();
                let columns = strips.map(|strip| transmute::<__m512i, __m512bh>(*strip.wrapping_add(line)));
                for i in 0..TILE_ROWS {
                    let pair = transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pairs[i]));
                    for s in 0..STRIPS {
                        sums[i][s] = _mm512_dpbf16_ps(sums[i][s], pair, columns[s]);
                    }
                }
            }
        }
        let scale = _mm512_set1_ps(p.scale);
        for (i, sums) in sums.iter().enumerate().take(p.rows) {
            for (s, sum) in sums.iter().enumerate() {
                let out = p.out.wrapping_add(i * p.out_stride + s * LANES);
                // SAFETY: the row is inside of `out`, and the mask excludes elements beyond its columns.
                unsafe { write(out, mask(p.columns - s * LANES), _mm512_mul_ps(*sum, scale), p.accumulate) };
            }
        }
    }

    /// Writes or adds the lanes of `mask`.
    ///
    /// # Safety
    /// The features are there, and these lanes of `out` may be written, and read to accumulate.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn write(out: *mut f32, mask: __mmask16, mut x: __m512, accumulate: bool) {
        // SAFETY: the caller guarantees it.
        unsafe {
            if accumulate {
                x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, out));
            }
            if mask == !0 { _mm512_storeu_ps(out, x) } else { _mm512_mask_storeu_ps(out, mask, x) }
        }
    }
}

#[cfg(test)]
mod tests;
