// Products by a warp: `nvcuda::wmma`, and the instructions of PTX that CubeCL writes as assembly, which become calls of `ptx_…`.
// Sums are taken in f32, or in the accumulator's type where that is f64.

#pragma once

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <class T> struct storage { using type = T; };
template <> struct storage<precision::tf32> { using type = float; };

// A matrix of M × K, K × N or M × N, of which lane L holds the elements L, L + 32 and so on, row by row. Which lane holds what is
// unspecified on a GPU, too.
template <class USE, int M, int N, int K, class T, class LAYOUT = void> struct fragment {
    using element = typename storage<T>::type;
    static constexpr int rows = std::is_same_v<USE, matrix_b> ? K : M;
    static constexpr int columns = std::is_same_v<USE, matrix_a> ? K : N;
    static constexpr int num_elements = rows * columns / 32;
    element x[num_elements];
    static int row(int t) { return (t * 32 + int(fakecuda::own_lane())) / columns; }
    static int column(int t) { return (t * 32 + int(fakecuda::own_lane())) % columns; }
};

template <class F, class V> void fill_fragment(F &to, V value) {
    for (auto &each : to.x) each = value;
}

template <class USE, int M, int N, int K, class T, class L, class P>
void load_matrix_sync(fragment<USE, M, N, K, T, L> &to, const P *from, unsigned stride) {
    for (int t = 0; t < to.num_elements; t++)
        to.x[t] = std::is_same_v<L, col_major> ? from[to.column(t) * stride + to.row(t)] : from[to.row(t) * stride + to.column(t)];
}

template <int M, int N, int K, class T, class P>
void load_matrix_sync(fragment<accumulator, M, N, K, T> &to, const P *from, unsigned stride, layout_t layout) {
    for (int t = 0; t < to.num_elements; t++)
        to.x[t] = layout == mem_col_major ? from[to.column(t) * stride + to.row(t)] : from[to.row(t) * stride + to.column(t)];
}

template <int M, int N, int K, class T, class P>
void store_matrix_sync(P *to, const fragment<accumulator, M, N, K, T> &from, unsigned stride, layout_t layout) {
    for (int t = 0; t < from.num_elements; t++)
        to[layout == mem_col_major ? from.column(t) * stride + from.row(t) : from.row(t) * stride + from.column(t)] = from.x[t];
}

// Rounds what a matrix unit rounds: a float's 10 highest bits of the fraction.
inline float __float_to_tf32(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::isfinite(value) ? std::bit_cast<float>((bits + 0x0FFF + (bits >> 13 & 1)) & ~0x1FFFu) : value;
}

template <int M, int N, int K, class A, class LA, class LB, class C, class D>
void mma_sync(fragment<accumulator, M, N, K, D> &to, const fragment<matrix_a, M, N, K, A, LA> &a,
              const fragment<matrix_b, M, N, K, A, LB> &b, const fragment<accumulator, M, N, K, C> &c) {
    struct Shown { decltype(&a) first; decltype(&b) second; } own{&a, &b};
    auto sums = fakecuda::together(own, 0, [&](auto of) {
        fragment<accumulator, M, N, K, D> found;
        for (int t = 0; t < found.num_elements; t++) {
            float sum = c.x[t];
            for (int k = 0; k < K; k++) {
                int left = found.row(t) * K + k, right = k * N + found.column(t);
                sum += float(of(left % 32).first->x[left / 32]) * float(of(right % 32).second->x[right / 32]);
            }
            found.x[t] = sum;
        }
        return found;
    });
    to = sums;
}

} // namespace nvcuda::wmma

namespace fakecuda {

template <class T> T as(uint32_t bits, int place) { return std::bit_cast<T>(static_cast<uint16_t>(bits >> 16 * place)); }

// `mma.m16n8kK` with sums in f32; the lanes' elements by the tables of PTX's "Matrix Fragments for mma.m16n8k16" and the like. `T`
// is of 2 bytes, two to a register, or a float of tf32, one to a register.
template <class T, int K> struct Product {
    static constexpr int each = sizeof(T) == 2 ? 2 : 1;
    static constexpr int lefts = 16 * K / 32 / each, rights = 8 * K / 32 / each;
    uint32_t a[lefts], b[rights];

    static float number(uint32_t bits, int place) {
        if constexpr (each == 2) return as<T>(bits, place);
        else return nvcuda::wmma::__float_to_tf32(std::bit_cast<float>(bits));
    }

    void add(float &d0, float &d1, float &d2, float &d3, float c0, float c1, float c2, float c3) {
        float sums[4] = {c0, c1, c2, c3};
        struct Four { float x[4]; };
        Four found = together(*this, 0, [&](auto of) {
            for (int n = 0; n < 4; n++) {
                int row = own_lane() / 4 + n / 2 * 8, column = own_lane() % 4 * 2 + n % 2;
                for (int k = 0; k < K; k++) {
                    // Registers of `a` go through the rows' halves first, then through columns; a register holds `each` columns
                    // of a lane, and four lanes hold a block of them.
                    int turn = k / (4 * each), inside = k % (4 * each);
                    const Product &left = of(row % 8 * 4 + inside / each), &right = of(column * 4 + inside / each);
                    sums[n] += number(left.a[turn * 2 + row / 8], inside % each) * number(right.b[turn], inside % each);
                }
            }
            return Four{{sums[0], sums[1], sums[2], sums[3]}};
        });
        d0 = found.x[0], d1 = found.x[1], d2 = found.x[2], d3 = found.x[3];
    }
};

// Matrices of 8 × 8 numbers of 2 bytes in shared memory, whose rows begin where the lanes say.
template <int COUNT> struct Rows {
    uint32_t address;
    uint32_t values[COUNT];

    static uint16_t *at(uint32_t row, int column) {
        if (row + 2 * column + 2 > shared_memory_bytes()) fail("a matrix in shared memory leaves it");
        return reinterpret_cast<uint16_t *>(shared_memory() + row) + column;
    }

    void load(bool transposed) {
        Rows found = together(*this, 0, [&](auto of) {
            Rows own = *this;
            for (int n = 0; n < COUNT; n++) {
                int row = own_lane() / 4, column = own_lane() % 4 * 2;
                uint16_t low = transposed ? *at(of(n * 8 + column).address, row) : *at(of(n * 8 + row).address, column);
                uint16_t high = transposed ? *at(of(n * 8 + column + 1).address, row) : *at(of(n * 8 + row).address, column + 1);
                own.values[n] = low | uint32_t(high) << 16;
            }
            return own;
        });
        *this = found;
    }

    void store(bool transposed) {
        together(*this, 0, [&](auto of) {
            for (int n = 0; n < COUNT; n++) {
                int row = own_lane() / 4, column = own_lane() % 4 * 2;
                for (int half = 0; half < 2; half++) {
                    uint16_t value = values[n] >> 16 * half;
                    if (transposed) *at(of(n * 8 + column + half).address, row) = value;
                    else *at(of(n * 8 + row).address, column + half) = value;
                }
            }
            return 0;
        });
    }
};

} // namespace fakecuda

#define FAKECUDA_MMA_K16(NAME, T) \
    template <class D> void NAME(D &d0, D &d1, D &d2, D &d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, \
                                 uint32_t b1, float c0, float c1, float c2, float c3) { \
        fakecuda::Product<T, 16>{{a0, a1, a2, a3}, {b0, b1}}.add(d0, d1, d2, d3, c0, c1, c2, c3); \
    }
#define FAKECUDA_MMA_K8(NAME, T) \
    template <class D> void NAME(D &d0, D &d1, D &d2, D &d3, uint32_t a0, uint32_t a1, uint32_t b0, float c0, float c1, float c2, \
                                 float c3) { \
        fakecuda::Product<T, 8>{{a0, a1}, {b0}}.add(d0, d1, d2, d3, c0, c1, c2, c3); \
    }
FAKECUDA_MMA_K16(ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, __nv_bfloat16)
FAKECUDA_MMA_K16(ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, __half)
FAKECUDA_MMA_K8(ptx_mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32, __nv_bfloat16)
FAKECUDA_MMA_K8(ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32, __half)
#undef FAKECUDA_MMA_K16
#undef FAKECUDA_MMA_K8

inline void ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float &d0, float &d1, float &d2, float &d3, uint32_t a0,
                                                                  uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                                                  uint32_t b1, float c0, float c1, float c2, float c3) {
    fakecuda::Product<float, 8>{{a0, a1, a2, a3}, {b0, b1}}.add(d0, d1, d2, d3, c0, c1, c2, c3);
}

template <bool TRANSPOSED, class... T> void fakecuda_load(uint32_t address, T &...to) {
    fakecuda::Rows<sizeof...(T)> rows{address, {}};
    rows.load(TRANSPOSED);
    int n = 0;
    ((to = rows.values[n++]), ...);
}

template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x1_shared__cta_b16(T &a, uint32_t at) { fakecuda_load<false>(at, a); }
template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x2_shared__cta_b16(T &a, T &b, uint32_t at) { fakecuda_load<false>(at, a, b); }
template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x4_shared__cta_b16(T &a, T &b, T &c, T &d, uint32_t at) {
    fakecuda_load<false>(at, a, b, c, d);
}
template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x1_trans_shared__cta_b16(T &a, uint32_t at) { fakecuda_load<true>(at, a); }
template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared__cta_b16(T &a, T &b, uint32_t at) { fakecuda_load<true>(at, a, b); }
template <class T> void ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared__cta_b16(T &a, T &b, T &c, T &d, uint32_t at) {
    fakecuda_load<true>(at, a, b, c, d);
}
inline void ptx_stmatrix_sync_aligned_m8n8_x1_shared__cta_b16(uint32_t at, uint32_t a) { fakecuda::Rows<1>{at, {a}}.store(false); }
inline void ptx_stmatrix_sync_aligned_m8n8_x2_shared__cta_b16(uint32_t at, uint32_t a, uint32_t b) {
    fakecuda::Rows<2>{at, {a, b}}.store(false);
}
inline void ptx_stmatrix_sync_aligned_m8n8_x4_shared__cta_b16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    fakecuda::Rows<4>{at, {a, b, c, d}}.store(false);
}

// A number and a NaN are a NaN.
inline void ptx_max_NaN_f32(float &to, float a, float b) { to = std::isnan(a) || std::isnan(b) ? NAN : fmaxf(a, b); }
inline void ptx_min_NaN_f32(float &to, float a, float b) { to = std::isnan(a) || std::isnan(b) ? NAN : fminf(a, b); }

// CubeCL hands over what it adds to as a pointer to what is not written.
inline void ptx_atom_relaxed_add_f32(float &before, const float *address, float value) {
    before = atomicAdd(const_cast<float *>(address), value);
}
