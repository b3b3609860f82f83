//! Children of the comparison, and files that it cannot use.

use std::path::Path;
use std::process::Command;
use undertone_cli::Failure;

/// Runs a child to its end and gives back what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let said = format!("{command:?}");
    let output = command.output().map_err(|error| Failure::BadInput(format!("cannot start {said}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(5)..].join("\n");
    Err(Failure::Machine(format!("{said} failed ({}):\n{last}", output.status)))
}

/// This very program.
pub fn this_program() -> Result<Command, Failure> {
    let program = std::env::current_exe();
    Ok(Command::new(program.map_err(|e| Failure::Machine(format!("cannot find this very program: {e}")))?))
}

pub fn cannot_use(path: &Path, error: &std::io::Error) -> Failure {
    Failure::BadInput(format!("cannot use `{}`: {error}", path.display()))
}
