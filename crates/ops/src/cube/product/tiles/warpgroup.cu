// Sum of products of half-precision matrices, or of a share of their sums.
//
// A block of 128 threads computes a tile of ROWS × COLUMNS sums. One thread has the copy engine bring slices of both factors, 64 numbers of each
// sum long. There is one slice at a time: a kernel may declare no more shared memory than 48 KB. Several blocks share a multiprocessor, so that
// some multiply while others wait for their slices. Two slices in flight, in 64 KB, were 8 % faster on an H200; pairs of blocks that share
// slices, 30 % slower.
//
// Constants: ROWS and COLUMNS (64 or 128), TERMS (products that are added, 1 to 3), LEFT_ALONG and RIGHT_ALONG (whether neighbours in a factor's
// memory belong to the same sum), ADDS_BIAS, ADDS_BASE and PAIRS (whether two numbers of the result may be written at once).

// Sizes in numbers, as in the launch. The sums of all terms follow one another: the second term's begin at `second`, and the third's at `third`.
// `scale`, an f32, is the factor of the products.
struct Sizes {
    u64 rows, columns, depth, second, third, share, y_pitch, y_batch, base_pitch, scale;
};

// Rows that a warpgroup's instruction multiplies, and sums of a box where a factor lies across them.
constexpr int PART = 64;
constexpr u32 PART_BYTES = PART * ROW_BYTES, LEFT_BYTES = ROWS * ROW_BYTES, RIGHT_BYTES = COLUMNS * ROW_BYTES;
constexpr int RESIDENT = ROWS * COLUMNS == 128 * 128 ? 3 : 5;

// Brings 64 numbers of SUMS sums from `start` on. Along the sums that is one box of as many rows; across them each box has 64 sums.
template <bool ALONG, int SUMS>
__device__ __forceinline__ void fetch_slice(u32 to, const TensorMap *from, u32 barrier, int first, int start, int batch) {
    if constexpr (ALONG) {
        fetch(to, from, barrier, start, first, batch);
    } else {
#pragma unroll
        for (int part = 0; part < SUMS / PART; part++) fetch(to + part * PART_BYTES, from, barrier, first + part * PART, start, batch);
    }
}

// Writes two neighbours of a row, of which the second may lie beyond its end.
__device__ __forceinline__ void write(Out *to, float first, float second, bool both) {
    if (PAIRS) {
        write_pair(to, first, second);
    } else {
        write_number(to, first);
        if (both) write_number(to + 1, second);
    }
}

extern "C" __global__ void __launch_bounds__(128, RESIDENT)
warpgroup_product(const __grid_constant__ TensorMap left, const __grid_constant__ TensorMap right,
#if TERMS > 1
                  const __grid_constant__ TensorMap second_left, const __grid_constant__ TensorMap second_right,
#endif
#if TERMS > 2
                  const __grid_constant__ TensorMap third_left, const __grid_constant__ TensorMap third_right,
#endif
                  const float *bias, const float *base, Out *y, const __grid_constant__ Sizes sizes) {
    __shared__ __align__(1024) unsigned char slices[LEFT_BYTES + RIGHT_BYTES];
    __shared__ u64 barrier_memory;
    const u32 left_slice = address_of(slices), right_slice = left_slice + LEFT_BYTES, barrier = address_of(&barrier_memory);
    const int rows = sizes.rows, columns = sizes.columns;
    const int across = (columns + COLUMNS - 1) / COLUMNS;
    const int first_row = blockIdx.x / across * ROWS, first_column = blockIdx.x % across * COLUMNS;
    const int start = blockIdx.y * int(sizes.share), end = min(start + int(sizes.share), int(sizes.depth)), batch = blockIdx.z;
    if (threadIdx.x == 0) begin(barrier);
    __syncthreads();

    float sums[ROWS / PART][COLUMNS / 2];
#pragma unroll
    for (int part = 0; part < ROWS / PART; part++) {
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) sums[part][n] = 0.0f;
    }
    u32 parity = 0;
    for (int at = start; at < end; at += ROW) {
        if (threadIdx.x == 0) {
            const TensorMap *from_left = &left, *from_right = &right;
            int of_term = at;
#if TERMS > 1
            if (at >= int(sizes.second)) from_left = &second_left, from_right = &second_right, of_term = at - int(sizes.second);
#endif
#if TERMS > 2
            if (at >= int(sizes.third)) from_left = &third_left, from_right = &third_right, of_term = at - int(sizes.third);
#endif
            announce(barrier, LEFT_BYTES + RIGHT_BYTES);
            fetch_slice<LEFT_ALONG, ROWS>(left_slice, from_left, barrier, first_row, of_term, batch);
            fetch_slice<RIGHT_ALONG, COLUMNS>(right_slice, from_right, barrier, first_column, of_term, batch);
        }
        wait(barrier, parity);
        parity ^= 1;
        begin_products();
#pragma unroll
        for (int step = 0; step < ROW / 16; step++) {
            const u64 of_right = descriptor<RIGHT_ALONG>(right_slice, step, PART_BYTES);
#pragma unroll
            for (int part = 0; part < ROWS / PART; part++) {
                // 64 rows of a box, or the next box.
                const u64 of_left = descriptor<LEFT_ALONG>(left_slice + part * PART_BYTES, step);
                multiply<LEFT_ALONG, RIGHT_ALONG>(sums[part], of_left, of_right);
            }
        }
        end_products();
        // The next slice takes the place of this one once all four warps are done with it.
        __syncthreads();
    }

    const float scale = __uint_as_float(u32(sizes.scale));
    y += (u64(blockIdx.y) * gridDim.z + batch) * sizes.y_batch;
#pragma unroll
    for (int part = 0; part < ROWS / PART; part++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + PART * part + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
            if (row < rows) {
#pragma unroll
                for (int eight = 0; eight < COLUMNS / 8; eight++) {
                    const int column = first_column + 8 * eight + threadIdx.x % 4 * 2;
                    if (column < columns) {
                        float first = scale * sums[part][4 * eight + 2 * half], second = scale * sums[part][4 * eight + 2 * half + 1];
                        const bool both = column + 1 < columns;
                        if (ADDS_BIAS) first += bias[column], second += both ? bias[column + 1] : 0.0f;
                        if (ADDS_BASE) {
                            const float *of_base = base + row * sizes.base_pitch + column;
                            first += of_base[0], second += both ? of_base[1] : 0.0f;
                        }
                        write(y + row * sizes.y_pitch + column, first, second, both);
                    }
                }
            }
        }
    }
}
