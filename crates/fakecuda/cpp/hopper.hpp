// What compute capability 9.0 adds: barriers in memory, the copy engine, and products by a warpgroup. Copies and products are done at once,
// where hardware does them later: a kernel that does not wait for them is not found out here.

#pragma once

#include "kernel.hpp"

namespace fakecuda {

// Memory that a kernel declares lies in its library, within 2 GB of everything else there.
FAKECUDA_OWN char *declared(uint32_t address) {
    const uintptr_t here = reinterpret_cast<uintptr_t>(&grid_size);
    return reinterpret_cast<char *>(here + static_cast<int32_t>(address - static_cast<uint32_t>(here)));
}

// Where the copy engine was last told to write. Descriptors have 18 bits of an address, and the others are those of a place near by.
static uint32_t last_copy;

// `mbarrier`: a phase ends when all threads have arrived and all bytes that were announced are there.
struct Barrier {
    uint8_t parity;
    uint8_t threads, pending;
    int32_t bytes;

    FAKECUDA_OWN static Barrier &at(uint32_t address) { return *reinterpret_cast<Barrier *>(declared(address)); }

    FAKECUDA_OWN void change(int arrived, int announced) {
        released(this);
        pending -= arrived;
        bytes += announced;
        if (pending == 0 && bytes == 0) parity ^= 1, pending = threads;
    }
};
static_assert(sizeof(Barrier) == 8);

// A tensor map as the driver writes it: `src/tensor_map.rs`.
struct TiledMap {
    uint64_t address, sizes[5], strides[4];
    uint32_t box[5];
    uint8_t element, swizzle, rank;
};

// Address of a byte after the permutation of 16-byte pieces, by which three bits of it change three others.
FAKECUDA_OWN uint32_t permuted(uint32_t address, unsigned swizzle) {
    const uint32_t bits = (1u << swizzle) - 1;
    return address ^ (address >> 7 & bits) << 4;
}

FAKECUDA_OWN void copy_box(uint32_t to, const void *map_at, uint32_t barrier, const int (&start)[3]) {
    const TiledMap &map = *static_cast<const TiledMap *>(map_at);
    if (map.rank != 3 || to % 1024) return fail("the copy engine gets a tensor map of another rank, or a box that is not aligned");
    last_copy = to;
    for (uint32_t z = 0; z < map.box[2]; z++)
        for (uint32_t y = 0; y < map.box[1]; y++)
            for (uint32_t x = 0; x < map.box[0]; x++) {
                const int64_t at[3] = {start[0] + int64_t(x), start[1] + int64_t(y), start[2] + int64_t(z)};
                bool inside = true;
                for (int axis = 0; axis < 3; axis++) inside &= at[axis] >= 0 && at[axis] < int64_t(map.sizes[axis]);
                const uint32_t place = to + ((z * map.box[1] + y) * map.box[0] + x) * map.element;
                char *target = declared(permuted(place, map.swizzle));
                const uint64_t from = map.address + at[0] * map.element + at[1] * map.strides[0] + at[2] * map.strides[1];
                if (inside) memcpy(target, reinterpret_cast<const char *>(from), map.element);
                else memset(target, 0, map.element);
            }
    Barrier::at(barrier).change(0, -int(map.box[0] * map.box[1] * map.box[2] * map.element));
}

// Bits of an address in a descriptor.
constexpr int START_BITS = 18;

// A factor's number of the sum `line`, by a descriptor of the layout that is permuted by 128 bytes. `across`: neighbours in memory belong to
// different sums.
template <class T> FAKECUDA_OWN float factor(uint64_t descriptor, int line, int k, bool across) {
    const auto field = [&](int place) { return static_cast<uint32_t>(descriptor >> place & 0x3FFF) << 4; };
    if (descriptor >> 62 != 1) fail("a matrix descriptor of a layout that is not known here");
    const uint32_t leading = field(16), stride = field(32);
    const uint32_t offset = across ? line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2
                                   : line / 8 * stride + line % 8 * 128 + k * 2;
    const int32_t ahead = static_cast<int32_t>(field(0) - last_copy) << (32 - START_BITS) >> (32 - START_BITS);
    T number;
    memcpy(&number, declared(permuted(last_copy + ahead + offset, 3)), sizeof number);
    return static_cast<float>(number);
}

// Adds 16 products to each of a thread's sums of a tile of 64 × `2 COUNT`, or writes them. `left` gives a left factor by row and place.
template <class T, int COUNT, class L> FAKECUDA_OWN void multiply(float *sums, L left, uint64_t right, bool across, bool adds) {
    const int warp = thread->number / WARP % 4;
    for (int n = 0; n < COUNT; n++) {
        const int half = n / 2 % 2, row = 16 * warp + own_lane() / 4 + 8 * half, column = n / 4 * 8 + own_lane() % 4 * 2 + n % 2;
        float sum = adds ? sums[n] : 0.0f;
        for (int k = 0; k < 16; k++) sum += left(row, half, k) * factor<T>(right, column, k, across);
        sums[n] = sum;
    }
}

// The instruction with its operands in order: sums, which are neighbours in memory, descriptors, and which factors are across.
template <class T, int COUNT, class... A> void multiply_boxes(A &&...operands) {
    const auto all = std::forward_as_tuple(operands...);
    const uint64_t left = std::get<COUNT>(all);
    const bool across = std::get<COUNT + 2>(all);
    const auto of_row = [&](int row, int, int k) { return factor<T>(left, row, k, across); };
    multiply<T, COUNT>(&std::get<0>(all), of_row, std::get<COUNT + 1>(all), std::get<COUNT + 3>(all), true);
}

// The same, with the left factor in four registers, and last, whether products are added to the sums.
template <class T, int COUNT, class... A> void multiply_registers(A &&...operands) {
    const auto all = std::forward_as_tuple(operands...);
    struct Left { uint32_t pairs[4]; };
    const Left own = {{std::get<COUNT>(all), std::get<COUNT + 1>(all), std::get<COUNT + 2>(all), std::get<COUNT + 3>(all)}};
    // The four lanes that have a row have two of every eight numbers each.
    struct Rows { float numbers[2][16]; };
    const Rows rows = together(own, 0, [](auto of) {
        Rows found;
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < 16; k++) {
                const Left &other = of(own_lane() / 4 * 4 + k % 8 / 2);
                found.numbers[half][k] = as<T>(other.pairs[k / 8 * 2 + half], k % 2);
            }
        return found;
    });
    const auto of_row = [&](int, int half, int k) { return rows.numbers[half][k]; };
    multiply<T, COUNT>(&std::get<0>(all), of_row, std::get<COUNT + 4>(all), std::get<COUNT + 5>(all), std::get<COUNT + 6>(all));
}

} // namespace fakecuda

inline void ptx_mbarrier_init_shared__cta_b64(uint32_t barrier, uint32_t threads) {
    fakecuda::Barrier::at(barrier) = {0, uint8_t(threads), uint8_t(threads), 0};
}
inline void ptx_mbarrier_arrive_expect_tx_shared__cta_b64(uint32_t barrier, uint32_t bytes) {
    fakecuda::Barrier::at(barrier).change(1, int(bytes));
}
inline void ptx_mbarrier_try_wait_parity_shared__cta_b64(uint32_t &done, uint32_t barrier, uint32_t parity) {
    done = fakecuda::Barrier::at(barrier).parity != parity;
    if (done) fakecuda::acquired(&fakecuda::Barrier::at(barrier));
    else fakecuda::wait_and_ask_again();
}
inline void ptx_cp_async_bulk_tensor_3d_shared__cluster_global_mbarrier__complete_tx__bytes(uint32_t to, const void *map, uint32_t barrier,
                                                                                            int x, int y, int z) {
    fakecuda::copy_box(to, map, barrier, {x, y, z});
}
inline void ptx_fence_proxy_async_shared__cta() {}
inline void ptx_wgmma_fence_sync_aligned() {}
inline void ptx_wgmma_commit_group_sync_aligned() {}
inline void ptx_wgmma_wait_group_sync_aligned() {}
#define FAKECUDA_WGMMA(LOW, T) \
    template <class... A> void ptx_wgmma_mma_async_sync_aligned_m64n128k16_f32_##LOW##_##LOW(A &&...operands) { \
        fakecuda::multiply_boxes<T, 64>(operands...); \
    } \
    template <class... A> void ptx_wgmma_mma_async_sync_aligned_m64n64k16_f32_##LOW##_##LOW(A &&...operands) { \
        if constexpr (sizeof...(A) == 36) fakecuda::multiply_boxes<T, 32>(operands...); \
        else fakecuda::multiply_registers<T, 32>(operands...); \
    }
FAKECUDA_WGMMA(bf16, __nv_bfloat16)
FAKECUDA_WGMMA(f16, __half)
#undef FAKECUDA_WGMMA
inline void ptx_cvt_rn_bf16x2_f32(uint32_t &pair, float high, float low) {
    pair = __nv_bfloat16(low).bits | uint32_t(__nv_bfloat16(high).bits) << 16;
}
inline void ptx_cvt_rn_f16x2_f32(uint32_t &pair, float high, float low) { pair = __half(low).bits | uint32_t(__half(high).bits) << 16; }
inline void ptx_cvt_f32_bf16(float &number, uint16_t bits) { number = fakecuda::as<__nv_bfloat16>(bits, 0); }
inline void ptx_cvt_f32_f16(float &number, uint16_t bits) { number = fakecuda::as<__half>(bits, 0); }
inline void ptx_ex2_approx_ftz_f32(float &y, float x) { y = std::exp2(x); }
