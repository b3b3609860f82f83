//! Measurements of one step on one card.

use super::assembled::Assembled;
use serde_json::Value;

/// One step on one card.
pub struct Measured {
    /// Name that the driver reports.
    pub card: String,
    pub compute: String,
    pub step: String,
    /// Wall time of the whole process, in seconds.
    pub seconds: f64,
    /// Report of the driver.
    pub report: Value,
    /// Every module that was loaded.
    pub kernels: Vec<Assembled>,
}
