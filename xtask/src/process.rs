//! Processes that this one starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
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

/// Whether a command ran to its end without an error; what it printed is shown.
pub fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command in place of this process, so that an interrupt reaches the command alone.
#[cfg(unix)]
pub fn become_command(command: &mut Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    Err(Failure::Machine(format!("cannot start cargo: {}", command.exec())))
}

/// Runs a command, and ends as it does.
#[cfg(not(unix))]
pub fn become_command(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|e| Failure::Machine(format!("cannot start cargo: {e}")))?;
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
