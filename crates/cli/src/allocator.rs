//! Allocator of the program, and settings of glibc's, so that it keeps freed memory.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static ALLOCATOR: BySize = BySize;

/// Allocator of the program: small objects by mimalloc, buffers of tensors by the system's allocator.
///
/// With a GPU, three threads pass each operation on, and each frees what another has allocated. glibc has one lock for that, over
/// which they wait for each other; mimalloc has none. Large buffers stay with glibc, because mimalloc rounds their sizes up, which
/// takes a fifth more memory in training on a CPU.
struct BySize;

/// Bytes of the smallest object that is left to the system's allocator.
const LARGE: usize = 32 << 10;

/// Returns whether the system's allocator has objects of this layout.
const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE
}

// SAFETY: both allocators keep the contract, and an object is freed by the one that made it, which its size tells.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for BySize {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => unsafe { System.alloc(layout) },
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => unsafe { System.alloc_zeroed(layout) },
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        match is_large(layout) {
            true => unsafe { System.dealloc(object, layout) },
            false => unsafe { MiMalloc.dealloc(object, layout) },
        }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_large(layout), size >= LARGE) {
            (true, true) => unsafe { System.realloc(object, layout, size) },
            (false, false) => unsafe { MiMalloc.realloc(object, layout, size) },
            _ => unsafe {
                let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                if !moved.is_null() {
                    std::ptr::copy_nonoverlapping(object, moved, layout.size().min(size));
                    self.dealloc(object, layout);
                }
                moved
            },
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_their_contents_when_they_move_between_the_allocators() {
        let contents = |length: usize| (0..length).map(|i| i as u8);
        for length in [1, LARGE - 1, LARGE, 3 * LARGE] {
            let mut bytes: Vec<u8> = contents(length).collect();
            for other in [LARGE - 1, 2 * LARGE, LARGE, 9, 5 * LARGE] {
                bytes.reserve_exact(other.saturating_sub(bytes.len()));
                assert!(bytes.iter().copied().eq(contents(bytes.len())), "{length} bytes, grown to {other}");
                bytes.truncate(other);
                bytes.shrink_to_fit();
                assert!(bytes.iter().copied().eq(contents(bytes.len())), "{length} bytes, shrunk to {other}");
            }
        }
        assert_eq!(vec![0_u64; LARGE].iter().sum::<u64>(), 0);
    }
}
