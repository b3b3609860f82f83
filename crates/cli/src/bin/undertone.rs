//! The program `undertone`, with the built-in kinds only.

use std::process::ExitCode;

fn main() -> ExitCode {
    undertone_cli::main(|kinds| kinds)
}
