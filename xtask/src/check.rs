//! A step of `cargo xtask ci` and `test`.

use crate::process::{ROOT, cargo, no_cargo};
use crate::skips::Skips;
use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;
use undertone_cli::{Failure, note};

/// A cargo command that must succeed, and variables it needs.
pub struct Check {
    pub name: &'static str,
    pub args: &'static [&'static str],
    pub variables: &'static [(&'static str, &'static str)],
}

/// Where the sanitizer's runtime comes with the toolchain.
pub const SANITIZED: &str = "x86_64-unknown-linux-gnu";

impl Check {
    /// Runs it with `more` arguments, where its platform is this one.
    pub fn run(&self, skips: &Skips, more: &[OsString]) -> Result<(), Failure> {
        self.run_with(skips, more, Vec::new())
    }

    /// The same with more variables.
    pub fn run_with(
        &self,
        skips: &Skips,
        more: &[OsString],
        variables: Vec<(&'static str, OsString)>,
    ) -> Result<(), Failure> {
        let Self { name, args, .. } = self;
        if args.contains(&SANITIZED) && !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
            return skips.note(name, "not on this platform");
        }
        let more_said: String = more.iter().map(|argument| format!(" {}", argument.display())).collect();
        note!("── {name}: cargo {}{more_said}", args.join(" "));
        let (variable, file) = skips.variable();
        let start = Instant::now();
        let status = self.command().args(more).envs(variables).env(variable, file).status();
        let status = status.map_err(|e| no_cargo(&e))?;
        note!("── {name}: {} s", start.elapsed().as_secs());
        if status.success() { Ok(()) } else { Err(Failure::Machine(format!("{name} failed"))) }
    }

    /// Runs it with `more` arguments, and fails if it prints a compiler's warning.
    pub fn run_without_warnings(&self, more: &[OsString]) -> Result<(), Failure> {
        note!("── {}: cargo {}", self.name, self.args.join(" "));
        let output = self.command().args(more).output();
        let output = output.map_err(|e| no_cargo(&e))?;
        let said = String::from_utf8_lossy(&output.stderr);
        // The line with which cargo sums up the warnings of each target.
        let is_sum = |line: &str| line.starts_with("warning: `") && line.contains(" generated ");
        if output.status.success() && !said.lines().any(is_sum) {
            return Ok(());
        }
        note!("{said}");
        Err(Failure::Machine(format!("{} failed", self.name)))
    }

    /// The command, in the repository's root.
    pub fn command(&self) -> Command {
        let mut command = cargo();
        command.args(self.args).current_dir(ROOT).envs(self.variables.iter().copied());
        command
    }
}
