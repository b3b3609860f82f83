// Product of half-precision matrices, or of a share of their sums.
//
// A block of 128 threads computes a tile of 128 × 128 sums. One thread has the copy engine bring slices of both factors, 64 numbers of each
// sum long. There is one slice at a time: a kernel may declare no more shared memory than 48 KB. Three blocks share a multiprocessor, so that
// some multiply while others wait for their slices. Two slices in flight, in 64 KB, were 8 % faster on an H200; pairs of blocks that share
// slices, 30 % slower.
//
// Constants: LEFT_ALONG and RIGHT_ALONG (whether neighbours in a factor's memory belong to the same sum), ADDS_BIAS, ADDS_BASE, PAIRS (whether
// two numbers of the result may be written at once) and WIDE (whether they are f32).

// Sizes in numbers, as in the launch.
struct Sizes {
    u64 rows, columns, depth, share, y_pitch, y_batch, base_pitch;
};

constexpr int SIDE = 128, PART = 64;
constexpr u32 FACTOR_BYTES = SIDE * ROW_BYTES;

// Brings 64 numbers of 128 sums from `start` on. Along the sums that is one box of 128 rows; across them it is two, of 64 sums each.
template <bool ALONG>
__device__ __forceinline__ void fetch_slice(u32 to, const TensorMap *from, u32 barrier, int first, int start, int batch) {
    if constexpr (ALONG) {
        fetch(to, from, barrier, start, first, batch);
    } else {
        fetch(to, from, barrier, first, start, batch);
        fetch(to + FACTOR_BYTES / 2, from, barrier, first + SIDE / 2, start, batch);
    }
}

#if WIDE
typedef float Out;
typedef float2 Pair;
__device__ __forceinline__ Pair pair_of(float first, float second) { return make_float2(first, second); }
#else
typedef u16 Out;
typedef ushort2 Pair;
__device__ __forceinline__ Pair pair_of(float first, float second) {
    const u32 pair = low_pair(first, second);
    return make_ushort2(pair & 0xFFFF, pair >> 16);
}
#endif

// Writes two neighbours of a row, of which the second may lie beyond its end.
__device__ __forceinline__ void write(Out *to, float first, float second, bool both) {
    const Pair pair = pair_of(first, second);
    if (PAIRS) {
        *reinterpret_cast<Pair *>(to) = pair;
    } else {
        to[0] = pair.x;
        if (both) to[1] = pair.y;
    }
}

extern "C" __global__ void __launch_bounds__(128, 3)
warpgroup_product(const __grid_constant__ TensorMap left, const __grid_constant__ TensorMap right, const float *bias, const float *base,
                  Out *y, const __grid_constant__ Sizes sizes) {
    __shared__ __align__(1024) unsigned char slices[2 * FACTOR_BYTES];
    __shared__ u64 barrier_memory;
    const u32 left_slice = address_of(slices), right_slice = left_slice + FACTOR_BYTES, barrier = address_of(&barrier_memory);
    const int rows = sizes.rows, columns = sizes.columns;
    const int across = (columns + SIDE - 1) / SIDE;
    const int first_row = blockIdx.x / across * SIDE, first_column = blockIdx.x % across * SIDE;
    const int start = blockIdx.y * int(sizes.share), end = min(start + int(sizes.share), int(sizes.depth)), batch = blockIdx.z;
    if (threadIdx.x == 0) begin(barrier);
    __syncthreads();

    float sums[SIDE / PART][64];
#pragma unroll
    for (int part = 0; part < SIDE / PART; part++) {
#pragma unroll
        for (int n = 0; n < 64; n++) sums[part][n] = 0.0f;
    }
    u32 parity = 0;
    for (int at = start; at < end; at += ROW) {
        if (threadIdx.x == 0) {
            announce(barrier, 2 * FACTOR_BYTES);
            fetch_slice<LEFT_ALONG>(left_slice, &left, barrier, first_row, at, batch);
            fetch_slice<RIGHT_ALONG>(right_slice, &right, barrier, first_column, at, batch);
        }
        wait(barrier, parity);
        parity ^= 1;
        begin_products();
#pragma unroll
        for (int step = 0; step < ROW / 16; step++) {
            const u64 of_right = descriptor<RIGHT_ALONG>(right_slice, step, FACTOR_BYTES / 2);
#pragma unroll
            for (int part = 0; part < SIDE / PART; part++) {
                // 64 rows of a box, or the next box.
                const u64 of_left = descriptor<LEFT_ALONG>(left_slice + part * FACTOR_BYTES / 2, step);
                multiply<LEFT_ALONG, RIGHT_ALONG>(sums[part], of_left, of_right);
            }
        }
        end_products();
        // The next slice takes the place of this one once all four warps are done with it.
        __syncthreads();
    }

    y += (u64(blockIdx.y) * gridDim.z + batch) * sizes.y_batch;
#pragma unroll
    for (int part = 0; part < SIDE / PART; part++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + PART * part + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
            if (row < rows) {
#pragma unroll
                for (int eight = 0; eight < SIDE / 8; eight++) {
                    const int column = first_column + 8 * eight + threadIdx.x % 4 * 2;
                    if (column < columns) {
                        float first = sums[part][4 * eight + 2 * half], second = sums[part][4 * eight + 2 * half + 1];
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
