//! Processes that this one starts.

use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;
use undertone_cli::Failure;

/// The repository's root.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Cargo. What the cargo that started this process said of its package is left out: build scripts that
/// look at it would run again, and all that depends on them be built again, whenever cargo is called by hand in between.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(of_package)).for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

/// This very program, for a process of its own.
pub fn this_program() -> Result<Command, Failure> {
    let program = std::env::current_exe();
    Ok(Command::new(program.map_err(|e| Failure::Machine(format!("cannot find this very program: {e}")))?))
}

/// A folder that is removed with the value.
pub fn work_folder() -> Result<TempDir, Failure> {
    tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot make a temporary directory: {e}")))
}

/// Runs a command to its end, and returns what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let said = format!("{command:?}");
    let output = command.output().map_err(|e| Failure::BadInput(format!("cannot start {said}: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // Only the last of what it complained about: Python puts the error below its traceback.
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(5)..].join("\n");
    let text = format!("{said} failed ({}):\n{last}", output.status);
    // Our own 2, and that of Python's argparse: an option it does not take.
    Err(if output.status.code() == Some(2) { Failure::BadInput(text) } else { Failure::Machine(text) })
}

/// The last line of a child's output that is JSON.
pub fn json_line(text: &str) -> Result<Value, Failure> {
    let line = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let last = || text.trim_end().lines().last().unwrap_or_default();
    line.ok_or_else(|| Failure::Machine(format!("a child ended with `{}` in place of a line of JSON", last())))
}

/// Waits until a process ends. As soon as it may no longer run, it is killed, and there is no status.
pub fn ended(child: &mut Child, may_run: impl Fn() -> bool) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if !may_run() {
            // It may have ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program as a process in another folder finds it: a bare name is looked for in PATH, any other is relative to this folder.
pub fn from_here(program: &Path) -> Result<PathBuf, Failure> {
    if program.components().count() > 1 {
        std::path::absolute(program).map_err(|error| cannot_use(program, &error))
    } else {
        Ok(program.to_owned())
    }
}

/// Reason why a file cannot be read or written.
pub fn cannot_use(path: &Path, error: &std::io::Error) -> Failure {
    Failure::BadInput(format!("cannot use `{}`: {error}", path.display()))
}

/// Reason why cargo does not run.
pub fn no_cargo(error: &std::io::Error) -> Failure {
    Failure::Machine(format!("cannot start cargo: {error}"))
}

/// Whether a command ran to its end without an error; what it printed is shown.
pub fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command in place of this process, so that an interrupt reaches the command alone.
#[cfg(unix)]
pub fn become_command(command: &mut Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    Err(no_cargo(&command.exec()))
}

/// Runs a command, and ends as it does.
#[cfg(not(unix))]
pub fn become_command(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|e| no_cargo(&e))?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}

/// A list of folders in an environment variable, with this one first.
pub fn before(variable: &str, folder: PathBuf) -> OsString {
    let others = std::env::var_os(variable).unwrap_or_default();
    let all = std::iter::once(folder.clone()).chain(std::env::split_paths(&others));
    std::env::join_paths(all).unwrap_or_else(|_| folder.into())
}

/// The name of the Python in use.
pub fn python() -> &'static str {
    if std::env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" }
}

#[cfg(test)]
mod tests {
    use super::json_line;

    #[test]
    fn the_last_line_of_json_is_found_behind_others() {
        let line = json_line("noise\n{\"error\": 0.1}\n\n").ok();
        assert_eq!(line.map(|line| line["error"].clone()), Some(0.1.into()));
        assert!(json_line("Traceback").is_err());
    }
}
