//! The examples of programs with kinds of one's own, which cargo builds along with the tests.

use std::path::{Path, PathBuf};
use undertone_tests::{Outcome, Place};

pub const UNDERTONE: &str = env!("CARGO_BIN_EXE_undertone");

pub fn example(name: &str) -> PathBuf {
    Path::new(UNDERTONE).with_file_name("examples").join(name)
}

pub fn outcome(place: &Place, program: &Path, args: &[&str]) -> Outcome {
    Outcome::of(&mut place.program(program, args))
}

/// Runs an example, which has to succeed.
pub fn succeed(place: &Place, name: &str, args: &[&str]) -> Outcome {
    let outcome = outcome(place, &example(name), args);
    assert_eq!(outcome.status, Some(0), "{args:?}: {outcome:?}");
    outcome
}
