//! Writes to standard output and standard error. No other module of this program writes there.
//!
//! `println!` and its siblings panic if the reader has closed the pipe or the disk is full. Clippy forbids them here.

use crate::failure::Failure;
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, Write};

/// Writes a line of results to standard output, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::line(format_args!($($text)*))
    };
}

/// Writes a line about the results to standard error, as `eprintln!` does. Write errors are ignored.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::note_line(format_args!($($text)*))
    };
}

/// Writes results to standard output.
///
/// # Errors
/// [`Failure::Unread`] if the reader has closed the pipe, as with `| head`; a message for any other write error.
pub fn text(text: impl Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|e| unwritten(&e, "standard output"))
}

/// Like [`text`](text()), but on standard error: for a command that shows its results there.
///
/// # Errors
/// As [`text`](text()).
pub fn text_on_stderr(text: impl Display) -> Result<(), Failure> {
    write!(std::io::stderr().lock(), "{text}").map_err(|e| unwritten(&e, "standard error"))
}

/// Function behind [`say!`].
///
/// # Errors
/// As [`text`](text()).
pub fn line(line: Arguments) -> Result<(), Failure> {
    text(format_args!("{line}\n"))
}

/// Function behind [`note!`].
pub fn note_line(line: Arguments) {
    // The result of a command must not depend on whether standard error is read.
    let _ = text_on_stderr(format_args!("{line}\n"));
}

/// Returns the failure for a write error on the stream called `on`.
pub fn unwritten(error: &std::io::Error, on: &str) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Machine(format!("cannot write on {on}: {error}")),
    }
}
