// `__half` and `__nv_bfloat16`: every operation rounds to the nearest, ties to even, as the hardware's do.

#pragma once

namespace fakecuda {

inline uint16_t to_bfloat16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return 0x7FFF;
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline uint16_t to_half(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint16_t sign = bits >> 16 & 0x8000;
    float size = std::fabs(value);
    if (std::isnan(value)) return 0x7FFF;
    // Half of the step above 65504 is rounded to infinity.
    if (size >= 65520.0f) return sign | 0x7C00;
    if (size == 0.0f) return sign;
    int exponent = 0;
    std::frexp(size, &exponent);
    // Steps of 2^-10 of the power of two below, and of 2^-24 among the subnormal.
    float step = std::ldexp(1.0f, std::max(exponent - 11, -24));
    uint32_t steps = static_cast<uint32_t>(std::nearbyint(size / step));
    uint32_t offset = exponent - 11 <= -24 ? 0 : static_cast<uint32_t>(exponent + 13);
    // With the leading bit, which carries into the exponent where rounding reaches the next power.
    return sign | static_cast<uint16_t>((offset << 10) + steps);
}

inline float from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
        : exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(float(fraction), -24);
    return bits & 0x8000 ? -size : size;
}

template <uint16_t (*TO)(float), float (*FROM)(uint16_t)>
struct Small {
    uint16_t bits;
    Small() = default;
    template <class T> requires std::is_arithmetic_v<T> Small(T value) : bits(TO(static_cast<float>(value))) {}
    template <uint16_t (*T)(float), float (*F)(uint16_t)> explicit Small(Small<T, F> other) : bits(TO(float(other))) {}
    operator float() const { return FROM(bits); }
    friend Small operator+(Small a, Small b) { return float(a) + float(b); }
    friend Small operator-(Small a, Small b) { return float(a) - float(b); }
    friend Small operator*(Small a, Small b) { return float(a) * float(b); }
    friend Small operator/(Small a, Small b) { return float(a) / float(b); }
    friend Small operator-(Small a) { return -float(a); }
    friend bool operator<(Small a, Small b) { return float(a) < float(b); }
    friend bool operator>(Small a, Small b) { return float(a) > float(b); }
    friend bool operator<=(Small a, Small b) { return float(a) <= float(b); }
    friend bool operator>=(Small a, Small b) { return float(a) >= float(b); }
    friend bool operator==(Small a, Small b) { return float(a) == float(b); }
    friend bool operator!=(Small a, Small b) { return float(a) != float(b); }
    Small &operator+=(Small b) { return *this = *this + b; }
};

} // namespace fakecuda

using __half = fakecuda::Small<fakecuda::to_half, fakecuda::from_half>;
using __nv_bfloat16 = fakecuda::Small<fakecuda::to_bfloat16, fakecuda::from_bfloat16>;
using half = __half;
using nv_bfloat16 = __nv_bfloat16;

// Two at a time.
struct __half2 {
    __half x, y;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

#define FAKECUDA_UNARY(NAME, FUNCTION) \
    inline __half NAME(__half a) { return FUNCTION(float(a)); } \
    inline __nv_bfloat16 NAME(__nv_bfloat16 a) { return FUNCTION(float(a)); }
#define FAKECUDA_BINARY(NAME, FUNCTION) \
    inline __half NAME(__half a, __half b) { return FUNCTION(float(a), float(b)); } \
    inline __nv_bfloat16 NAME(__nv_bfloat16 a, __nv_bfloat16 b) { return FUNCTION(float(a), float(b)); }

FAKECUDA_UNARY(hexp, std::exp)
FAKECUDA_UNARY(hlog, std::log)
FAKECUDA_UNARY(hsqrt, std::sqrt)
FAKECUDA_UNARY(hrsqrt, rsqrt)
FAKECUDA_UNARY(hsin, std::sin)
FAKECUDA_UNARY(hcos, std::cos)
FAKECUDA_UNARY(hfloor, std::floor)
FAKECUDA_UNARY(hceil, std::ceil)
FAKECUDA_UNARY(hrint, std::rint)
FAKECUDA_UNARY(htrunc, std::trunc)
FAKECUDA_UNARY(__habs, std::fabs)
FAKECUDA_BINARY(__hmax, fmaxf)
FAKECUDA_BINARY(__hmin, fminf)
FAKECUDA_BINARY(max, fmaxf)
FAKECUDA_BINARY(min, fminf)
#define FAKECUDA_PAIR(NAME, FUNCTION) \
    inline __half2 NAME(__half2 a) { return {FUNCTION(a.x), FUNCTION(a.y)}; } \
    inline __nv_bfloat162 NAME(__nv_bfloat162 a) { return {FUNCTION(a.x), FUNCTION(a.y)}; }
FAKECUDA_PAIR(h2exp, hexp)
FAKECUDA_PAIR(h2log, hlog)
FAKECUDA_PAIR(h2sqrt, hsqrt)
FAKECUDA_PAIR(h2rsqrt, hrsqrt)
FAKECUDA_PAIR(h2sin, hsin)
FAKECUDA_PAIR(h2cos, hcos)
FAKECUDA_PAIR(h2floor, hfloor)
FAKECUDA_PAIR(h2ceil, hceil)
FAKECUDA_PAIR(h2rint, hrint)
FAKECUDA_PAIR(h2trunc, htrunc)
#undef FAKECUDA_PAIR
#undef FAKECUDA_UNARY
#undef FAKECUDA_BINARY

inline bool __hisnan(__half a) { return std::isnan(float(a)); }
inline bool __hisnan(__nv_bfloat16 a) { return std::isnan(float(a)); }
inline __half fma(__half a, __half b, __half c) { return std::fma(float(a), float(b), float(c)); }
inline __nv_bfloat16 fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return std::fma(float(a), float(b), float(c)); }
inline __half __hfma(__half a, __half b, __half c) { return fma(a, b, c); }
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return fma(a, b, c); }
inline float __half2float(__half a) { return a; }
inline __half __float2half(float a) { return a; }
inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
