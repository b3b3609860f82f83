//! Undertone's command line, as a program and as a library.
//!
//! `cargo install --path crates/cli` installs the program `undertone`. If you have your own kind of task, metric,
//! optimizer, source of speech or backbone, write a program of three lines with [`main`]; it has every command with
//! them:
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
//! For a program with additional commands, use [`Program`]. The work of a command is done by libraries: this crate
//! parses arguments, calls a library and prints the result. Exit status: 0 done (also if the reader of the output has
//! closed it), 1 the machine failed, 2 bad input or configuration, 130 interrupted with a checkpoint.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod allocator;
mod commands;
mod failure;
mod kinds;
mod logging;

pub mod output;
mod plugin;
mod program;
mod progress;
mod signals;

pub use commands::Command;
pub use failure::Failure;
pub use kinds::Kinds;
pub use logging::LogFormat;
pub use plugin::main;
pub use program::{Program, find_config};
pub use progress::Bar;
