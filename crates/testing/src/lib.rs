//! What tests of every crate share: how one says that it was skipped, and files that lie beside the repository.
//!
//! A Rust test that finds out on the way that it cannot run here can only return, and then it has passed. So it says
//! [`skipped`] first, which leaves a line in the file that [`FILE`] names; `cargo xtask test` and `cargo xtask ci` name
//! one and print what it says at the end. What is known when the test is compiled is `#[cfg_attr(…, ignore = "…")]`,
//! which every test runner counts itself.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The variable of the environment that names the file in which tests note that they were skipped. It does not begin with
/// `UNDERTONE_`: such variables are keys of a configuration.
pub const FILE: &str = "SKIPPED_TESTS";

/// Notes that the test that calls it, or what is left of it, cannot run here. Call it once and return.
///
/// # Panics
/// If the file that [`FILE`] names cannot be written: a skip that nobody hears of would be a test that passes.
#[track_caller]
pub fn skipped(reason: impl Display) {
    let skip = Skip { test: test_name(Location::caller()), reason: reason.to_string() };
    eprintln!("skipped: {}", skip.reason);
    if let Some(file) = std::env::var_os(FILE) {
        skip.note(Path::new(&file)).unwrap_or_else(|e| panic!("cannot note that a test was skipped: {e}"));
    }
}

/// A file or folder in `../shared` beside the repository, like `data/squad`. Where it is not at hand the test is
/// [`skipped`].
#[track_caller]
pub fn shared(path: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if found.exists() {
        return Some(found);
    }
    skipped(format_args!("../shared/{path} is not at hand"));
    None
}

/// A test that did not run, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The test, with the package in front.
    pub test: String,
    /// Why.
    pub reason: String,
}

impl Skip {
    /// What the tests have noted in `file`, each once; nothing if there is no such file.
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

    /// Adds it to `file`. Many tests may do so at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(&self, file: &Path) -> std::io::Result<()> {
        let line = format!("{}\t{}\n", self.test, self.reason.replace('\n', " "));
        // In one piece: lines of several processes do not mix.
        OpenOptions::new().append(true).create(true).open(file)?.write_all(line.as_bytes())
    }
}

/// The test that runs on this thread: a test's thread has its name. On another thread the place in the code must do.
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
