//! What a routed run did, as numbers, pictures and one page.
//!
//! [`Analysis`] counts how a router spread a test set over the adapters, [`MetricsTable`] sets routers side by side and
//! [`LossCurves`] keep what training logged. All three are drawn by [`pictures`] and bound into one file by
//! [`report_html`]. Nothing here touches a disk: the caller writes what it gets.

mod canvas;
mod curves;
pub(crate) mod page;
mod picture;
mod report;
mod routing;
mod table;

pub use curves::{LossCurves, Series};
pub(crate) use picture::{Areas, Axis, Curves, Interval, Panel, Part, panels};
pub use picture::{Picture, PictureSection, pictures};
pub use report::report_html;
pub use routing::{Analysis, Confidence, GateEntropy, Histogram, RoutedSample};
pub use table::{Metric, MetricsTable, TaskColumn};

use thiserror::Error;
pub use undertone_metrics::Direction;

/// Why an analysis cannot be made.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// There is nothing to count.
    #[error("a routing analysis needs at least one {0}: check that the test split is not empty")]
    Empty(&'static str),
    /// A sample is not what a router gives.
    #[error("sample {sample}: {what}")]
    Sample {
        /// Its position in the samples given.
        sample: usize,
        /// What is wrong with it, and the way out.
        what: String,
    },
    /// A table was asked to hold what it has no place for.
    #[error("the metrics table has no {kind} `{name}`: it has {known}")]
    Unknown {
        /// A task or a metric.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A picture could not be drawn.
    #[error("a picture could not be drawn: {0}")]
    Picture(String),
}

#[cfg(test)]
mod fixture;
