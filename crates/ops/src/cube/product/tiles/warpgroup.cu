// Product of half-precision matrices by `wgmma`, the instruction by which the four warps of a warpgroup multiply tiles that lie in shared
// memory, on compute capability 9.0.
//
// A block of 128 threads computes a tile of 128 × 128 sums. One thread has the copy engine bring slices of both factors, 64 numbers of each
// sum long. There is one slice at a time: CubeCL gives kernels in CUDA C++ no more shared memory than the 48 KB of declared arrays. Three
// blocks share a multiprocessor, so that some multiply while others wait for their slices. Two slices in flight, in 64 KB, were 8 % faster.
//
// Defined before this text: LEFT_ALONG_SUMS and RIGHT_ALONG_SUMS (whether neighbours in a factor's memory belong to the same sum), ADDS_BIAS,
// ADDS_BASE, PAIRS (whether two numbers of the result may be written at once) and WIDE (whether they are f32). LOW is replaced by the type in
// half precision, as PTX calls it.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
    u64 opaque[16];
};

// Sizes in numbers, as in the launch.
struct Sizes {
    u64 rows, columns, depth, share, y_pitch, y_batch, base_pitch;
};

constexpr int SIDE = 128, DEPTH = 64, PART = 64;
constexpr u32 FACTOR_BYTES = SIDE * DEPTH * 2;
// Bytes of a row of the copy engine's boxes, and of the eight rows in which it permutes 16-byte pieces, so that they lie in different banks.
constexpr u32 ROW_BYTES = 128, ATOM_BYTES = 8 * ROW_BYTES;

__device__ __forceinline__ u32 address_of(const void *shared) {
    return static_cast<u32>(__cvta_generic_to_shared(shared));
}

// Waits until the barrier's phase of this parity is complete.
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    u32 done = 0;
    while (!done) {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    }
}

// Has the copy engine bring a box to shared memory and count its bytes at the barrier. What lies outside of the tensor becomes zeros.
__device__ __forceinline__ void fetch(u32 to, const TensorMap *from, u32 barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 : : "r"(to), "l"(from), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}

// Brings 64 numbers of 128 sums from `start` on. Along the sums that is one box of 128 rows; across them it is two, of 64 sums each.
template <bool ALONG_SUMS>
__device__ __forceinline__ void fetch_slice(u32 to, const TensorMap *from, u32 barrier, int first, int start, int batch) {
    if constexpr (ALONG_SUMS) {
        fetch(to, from, barrier, start, first, batch);
    } else {
        fetch(to, from, barrier, first, start, batch);
        fetch(to + FACTOR_BYTES / 2, from, barrier, first + SIDE / 2, start, batch);
    }
}

// Descriptor of 16 numbers of the sums from `line` on, which is a multiple of 64 (PTX ISA, "Matrix descriptor"). Along the sums a step of 16
// is 32 bytes of each row, and eight rows are followed by the next eight. Across them it is 16 rows of a box, and 64 sums are a box.
template <bool ALONG_SUMS>
__device__ __forceinline__ u64 descriptor(u32 slice, int line, int step) {
    const u32 start = slice + line * ROW_BYTES + step * (ALONG_SUMS ? 32 : 16 * ROW_BYTES);
    const u64 to_next_box = FACTOR_BYTES / 2, permuted_by_128_bytes = 1;
    return u64(start & 0x3FFFF) >> 4 | to_next_box >> 4 << 16 | u64(ATOM_BYTES) >> 4 << 32 | permuted_by_128_bytes << 62;
}

// Adds products of 64 × 16 and 16 × 128 numbers to the warpgroup's sums.
__device__ __forceinline__ void multiply(float (&sums)[64], u64 left, u64 right) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.LOW.LOW "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, %66, %67;}"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
                   "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
                   "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
                   "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]),
                   "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]), "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]),
                   "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]),
                   "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]), "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
                   "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]), "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63])
                 : "l"(left), "l"(right), "n"(!LEFT_ALONG_SUMS), "n"(!RIGHT_ALONG_SUMS));
}

#if WIDE
typedef float Out;
typedef float2 Pair;
__device__ __forceinline__ Pair pair_of(float first, float second) { return make_float2(first, second); }
#else
typedef u16 Out;
typedef ushort2 Pair;
__device__ __forceinline__ Pair pair_of(float first, float second) {
    u32 pair;
    asm volatile("cvt.rn.LOWx2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
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
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(1) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    }
    __syncthreads();

    float sums[SIDE / PART][64];
#pragma unroll
    for (int part = 0; part < SIDE / PART; part++) {
#pragma unroll
        for (int n = 0; n < 64; n++) sums[part][n] = 0.0f;
    }
    u32 parity = 0;
    for (int at = start; at < end; at += DEPTH) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(2 * FACTOR_BYTES) : "memory");
            fetch_slice<LEFT_ALONG_SUMS>(left_slice, &left, barrier, first_row, at, batch);
            fetch_slice<RIGHT_ALONG_SUMS>(right_slice, &right, barrier, first_column, at, batch);
        }
        wait(barrier, parity);
        parity ^= 1;
        asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#pragma unroll
        for (int step = 0; step < DEPTH / 16; step++) {
            const u64 of_right = descriptor<RIGHT_ALONG_SUMS>(right_slice, 0, step);
#pragma unroll
            for (int part = 0; part < SIDE / PART; part++)
                multiply(sums[part], descriptor<LEFT_ALONG_SUMS>(left_slice, PART * part, step), of_right);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
        // The next slice takes the place of this one once all four warps are done with it.
        __syncthreads();
    }

    // Thread `l` of warp `w` has rows `16 w + l / 4` and the eighth one after it, and of every eight columns two from `2 (l % 4)` on.
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
