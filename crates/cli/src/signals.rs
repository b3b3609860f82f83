//! Signals that end the program.

use crate::failure::Failure;

/// Calls `end` at every SIGINT, SIGTERM and SIGHUP. Those that whoever started the program has it ignore stay ignored: `nohup` does so
/// with SIGHUP, and a shell script with SIGINT for what it starts in the background.
///
/// # Errors
/// When the system refuses, or on a second call.
pub fn on_end(end: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let ignored = ignored();
    // This handles all of them, whatever was set before.
    ctrlc::set_handler(end).map_err(|e| Failure::Machine(format!("cannot handle signals: {e}")))?;
    ignored.into_iter().for_each(ignore);
    Ok(())
}

/// Ignores the signal of a file that grows beyond a limit (`ulimit -f`), which would end the program without a word: writing then
/// fails with an error.
pub fn survive_large_files() {
    #[cfg(unix)]
    ignore(libc::SIGXFSZ);
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn ignored() -> Vec<i32> {
    let is_ignored = |signal: &i32| {
        // SAFETY: all zeros are a valid `sigaction`, which is written to, and without a new action nothing changes.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
        }
    };
    [libc::SIGHUP, libc::SIGINT, libc::SIGTERM].into_iter().filter(is_ignored).collect()
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn ignore(signal: i32) {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn ignored() -> Vec<i32> {
    Vec::new()
}

#[cfg(not(unix))]
fn ignore(_: i32) {}
