//! Undertone's command line, as a program and as a library.
//!
//! `cargo install --path crates/cli` installs the program `undertone`. Whoever has a kind of task, a metric, an optimizer, a source of
//! speech or a backbone of their own makes a program of three lines that has every command with them, [`main`]:
//!
//! ```no_run
//! use undertone::metrics::Direction;
//! use undertone::metrics::registry::TextMetric;
//!
//! /// Number of characters that hypotheses have beyond the length of their references.
//! #[derive(Clone, Debug, Default)]
//! struct Surplus(f64);
//!
//! impl TextMetric for Surplus {
//!     const NAME: &str = "surplus";
//!     const DIRECTION: Direction = Direction::Lower;
//!
//!     fn add(&mut self, reference: &str, hypothesis: &str) {
//!         self.0 += hypothesis.chars().count().saturating_sub(reference.chars().count()) as f64;
//!     }
//!
//!     fn value(&self) -> Option<f64> {
//!         Some(self.0)
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     undertone_cli::main(|kinds| kinds.metric::<Surplus>())
//! }
//! ```
//!
//! A program with commands of its own besides is a [`Program`]. What a command does is done by libraries: here arguments are read,
//! a library is called, and what comes of it is printed. Exit status: 0 done (or nobody reads any more what comes of it), 1 the machine
//! failed, 2 bad input or configuration, 130 interrupted with a checkpoint.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod allocator;
mod commands;
mod failure;
mod kinds;
mod logging;
pub mod output;
mod program;
mod progress;

pub use commands::Command;
pub use failure::Failure;
pub use kinds::Kinds;
pub use logging::LogFormat;
pub use program::{Program, find_config, main};
pub use progress::Bar;
