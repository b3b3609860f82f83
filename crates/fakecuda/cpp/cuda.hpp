// CUDA's names, as CubeCL's generated source uses them.

#pragma once

#include "kernel.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// Blocks run one after another, so that they can have the same memory. It is not poisoned in between.
#define __shared__ static

#define threadIdx (fakecuda::thread_index())
#define blockIdx (fakecuda::block_index())
#define blockDim (fakecuda::block_shape())
#define gridDim (fakecuda::grid_shape())
#define warpSize 32

#define __syncthreads() fakecuda::wait(fakecuda::Waits::block, __LINE__)
#define __syncwarp(...) fakecuda::wait(fakecuda::Waits::warp, __LINE__)
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

using std::abs, std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::ceil, std::cos, std::cosh,
    std::erf, std::exp, std::exp2, std::expm1, std::fabs, std::floor, std::fma, std::fmod, std::isinf, std::isnan, std::log,
    std::log10, std::log1p, std::log2, std::pow, std::rint, std::round, std::sin, std::sinh, std::sqrt, std::tan, std::tanh,
    std::trunc;

// As CUDA's: the number of a number and a NaN.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
template <class T> requires std::is_integral_v<T> T max(T a, T b) { return a < b ? b : a; }
template <class T> requires std::is_integral_v<T> T min(T a, T b) { return b < a ? b : a; }

inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }

inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline int __ffsll(long long x) { return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }

template <class T> T atomicAdd(T *to, T value) {
    T seen, sum;
    __atomic_load(to, &seen, __ATOMIC_RELAXED);
    do sum = seen + value;
    while (!__atomic_compare_exchange(to, &seen, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return seen;
}
template <class T> T atomicExch(T *to, T value) {
    T before;
    __atomic_exchange(to, &value, &before, __ATOMIC_RELAXED);
    return before;
}
template <class T> T atomicCAS(T *to, T expected, T value) {
    __atomic_compare_exchange(to, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

inline unsigned __activemask() { return ~0u >> (32 - fakecuda::lanes()); }

// Every lane of the warp takes part: a mask that leaves some out is not modelled.
template <class T> T fakecuda_shuffle(T value, unsigned from, int line) {
    return fakecuda::together(value, line, [&](auto of) { return of(from < fakecuda::lanes() ? from : fakecuda::own_lane()); });
}
#define __shfl_sync(mask, value, from, ...) fakecuda_shuffle(value, unsigned(from) % 32, __LINE__)
#define __shfl_xor_sync(mask, value, by, ...) fakecuda_shuffle(value, fakecuda::own_lane() ^ unsigned(by), __LINE__)
#define __shfl_up_sync(mask, value, by, ...) \
    fakecuda_shuffle(value, fakecuda::own_lane() < unsigned(by) ? fakecuda::own_lane() : fakecuda::own_lane() - unsigned(by), __LINE__)
#define __shfl_down_sync(mask, value, by, ...) fakecuda_shuffle(value, fakecuda::own_lane() + unsigned(by), __LINE__)

inline unsigned fakecuda_ballot(bool value, int line) {
    return fakecuda::together(value, line, [](auto of) {
        unsigned found = 0;
        for (unsigned n = 0; n < fakecuda::lanes(); n++) found |= unsigned(of(n)) << n;
        return found;
    });
}
#define __ballot_sync(mask, value) fakecuda_ballot(bool(value), __LINE__)
#define __all_sync(mask, value) (fakecuda_ballot(bool(value), __LINE__) == __activemask())
#define __any_sync(mask, value) (fakecuda_ballot(bool(value), __LINE__) != 0)

struct alignas(8) float2 { float x, y; };
struct alignas(4) ushort2 { unsigned short x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }

// Memory that a kernel declares has the lower half of its address.
template <class T> unsigned __cvta_generic_to_shared(const T *address) {
    if (fakecuda::shared_memory()) return static_cast<unsigned>(reinterpret_cast<const char *>(address) - fakecuda::shared_memory());
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(address));
}

#include "half.hpp"
#include "matrix.hpp"
#include "hopper.hpp"

// Generated source defines these names for itself.
#define int64_t cubecl_int64_t
#define uint64_t cubecl_uint64_t
