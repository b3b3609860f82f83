//! Shared test utilities: notes of skipped tests, paths to files beside the repository, and random numbers.
//!
//! A Rust test that finds at run time that it cannot run can only return, and then counts as passed. So it first calls
//! [`skipped`], which adds a line to the file that [`FILE`] names; `cargo xtask test` and `cargo xtask ci` set that
//! variable and print the lines at the end. If the reason is known at compile time, use `#[cfg_attr(…, ignore = "…")]`,
//! which every test runner counts.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// Environment variable that names the file in which tests note that they were skipped. It does not begin with
/// `UNDERTONE_`: such variables are configuration keys.
pub const FILE: &str = "SKIPPED_TESTS";

/// Notes that the calling test, or the rest of it, cannot run here. Call it once and return.
///
/// # Panics
/// If the file that [`FILE`] names cannot be written: an unreported skip would count as a passed test.
#[track_caller]
pub fn skipped(reason: impl Display) {
    let skip = Skip { test: test_name(Location::caller()), reason: reason.to_string() };
    eprintln!("skipped: {}", skip.reason);
    if let Some(file) = std::env::var_os(FILE) {
        skip.note(Path::new(&file)).unwrap_or_else(|e| panic!("cannot note that a test was skipped: {e}"));
    }
}

/// Returns a file or folder in `../shared` beside the repository, such as `data/squad`. If it does not exist, the test
/// is [`skipped`].
#[track_caller]
pub fn shared(path: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if found.exists() {
        return Some(found);
    }
    skipped(format_args!("../shared/{path} is not at hand"));
    None
}

/// Returns `n` numbers in [-1, 1), the same for the same seed.
pub fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let value = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..n).map(value).collect()
}

/// A test that was skipped, wholly or in part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// Package and name of the test.
    pub test: String,
    /// Reason.
    pub reason: String,
}

impl Skip {
    /// Returns the notes in `file` without duplicates; none if there is no such file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn all(file: &Path) -> std::io::Result<BTreeSet<Self>> {
        let text = match std::fs::read_to_string(file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let skip = |line: &str| {
            let (test, reason) = line.split_once('\t').unwrap_or((line, ""));
            Self { test: test.to_owned(), reason: reason.to_owned() }
        };
        Ok(text.lines().map(skip).collect())
    }

    /// Appends the note to `file`. Many tests may do so at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(&self, file: &Path) -> std::io::Result<()> {
        let line = format!("{}\t{}\n", self.test, self.reason.replace('\n', " "));
        // Written at once, so that lines of several processes do not mix.
        OpenOptions::new().append(true).create(true).open(file)?.write_all(line.as_bytes())
    }
}

/// Name of the test on this thread: a test's thread has its name. On other threads it is the location in the code.
fn test_name(place: &Location) -> String {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").map_or(place.to_string(), str::to_owned);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    format!("{package} {test}").trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_note_is_read_back_each_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("skips");
        assert_eq!(Skip::all(&file).expect("read"), BTreeSet::new(), "nothing was skipped");
        let skip =
            |test: &str, reason: &str| Skip { test: format!("undertone-testing {test}"), reason: reason.to_owned() };
        let notes = [skip("b", "no disk"), skip("a", "no model"), skip("b", "no disk"), skip("b", "one\nline")];
        notes.iter().for_each(|skip| skip.note(&file).expect("written"));
        let expected = [skip("a", "no model"), skip("b", "no disk"), skip("b", "one line")];
        assert_eq!(Skip::all(&file).expect("read"), expected.into());
    }

    #[test]
    fn a_test_is_called_by_its_name() {
        let name = test_name(Location::caller());
        assert!(name.ends_with(" tests::a_test_is_called_by_its_name"), "{name}");
    }
}
