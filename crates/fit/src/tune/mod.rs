//! Search for the largest batch that fits. Each batch is tried in a process of its own.
//!
//! [`search`] requests one probe after another and decides: [`Search`] says which batch to try next, [`choose`] selects
//! one of those that fit, [`Plan`] gives the number of batches in an optimizer step, and
//! [`LrScaling`](undertone_train::LrScaling) adapts the learning rate if the step's size changes. [`probe_in_child`]
//! starts the process of a probe and reads its result, however the process ended. In that process [`within_limits`]
//! watches memory and time, and [`probe_steps`] takes a few steps of any objective with the Learner.

mod child;
mod error;
mod limits;
mod plan;
mod probe;
mod search;
mod steps;
mod table;

pub use child::probe_in_child;
pub use error::TuneError;
pub use limits::within_limits;
pub use plan::{Goal, NOISE, Plan, Search, choose};
pub use probe::{Attempt, Limits, Outcome, Probe};
pub use search::{TuneOptions, TuneRequest, TunedBatch, search};
pub use steps::{ProbeObjective, RepeatedBatch, probe_config, probe_steps};
pub use table::{HEAD, row, table};
