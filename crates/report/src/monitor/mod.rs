//! Monitor of a run while it trains: [`Monitor`] reads the files in its directory and returns a [`Snapshot`].
//!
//! ```no_run
//! use std::path::Path;
//! use undertone_report::monitor::Monitor;
//!
//! // The run that was written to last. Nothing is known of what it was asked for, so it gets no advice.
//! let mut monitor = Monitor::open(None, Path::new("runs"), |_, _| None)?;
//! let snapshot = monitor.look();
//! println!("{}", snapshot.text());
//! # Ok::<(), undertone_report::monitor::MonitorError>(())
//! ```

mod find;
mod follow;
mod plan;
mod recommend;
mod show;
mod snapshot;
mod watch;

pub use find::MonitorError;
pub use plan::{ReadPlan, StagePlan};
pub use recommend::{Change, MEASURED_STEPS, Recommendation, Settings, all_is_well, recommend};
pub use snapshot::{Snapshot, State};
pub use watch::Monitor;
