// What a kernel's CUDA C++ finds around it when it is compiled for the CPU: threads of a block as fibers of one thread, barriers,
// shared memory, and what the lanes of a warp show one another.
//
// It is put before the kernel's source in one file. Blocks run one after another; a thread runs until it waits for others. Under
// ThreadSanitizer the threads of a block are fibers of their own, and so are those of the next block: only barriers, atomics and
// the end of a launch order what they do. Two threads that a GPU may let meet are a race, whatever order they ran in here.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <tuple>
#include <type_traits>
#include <ucontext.h>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// What is kept of threads is this file's own business: ThreadSanitizer looks at kernels alone.
#define FAKECUDA_OWN __attribute__((no_sanitize_thread, noinline))
#else
#define FAKECUDA_OWN inline
#endif

struct dim3 {
    unsigned x, y, z;
};

namespace fakecuda {

constexpr size_t STACK = 512 << 10;
constexpr unsigned WARP = 32;
constexpr unsigned MOST_THREADS = 1024;

enum class Waits { no, block, warp, again, done };

// A thread of a block.
struct Thread {
    ucontext_t context;
    void *stack;
    dim3 index;
    unsigned number;
    Waits waits;
    int line;
    // What an operation of the warp shows to the other lanes.
    const void *shown;
    void *fiber;
};

struct Block {
    dim3 index;
    Thread threads[MOST_THREADS];
    char *shared;
    // What ThreadSanitizer knows the barriers by.
    char meeting, warp_meetings[MOST_THREADS / WARP];
};

static dim3 grid_size, block_size;
static unsigned thread_count, shared_bytes;
static void (*body)(void **);
static void **arguments;
static Block *block;
static Thread *thread;
static ucontext_t scheduler;
static void *scheduler_fiber;
static const char *failure;
static char failure_text[256];
// Two, for neighbours among the blocks are to be different threads to ThreadSanitizer.
static Block blocks[2];
// What a launch was given, and what it left behind: two, for what a thread leaves is not for the next one.
static char begun, ended;

FAKECUDA_OWN void released(void *what) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(what);
#else
    (void)what;
#endif
}

FAKECUDA_OWN void acquired(void *what) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(what);
#else
    (void)what;
#endif
}

FAKECUDA_OWN void switch_to(void *fiber) {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
#else
    (void)fiber;
#endif
}

FAKECUDA_OWN dim3 thread_index() { return thread->index; }
FAKECUDA_OWN dim3 block_index() { return block->index; }
FAKECUDA_OWN dim3 block_shape() { return block_size; }
FAKECUDA_OWN dim3 grid_shape() { return grid_size; }
FAKECUDA_OWN char *shared_memory() { return block->shared; }
FAKECUDA_OWN unsigned shared_memory_bytes() { return shared_bytes; }
FAKECUDA_OWN unsigned own_lane() { return thread->number % WARP; }
FAKECUDA_OWN unsigned lanes() { return std::min(WARP, thread_count - thread->number / WARP * WARP); }
FAKECUDA_OWN void show(const void *value) { thread->shown = value; }
FAKECUDA_OWN const void *shown_by(unsigned lane) { return block->threads[thread->number / WARP * WARP + lane].shown; }
FAKECUDA_OWN void fail(const char *text) { failure = text; }

// Waits for the block, or for the thread's warp.
FAKECUDA_OWN void wait(Waits what, int line) {
    Thread *self = thread;
    void *meeting = what == Waits::block ? &block->meeting : &block->warp_meetings[self->number / WARP];
    released(meeting);
    self->waits = what;
    self->line = line;
    switch_to(scheduler_fiber);
    swapcontext(&self->context, &scheduler);
    acquired(meeting);
}

// Lets other threads go on, and then asks again.
FAKECUDA_OWN void wait_and_ask_again() {
    Thread *self = thread;
    self->waits = Waits::again;
    switch_to(scheduler_fiber);
    swapcontext(&self->context, &scheduler);
}

// Shows `value` to the warp while `use` looks at what the others show.
template <class T, class F>
auto together(const T &value, int line, F use) {
    show(&value);
    wait(Waits::warp, line);
    auto result = use([](unsigned lane) -> const T & { return *static_cast<const T *>(shown_by(lane)); });
    wait(Waits::warp, line);
    return result;
}

// What a fiber does: its thread of one block, and when it is asked again, of the next one.
FAKECUDA_OWN void live() {
    for (;;) {
        acquired(&begun);
        body(arguments);
        released(&ended);
        Thread *self = thread;
        self->waits = Waits::done;
        switch_to(scheduler_fiber);
        swapcontext(&self->context, &scheduler);
    }
}

// Lets the threads from `first` to `last` go on that all wait for `what`; whether there are any.
FAKECUDA_OWN bool let_go(Waits what, unsigned first, unsigned last) {
    bool any = false;
    int line = 0;
    for (unsigned n = first; n < last; n++) {
        Thread &one = block->threads[n];
        if (one.waits == Waits::done) continue;
        if (one.waits != what) return false;
        if (any && line != one.line && !failure) {
            snprintf(failure_text, sizeof failure_text, "threads wait at line %d and at line %d for one another", line, one.line);
            failure = failure_text;
        }
        line = one.line;
        any = true;
    }
    for (unsigned n = first; n < last; n++)
        if (block->threads[n].waits == what) block->threads[n].waits = Waits::no;
    return any;
}

// Runs one block to its end.
FAKECUDA_OWN void run(Block &one) {
    block = &one;
    for (;;) {
        bool ran = false, alive = false;
        for (unsigned n = 0; n < thread_count; n++) {
            Thread &each = one.threads[n];
            alive |= each.waits != Waits::done;
            if (each.waits != Waits::no && each.waits != Waits::again) continue;
            each.waits = Waits::no;
            thread = &each;
            switch_to(each.fiber);
            swapcontext(&scheduler, &each.context);
            // A thread that asks again has found nothing new.
            ran |= each.waits != Waits::again;
        }
        if (!alive) return;
        bool went_on = let_go(Waits::block, 0, thread_count);
        for (unsigned n = 0; n < thread_count; n += WARP) went_on |= let_go(Waits::warp, n, std::min(n + WARP, thread_count));
        if (!ran && !went_on) {
            failure = "threads wait for others that never come";
            return;
        }
    }
}

FAKECUDA_OWN void *pages(size_t bytes) {
    void *found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) abort();
    return found;
}

// Of the exact size, so that AddressSanitizer sees what lies beyond; filled with what is no number. ThreadSanitizer gets fresh
// pages for every block, for memory that two blocks have after one another is not shared between them.
FAKECUDA_OWN char *shared_memory_of_a_block() {
    if (!shared_bytes) return nullptr;
    void *found = nullptr;
#if defined(__SANITIZE_THREAD__)
    found = pages(shared_bytes);
#else
    if (posix_memalign(&found, 1024, shared_bytes)) abort();
#endif
    memset(found, 0xFF, shared_bytes);
    return static_cast<char *>(found);
}

FAKECUDA_OWN void free_shared_memory(Block &one) {
#if defined(__SANITIZE_THREAD__)
    if (one.shared) munmap(one.shared, shared_bytes);
#else
    free(one.shared);
#endif
    one.shared = nullptr;
}

FAKECUDA_OWN void make_fibers(Block &one) {
    for (unsigned n = 0; n < thread_count; n++) {
        Thread &each = one.threads[n];
        each.number = n;
        each.index = {n % block_size.x, n / block_size.x % block_size.y, n / block_size.x / block_size.y};
        if (!each.stack) each.stack = pages(STACK);
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack;
        each.context.uc_stack.ss_size = STACK;
        each.context.uc_link = nullptr;
        makecontext(&each.context, reinterpret_cast<void (*)()>(live), 0);
#if defined(__SANITIZE_THREAD__)
        each.fiber = __tsan_create_fiber(0);
#endif
    }
}

FAKECUDA_OWN void end_fibers(Block &one) {
#if defined(__SANITIZE_THREAD__)
    for (unsigned n = 0; n < thread_count; n++) {
        __tsan_destroy_fiber(one.threads[n].fiber);
        munmap(one.threads[n].stack, STACK);
        one.threads[n].stack = nullptr;
    }
#else
    (void)one;
#endif
}

// Runs a grid whose threads never wait for one another, on this stack.
FAKECUDA_OWN void run_alone() {
    block = &blocks[0];
    thread = &block->threads[0];
    dim3 &at = block->index, &inside = thread->index;
    for (at.z = 0; at.z < grid_size.z; at.z++)
        for (at.y = 0; at.y < grid_size.y; at.y++)
            for (at.x = 0; at.x < grid_size.x; at.x++)
                for (inside.z = 0; inside.z < block_size.z; inside.z++)
                    for (inside.y = 0; inside.y < block_size.y; inside.y++)
                        for (inside.x = 0; inside.x < block_size.x; inside.x++) body(arguments);
}

FAKECUDA_OWN void run_together() {
    size_t count = size_t(grid_size.x) * grid_size.y * grid_size.z;
    size_t used = std::min<size_t>(2, count);
    for (size_t n = 0; n < used; n++) make_fibers(blocks[n]);
    for (size_t n = 0; n < count && !failure; n++) {
        Block &one = blocks[n % 2];
        one.index = {unsigned(n % grid_size.x), unsigned(n / grid_size.x % grid_size.y), unsigned(n / grid_size.x / grid_size.y)};
        for (unsigned each = 0; each < thread_count; each++) one.threads[each].waits = Waits::no;
        one.shared = shared_memory_of_a_block();
        run(one);
        free_shared_memory(one);
    }
    for (size_t n = 0; n < used; n++) end_fibers(blocks[n]);
}

// Runs the grid; a text where its threads do not come to an end.
FAKECUDA_OWN const char *launch(void (*kernel)(void **), void **values, const unsigned *grid, const unsigned *shape, unsigned shared) {
    grid_size = {grid[0], grid[1], grid[2]};
    block_size = {shape[0], shape[1], shape[2]};
    thread_count = shape[0] * shape[1] * shape[2];
    shared_bytes = shared;
    body = kernel;
    arguments = values;
    failure = nullptr;
#if defined(__SANITIZE_THREAD__)
    scheduler_fiber = __tsan_get_current_fiber();
#endif
    released(&begun);
#if defined(FAKECUDA_ALONE) && !defined(__SANITIZE_THREAD__)
    run_alone();
#else
    run_together();
#endif
    acquired(&ended);
    return failure;
}

// Calls the kernel with what the addresses point to, as hardware copies it.
template <class... A, size_t... N>
FAKECUDA_OWN void call(void (*kernel)(A...), void **values, std::index_sequence<N...>) {
    std::tuple<std::remove_cv_t<A>...> own;
    (memcpy(&std::get<N>(own), values[N], sizeof(std::get<N>(own))), ...);
    kernel(std::get<N>(own)...);
}

template <class... A>
FAKECUDA_OWN void call(void (*kernel)(A...), void **values) {
    call(kernel, values, std::index_sequence_for<A...>{});
}

} // namespace fakecuda
