//! Settings of glibc's allocator, so that it keeps freed memory.

/// Stops glibc from returning large buffers to the system after every tensor operation and requesting them again,
/// zeroed page by page, for the next one: this can take more than half of the time of a training step. Memory then
/// stays at its peak; a training process is at its peak all the time anyway.
///
/// Belongs in a binary, not in a library, and must run before the first large allocation and the first thread.
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

/// Limits the process to `more` bytes beyond those it has now; a larger allocation fails. Only on Linux.
pub fn limit(more: u64) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let pages = std::fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or_default();
        // SAFETY: it only reads a constant of the system.
        #[allow(unsafe_code)]
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let bytes = pages * page.unsigned_abs() + more;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the structure lives as long as the call.
        #[allow(unsafe_code)]
        let done = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = more;
    Ok(())
}
