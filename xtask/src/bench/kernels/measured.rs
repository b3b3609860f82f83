//! What is known of one step on one card.

use super::assembled::Assembled;
use serde_json::Value;

/// One step on one card.
pub struct Measured {
    /// As the driver calls it.
    pub card: String,
    pub compute: String,
    pub step: String,
    /// Of the whole process, in seconds.
    pub seconds: f64,
    /// The driver's.
    pub report: Value,
    /// Every module that was loaded.
    pub kernels: Vec<Assembled>,
}
