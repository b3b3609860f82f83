//! glibc's allocator, told to keep what it has.

/// Stops glibc from returning large buffers to the system after every tensor operation and fetching them back, zeroed a
/// page at a time, for the next one: in a training step more than half of the time can go there. Memory then stays
/// at its peak, which a training process is at all the time anyway.
///
/// It belongs to a binary, not to a library, and must run before the first large allocation and the first thread.
pub fn tune() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: `mallopt` only sets parameters of the allocator; no other thread exists yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TOP_PAD, 64 << 20);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
