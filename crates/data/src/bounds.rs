//! Checks of numbers in a configuration, and their error messages.

use crate::random::Range;

/// Error of a number in a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// A range is out of bounds, reversed or not a number.
    #[error("{field} is [{low}, {high}]: give two numbers from {least} to {most}, the smaller one first")]
    Range {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Lower end, as given.
        low: f32,
        /// Upper end, as given.
        high: f32,
        /// Smallest value accepted.
        least: f32,
        /// Largest value accepted.
        most: f32,
    },
    /// A range of whole numbers is out of bounds or reversed.
    #[error("{field} is [{low}, {high}]: give two whole numbers from {least} to {most}, the smaller one first")]
    Count {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Lower end, as given.
        low: usize,
        /// Upper end, as given.
        high: usize,
        /// Smallest value accepted.
        least: usize,
        /// Largest value accepted.
        most: usize,
    },
    /// A number is out of bounds.
    #[error("{field} is {value}: give a number from {least} to {most}")]
    Number {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Value given.
        value: f32,
        /// Smallest value accepted.
        least: f32,
        /// Largest value accepted.
        most: f32,
    },
    /// A probability is not between 0 and 1.
    #[error("{field} is {value}: give a probability from 0 (never) to 1 (always)")]
    Probability {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Value given.
        value: f32,
    },
}

// The checks are written so that a NaN fails them.

/// Checks a range: within `least` and `most`, the smaller end first.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn range(field: &'static str, [low, high]: Range, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Range { field, low, high, least, most }) }
}

/// Checks a range of whole numbers: within `least` and `most`, the smaller end first.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn count(field: &'static str, [low, high]: [usize; 2], least: usize, most: usize) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Count { field, low, high, least, most }) }
}

/// Checks that a number is within `least` and `most`.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn number(field: &'static str, value: f32, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= value && value <= most;
    if fits { Ok(()) } else { Err(BoundsError::Number { field, value, least, most }) }
}

/// Checks that a number is from 0 to 1.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn probability(field: &'static str, value: f32) -> Result<(), BoundsError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(BoundsError::Probability { field, value }) }
}
