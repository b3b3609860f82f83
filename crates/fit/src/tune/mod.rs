//! The largest batch that fits: a search that has each batch tried in a process of its own.
//!
//! [`search`] asks for one probe after another and decides; [`probe_in_child`] starts a process for one and reads what it
//! found, whatever became of it.

mod child;
mod error;
mod probe;
mod search;
mod table;

pub use child::probe_in_child;
pub use error::TuneError;
pub use probe::{Attempt, Limits};
pub use search::{TuneOptions, TuneRequest, TunedBatch, search};
pub use table::{HEAD, row, table};
