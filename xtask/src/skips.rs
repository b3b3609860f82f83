//! Tests and checks that could not run here.

use crate::process::work_folder;
use std::path::PathBuf;
use tempfile::TempDir;
use undertone_cli::{Failure, note};
use undertone_testing::{FILE, Skip};

/// The file in which tests note that they were skipped.
pub struct Skips {
    _dir: TempDir,
    file: PathBuf,
}

impl Skips {
    pub fn new() -> Result<Self, Failure> {
        let dir = work_folder()?;
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
            Err(e) => return note!("it is not known which tests were skipped: {e}"),
        };
        let mut tests: Vec<&str> = skips.iter().map(|skip| skip.test.as_str()).collect();
        tests.dedup();
        match tests.len() {
            0 => note!("no test or check lacked anything here"),
            1 => note!("1 test or check could not run here, or only in part:"),
            count => note!("{count} tests or checks could not run here, or only in part:"),
        }
        for Skip { test, reason } in &skips {
            note!("  {test}: {reason}");
        }
    }
}
