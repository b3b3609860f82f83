//! The program `undertone`, with custom kinds.

use crate::commands::Command;
use crate::failure::Failure;
use crate::kinds::Kinds;
use crate::program::Program;
use std::process::ExitCode;

/// Runs the program `undertone` with the kinds that `configure` adds; a configuration can then name them.
///
/// If a name is already registered, the program ends with exit status 2 and an error message.
pub fn main(configure: impl FnOnce(Kinds) -> Kinds) -> ExitCode {
    let program = Program { name: "undertone", configs: None };
    program.run(|command: Command, log_format| {
        configure(Kinds::default()).registered().map_err(Failure::BadInput)?;
        command.run(log_format)
    })
}
