//! What a command says on standard output and standard error: the one place that writes there.
//!
//! `println!` panics where nobody reads or the disk is full, and so do its siblings; clippy refuses them in this program.

use crate::failure::Failure;
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, Write};

/// Writes a line of results on standard output, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::line(format_args!($($text)*))
    };
}

/// Writes a line about the results on standard error, as `eprintln!` does, if somebody reads it.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::note_line(format_args!($($text)*))
    };
}

/// Writes results on standard output.
///
/// # Errors
/// [`Failure::Unread`] when nobody reads them any more, as behind `| head`; in words when they cannot be written.
pub fn text(text: impl Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|e| unwritten(&e, "standard output"))
}

/// As [`text`](text()), on standard error: for a command that shows its results there.
///
/// # Errors
/// As [`text`](text()).
pub fn text_on_stderr(text: impl Display) -> Result<(), Failure> {
    write!(std::io::stderr().lock(), "{text}").map_err(|e| unwritten(&e, "standard error"))
}

/// What [`say!`] calls.
///
/// # Errors
/// As [`text`](text()).
pub fn line(line: Arguments) -> Result<(), Failure> {
    text(format_args!("{line}\n"))
}

/// What [`note!`] calls.
pub fn note_line(line: Arguments) {
    // What a command does must not depend on whether anybody hears about it.
    let _ = text_on_stderr(format_args!("{line}\n"));
}

/// What it means that something could not be written.
pub fn unwritten(error: &std::io::Error, on: &str) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Machine(format!("cannot write on {on}: {error}")),
    }
}
