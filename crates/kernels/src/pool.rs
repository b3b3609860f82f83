//! Threads of the kernels.

/// Runs `f` on one of the threads that kernels divide their work among. Kernels within it start without waking that thread first, which
/// takes longer than a short kernel does. All of them wait for `f` if there is one thread.
pub fn within<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}
