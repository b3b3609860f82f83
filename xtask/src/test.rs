//! `cargo xtask test`: the tests, and what they need.

use crate::Failure;
use crate::ci::Check;
use std::ffi::OsString;
use std::path::PathBuf;
use tempfile::TempDir;
use undertone_testing::{FILE, Skip};

#[derive(clap::Args)]
pub struct Args {
    /// Arguments of `cargo nextest run --workspace`, like -E 'test(resume)'; with any, documentation is not tested
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    more: Vec<OsString>,
}

/// What runs tests, each in a process of its own.
const RUNNER: Check = Check { name: "test runner", args: &["nextest", "--version"], variables: &[] };
const INSTALL: Check = Check { name: "test runner", args: &["install", "cargo-nextest", "--locked"], variables: &[] };
const TESTS: Check = Check { name: "tests", args: &["nextest", "run", "--workspace"], variables: &[] };
const DOC_TESTS: Check = Check { name: "doc tests", args: &["test", "--workspace", "--doc"], variables: &[] };

pub fn run(args: &Args) -> Result<(), Failure> {
    let skips = Skips::new()?;
    let result = if args.more.is_empty() { all(&skips) } else { some(&skips, &args.more) };
    skips.print();
    result
}

/// Every test there is.
pub fn all(skips: &Skips) -> Result<(), Failure> {
    some(skips, &[])?;
    DOC_TESTS.run(skips, &[])
}

fn some(skips: &Skips, more: &[OsString]) -> Result<(), Failure> {
    bring_runner()?;
    TESTS.run(skips, more)
}

/// Installs the test runner where there is none.
fn bring_runner() -> Result<(), Failure> {
    let there = RUNNER.command().output().is_ok_and(|output| output.status.success());
    if there {
        return Ok(());
    }
    eprintln!(
        "── {}: cargo-nextest is not here; installing it once with `cargo {}`, which needs the network and some minutes",
        INSTALL.name,
        INSTALL.args.join(" ")
    );
    let installed = INSTALL.command().status().is_ok_and(|status| status.success());
    let reason = "cargo-nextest could not be installed, see above: is there a network? `cargo test --workspace` runs the \
                  same tests without it";
    if installed { Ok(()) } else { Err(Failure::Machine(reason.into())) }
}

/// The file in which tests note that they were skipped.
pub struct Skips {
    _dir: TempDir,
    file: PathBuf,
}

impl Skips {
    pub fn new() -> Result<Self, Failure> {
        let dir =
            tempfile::tempdir().map_err(|e| Failure::Machine(format!("cannot make a temporary directory: {e}")))?;
        Ok(Self { file: dir.path().join("skipped"), _dir: dir })
    }

    /// The variable that names it to tests.
    pub fn variable(&self) -> (&'static str, &PathBuf) {
        (FILE, &self.file)
    }

    pub fn note(&self, test: &str, reason: &str) -> Result<(), Failure> {
        let skip = Skip { test: test.to_owned(), reason: reason.to_owned() };
        skip.note(&self.file).map_err(|e| Failure::Machine(format!("cannot note what was skipped: {e}")))
    }

    /// Says what was skipped, after everything else.
    pub fn print(&self) {
        let skips = match Skip::all(&self.file) {
            Ok(skips) => skips,
            Err(e) => return eprintln!("it is not known which tests were skipped: {e}"),
        };
        let mut tests: Vec<&str> = skips.iter().map(|skip| skip.test.as_str()).collect();
        tests.dedup();
        match tests.len() {
            0 => eprintln!("no test or check lacked anything here"),
            1 => eprintln!("1 test or check could not run here, or only in part:"),
            count => eprintln!("{count} tests or checks could not run here, or only in part:"),
        }
        for Skip { test, reason } in &skips {
            eprintln!("  {test}: {reason}");
        }
    }
}
