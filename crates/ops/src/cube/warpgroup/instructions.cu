// Instructions of compute capability 9.0 that CubeCL does not have, for kernels in CUDA C++: barriers in shared memory, the copy engine, and
// `wgmma`, by which the four warps of a warpgroup multiply tiles that lie in shared memory.
//
// LOW is replaced by the type of the factors, as PTX calls it: bf16 or f16. The constant WIDE says whether results are f32; otherwise they have
// the type of the factors.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Description of a tensor for the copy engine.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// Bytes of a row of the copy engine's boxes, and of the eight rows in which it permutes 16-byte pieces, so that they lie in different banks.
constexpr u32 ROW_BYTES = 128, ATOM_BYTES = 8 * ROW_BYTES;
// Numbers of a row of a box.
constexpr int ROW = 64;

__device__ __forceinline__ u32 address_of(const void *shared) {
    return static_cast<u32>(__cvta_generic_to_shared(shared));
}

// Makes a barrier whose phases end when one thread has arrived and the bytes that it announced are there.
__device__ __forceinline__ void begin(u32 barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(1) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

__device__ __forceinline__ void announce(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
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

// Descriptor of the factor in a box that holds 16 numbers of each sum from `16 · step` on (PTX ISA, "Matrix descriptor"). Where rows are along
// the sums, a step is 32 bytes of each row, and eight rows are followed by the next eight. Where they are across, a step is 16 rows, and the
// next 64 sums are in another box.
template <bool ALONG_SUMS>
__device__ __forceinline__ u64 descriptor(u32 box, int step, u64 to_next_box = 0) {
    const u32 start = box + step * (ALONG_SUMS ? 32 : 16 * ROW_BYTES);
    const u64 permuted_by_128_bytes = 1;
    return u64(start & 0x3FFFF) >> 4 | to_next_box >> 4 << 16 | u64(ATOM_BYTES) >> 4 << 32 | permuted_by_128_bytes << 62;
}

// Registers that products read or write must be complete before, and products before their sums are read.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
}

// Products of 64 × 16 and 16 × 128 numbers, added to the warpgroup's sums. Thread `l` of warp `w` has rows `16 w + l / 4` and the eighth one
// after it, and of every eight columns two from `2 (l % 4)` on; `sums[4 n..]` has those of both rows in the `n`th eight columns.
template <bool LEFT_IS_ALONG, bool RIGHT_IS_ALONG>
__device__ __forceinline__ void multiply(float (&sums)[64], u64 left, u64 right) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.LOW.LOW {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
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
                 : "l"(left), "l"(right), "n"(!LEFT_IS_ALONG), "n"(!RIGHT_IS_ALONG));
}

// Products of 64 × 16 and 16 × 64 numbers, added to the warpgroup's sums.
template <bool LEFT_IS_ALONG, bool RIGHT_IS_ALONG>
__device__ __forceinline__ void multiply(float (&sums)[32], u64 left, u64 right) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.LOW.LOW {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, %34, %35;}"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
                     "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
                     "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
                     "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
                 : "l"(left), "l"(right), "n"(!LEFT_IS_ALONG), "n"(!RIGHT_IS_ALONG));
}

// Products of 64 × 16 and 16 × 64 numbers, added to the sums or, without ADD, written in their place. The left factor is in registers, as
// sums are: pairs of both rows in eight columns, and in the next eight.
template <bool RIGHT_IS_ALONG, bool ADD = true>
__device__ __forceinline__ void multiply(float (&sums)[32], const u32 (&left)[4], u64 right) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %38, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.LOW.LOW {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p, 1, 1, %37;}"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
                     "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
                     "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
                     "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(!RIGHT_IS_ALONG), "n"(ADD));
}

// Two numbers in half precision, the first one in the lower half.
__device__ __forceinline__ u32 low_pair(float first, float second) {
    u32 pair;
    asm volatile("cvt.rn.LOWx2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ __forceinline__ float low_number(u32 bits) {
    float number;
    asm volatile("cvt.f32.LOW %0, %1;" : "=f"(number) : "h"(u16(bits)));
    return number;
}

// Numbers of results.
#if WIDE
typedef float Out;
__device__ __forceinline__ void write_number(Out *to, float number) { *to = number; }
__device__ __forceinline__ void write_pair(Out *to, float first, float second) {
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
}
__device__ __forceinline__ float2 read_pair(const Out *from) { return *reinterpret_cast<const float2 *>(from); }
#else
typedef u16 Out;
__device__ __forceinline__ void write_number(Out *to, float number) { *to = low_pair(number, 0.0f) & 0xFFFF; }
__device__ __forceinline__ void write_pair(Out *to, float first, float second) {
    *reinterpret_cast<u32 *>(to) = low_pair(first, second);
}
__device__ __forceinline__ float2 read_pair(const Out *from) {
    const u32 pair = *reinterpret_cast<const u32 *>(from);
    return make_float2(low_number(pair & 0xFFFF), low_number(pair >> 16));
}
#endif
