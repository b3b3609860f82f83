//! The program without kinds of anybody's own.

use std::process::ExitCode;

fn main() -> ExitCode {
    undertone_cli::main(|kinds| kinds)
}
