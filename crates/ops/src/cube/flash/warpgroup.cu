// Attention by `wgmma` on compute capability 9.0, for heads of 64, without a mask and without dropout. Scores, weights and their gradients
// stay in registers; those of a product are the left factor of the next one.
//
// A block of 128 threads has 64 rows, of queries or of keys, and goes through the rows of the other side, of which the copy engine brings 64
// at a time, the next ones while it computes. Queries, keys and values are `[batch · heads, time, 64]`, queries times the scale of scores.
//
// Constants: FORWARD, BACKWARD_QUERY and BACKWARD_KEY_VALUE, of which one is true: the kernel that is compiled.

// Sizes in rows, and the width of an output's row in numbers.
struct Call {
    u64 queries, keys, heads, width;
    float scale;
};

constexpr int ROWS = 64;
constexpr u32 BOX_BYTES = ROWS * ROW_BYTES;
constexpr float LOG2_E = 1.4426950408889634f;
// Score of what does not exist. No maximum is as small, so that differences from it are finite.
constexpr float HIDDEN = -1e30f;

__device__ __forceinline__ float exp_2(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Own row of the block and, with `half`, the eighth one after it.
__device__ __forceinline__ int own_row(int half) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half; }

// Sum and maximum over the four threads that have the same rows.
__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}
__device__ __forceinline__ float top_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}

// The block's own rows of a tensor as left factors of products, one for each 16 numbers; zeros beyond its end.
__device__ __forceinline__ void own_rows(u32 (&factors)[4][4], const u16 *from, int first, int count) {
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int row = first + own_row(n % 2), column = 16 * step + n / 2 * 8 + threadIdx.x % 4 * 2;
            factors[step][n] = row < count ? *reinterpret_cast<const u32 *>(from + row * ROW + column) : 0;
        }
    }
}

// Sums of a tile of 64 × 64 as left factors.
__device__ __forceinline__ void as_factors(u32 (&factors)[4][4], const float (&tile)[32]) {
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int n = 0; n < 4; n++) factors[step][n] = low_pair(tile[8 * step + 2 * n], tile[8 * step + 2 * n + 1]);
    }
}

__device__ __forceinline__ void clear(float (&tile)[32]) {
#pragma unroll
    for (int n = 0; n < 32; n++) tile[n] = 0.0f;
}

// Writes the block's rows, times a factor for each half, to `[batch, time, heads · 64]`.
__device__ __forceinline__ void write_rows(Out *to, const float (&tile)[32], float of_first, float of_second, int first, int count, u64 width) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first + own_row(half);
        const float factor = half ? of_second : of_first;
        if (row < count) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float first_number = tile[4 * n + 2 * half] * factor, second_number = tile[4 * n + 2 * half + 1] * factor;
                write_pair(to + row * width + 8 * n + threadIdx.x % 4 * 2, first_number, second_number);
            }
        }
    }
}

// Two tensors' rows in shared memory, and the next ones.
struct Rows {
    u32 boxes, barriers;
    const TensorMap *first, *second;
    int count, head;

    __device__ __forceinline__ u32 box(int piece, int which) const { return boxes + (piece % 2 * 2 + which) * BOX_BYTES; }
    __device__ __forceinline__ int pieces() const { return (count + ROWS - 1) / ROWS; }

    __device__ __forceinline__ void bring(int piece) const {
        if (threadIdx.x == 0 && piece < pieces()) {
            const u32 barrier = barriers + 8 * (piece % 2);
            announce(barrier, 2 * BOX_BYTES);
            fetch(box(piece, 0), first, barrier, 0, piece * ROWS, head);
            fetch(box(piece, 1), second, barrier, 0, piece * ROWS, head);
        }
    }

    __device__ __forceinline__ void open() const {
        if (threadIdx.x == 0) begin(barriers), begin(barriers + 8);
        __syncthreads();
        bring(0);
        bring(1);
    }

    __device__ __forceinline__ void await(int piece) const { wait(barriers + 8 * (piece % 2), piece / 2 % 2); }

    // The last warp that is done with a piece has another one brought in its place.
    __device__ __forceinline__ void release(int piece) const {
        __syncthreads();
        bring(piece + 2);
    }
};

// Sets to zero what belongs to rows of the other side beyond the last one, `seen` rows from the tile's first.
__device__ __forceinline__ void clear_beyond(float (&tile)[32], int seen) {
    if (seen < ROWS) {
#pragma unroll
        for (int n = 0; n < 32; n++) {
            if (n / 4 * 8 + int(threadIdx.x % 4 * 2) + n % 2 >= seen) tile[n] = 0.0f;
        }
    }
}

// Product of own rows and the rows in a box.
__device__ __forceinline__ void product(float (&sums)[32], const u32 (&own)[4][4], u32 box) {
    multiply<true, false>(sums, own[0], descriptor<true>(box, 0));
#pragma unroll
    for (int step = 1; step < 4; step++) multiply<true>(sums, own[step], descriptor<true>(box, step));
}

// Adds the rows in a box, weighted by a tile of factors.
__device__ __forceinline__ void add_rows(float (&sums)[32], const u32 (&weights)[4][4], u32 box) {
#pragma unroll
    for (int step = 0; step < 4; step++) multiply<false>(sums, weights[step], descriptor<false>(box, step));
}

#if FORWARD
extern "C" __global__ void __launch_bounds__(128, 4)
warpgroup_flash_forward(const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values, const u16 *query, Out *out,
                        float *sums, const __grid_constant__ Call call) {
    __shared__ __align__(1024) unsigned char boxes[4 * BOX_BYTES];
    __shared__ u64 barriers[2];
    const int head = blockIdx.z * int(call.heads) + blockIdx.y, first = blockIdx.x * ROWS, queries = call.queries;
    const Rows rows = {address_of(boxes), address_of(barriers), &keys, &values, int(call.keys), head};
    rows.open();
    u32 own[4][4];
    own_rows(own, query + u64(head) * queries * ROW, first, queries);
    float mixed[32], highest[2] = {HIDDEN, HIDDEN}, totals[2] = {0.0f, 0.0f};
    clear(mixed);
    for (int piece = 0; piece < rows.pieces(); piece++) {
        rows.await(piece);
        float scores[32];
        begin_products();
        product(scores, own, rows.box(piece, 0));
        end_products();
        if ((piece + 1) * ROWS > rows.count) {
#pragma unroll
            for (int n = 0; n < 32; n++) {
                const int column = n / 4 * 8 + threadIdx.x % 4 * 2 + n % 2;
                if (piece * ROWS + column >= rows.count) scores[n] = HIDDEN;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = scores[2 * half];
#pragma unroll
            for (int n = 0; n < 8; n++) top = fmaxf(top, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
            top = fmaxf(highest[half], top_of_row(top));
            const float before = exp_2((highest[half] - top) * LOG2_E), shift = top * LOG2_E;
            highest[half] = top;
            totals[half] *= before;
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    scores[4 * n + e] = exp_2(scores[4 * n + e] * LOG2_E - shift);
                    totals[half] += scores[4 * n + e];
                    mixed[4 * n + e] *= before;
                }
            }
        }
        u32 weights[4][4];
        as_factors(weights, scores);
        begin_products();
        add_rows(mixed, weights, rows.box(piece, 1));
        end_products();
        rows.release(piece);
    }
    float shares[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float total = sum_of_row(totals[half]);
        const int row = first + own_row(half);
        shares[half] = 1.0f / total;
        if (threadIdx.x % 4 == 0 && row < queries) sums[u64(head) * queries + row] = highest[half] + logf(total);
    }
    Out *to = out + blockIdx.z * u64(queries) * call.width + blockIdx.y * ROW;
    write_rows(to, mixed, shares[0], shares[1], first, queries, call.width);
}
#endif

#if BACKWARD_QUERY
// Gradient of queries; and `deltas`, each query's sum of its output times the output's gradient.
extern "C" __global__ void __launch_bounds__(128, 3)
warpgroup_flash_backward_query(const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values, const u16 *query,
                               const u16 *d_out, const Out *out, const float *sums, Out *d_query, float *deltas,
                               const __grid_constant__ Call call) {
    __shared__ __align__(1024) unsigned char boxes[4 * BOX_BYTES];
    __shared__ u64 barriers[2];
    const int head = blockIdx.z * int(call.heads) + blockIdx.y, first = blockIdx.x * ROWS, queries = call.queries;
    const Rows rows = {address_of(boxes), address_of(barriers), &keys, &values, int(call.keys), head};
    rows.open();
    const u64 of_rows = u64(head) * queries, of_out = blockIdx.z * u64(queries) * call.width + blockIdx.y * ROW;
    u32 own[4][4], d_own[4][4];
    own_rows(own, query + of_rows * ROW, first, queries);
    own_rows(d_own, d_out + of_rows * ROW, first, queries);
    float shift[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first + own_row(half);
        float part = 0.0f;
        shift[half] = 0.0f;
        if (row < queries) {
            shift[half] = sums[of_rows + row] * LOG2_E;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float2 pair = read_pair(out + of_out + row * call.width + 8 * n + threadIdx.x % 4 * 2);
                const u32 change = d_own[n / 2][n % 2 * 2 + half];
                part += pair.x * low_number(change & 0xFFFF) + pair.y * low_number(change >> 16);
            }
        }
        delta[half] = sum_of_row(part);
        if (threadIdx.x % 4 == 0 && row < queries) deltas[of_rows + row] = delta[half];
    }
    float d_queries[32];
    clear(d_queries);
    for (int piece = 0; piece < rows.pieces(); piece++) {
        rows.await(piece);
        float scores[32], changes[32];
        begin_products();
        product(scores, own, rows.box(piece, 0));
        product(changes, d_own, rows.box(piece, 1));
        end_products();
#pragma unroll
        for (int n = 0; n < 32; n++) scores[n] = exp_2(scores[n] * LOG2_E - shift[n / 2 % 2]) * (changes[n] - delta[n / 2 % 2]);
        clear_beyond(scores, rows.count - piece * ROWS);
        u32 d_scores[4][4];
        as_factors(d_scores, scores);
        begin_products();
        add_rows(d_queries, d_scores, rows.box(piece, 0));
        end_products();
        rows.release(piece);
    }
    write_rows(d_query + of_out, d_queries, call.scale, call.scale, first, queries, call.width);
}
#endif

#if BACKWARD_KEY_VALUE
// Gradients of keys and values. Queries are multiplied by the scale of scores, so the keys' gradient needs none.
extern "C" __global__ void __launch_bounds__(128, 2)
warpgroup_flash_backward_key_value(const __grid_constant__ TensorMap query, const __grid_constant__ TensorMap d_out, const u16 *keys,
                                   const u16 *values, const float *sums, const float *deltas, Out *d_key, Out *d_value,
                                   const __grid_constant__ Call call) {
    __shared__ __align__(1024) unsigned char boxes[4 * BOX_BYTES];
    __shared__ u64 barriers[2];
    const int head = blockIdx.z * int(call.heads) + blockIdx.y, first = blockIdx.x * ROWS, count = call.keys;
    const Rows rows = {address_of(boxes), address_of(barriers), &query, &d_out, int(call.queries), head};
    rows.open();
    u32 own_keys[4][4], own_values[4][4];
    own_rows(own_keys, keys + u64(head) * count * ROW, first, count);
    own_rows(own_values, values + u64(head) * count * ROW, first, count);
    // Of 64 queries the logarithms of their sums, and their deltas: a thread reads one of them for the piece after this one.
    __shared__ float of_queries[2][2][ROWS];
    const float *of_thread = (threadIdx.x < ROWS ? sums : deltas) + u64(head) * call.queries;
    const auto read = [&](int piece) {
        const int row = piece * ROWS + threadIdx.x % ROWS;
        return row < rows.count ? of_thread[row] : 0.0f;
    };
    of_queries[0][threadIdx.x / ROWS][threadIdx.x % ROWS] = read(0);
    __syncthreads();
    float d_keys[32], d_values[32];
    clear(d_keys);
    clear(d_values);
    for (int piece = 0; piece < rows.pieces(); piece++) {
        const float next = read(piece + 1);
        rows.await(piece);
        float scores[32], changes[32];
        begin_products();
        product(scores, own_keys, rows.box(piece, 0));
        product(changes, own_values, rows.box(piece, 1));
        end_products();
#pragma unroll
        for (int n = 0; n < 32; n++) {
            const int query = n / 4 * 8 + threadIdx.x % 4 * 2 + n % 2;
            scores[n] = exp_2((scores[n] - of_queries[piece % 2][0][query]) * LOG2_E);
            changes[n] = scores[n] * (changes[n] - of_queries[piece % 2][1][query]);
        }
        clear_beyond(scores, rows.count - piece * ROWS);
        clear_beyond(changes, rows.count - piece * ROWS);
        u32 weights[4][4], d_scores[4][4];
        as_factors(weights, scores);
        as_factors(d_scores, changes);
        begin_products();
        add_rows(d_values, weights, rows.box(piece, 1));
        add_rows(d_keys, d_scores, rows.box(piece, 0));
        end_products();
        of_queries[(piece + 1) % 2][threadIdx.x / ROWS][threadIdx.x % ROWS] = next;
        rows.release(piece);
    }
    const u64 of_y = blockIdx.z * u64(count) * call.width + blockIdx.y * ROW;
    write_rows(d_key + of_y, d_keys, 1.0f, 1.0f, first, count, call.width);
    write_rows(d_value + of_y, d_values, 1.0f, 1.0f, first, count, call.width);
}
#endif
