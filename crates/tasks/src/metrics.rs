//! The metrics that kinds score with, from the one crate that has them.

pub use undertone_train::metrics::*;
