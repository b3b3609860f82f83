//! Checks of numbers in a configuration, and the sentences that refuse them.

use crate::random::Range;

/// Why a number in a configuration was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// A range is out of bounds, upside down or not a number.
    #[error("{field} is [{low}, {high}]: give two numbers from {least} to {most}, the smaller one first")]
    Range {
        /// Its name, as in the configuration.
        field: &'static str,
        /// The lower end as given.
        low: f32,
        /// The upper end as given.
        high: f32,
        /// Least that is accepted.
        least: f32,
        /// Most that is accepted.
        most: f32,
    },
    /// A range of whole numbers is out of bounds or upside down.
    #[error("{field} is [{low}, {high}]: give two whole numbers from {least} to {most}, the smaller one first")]
    Count {
        /// Its name, as in the configuration.
        field: &'static str,
        /// The lower end as given.
        low: usize,
        /// The upper end as given.
        high: usize,
        /// Least that is accepted.
        least: usize,
        /// Most that is accepted.
        most: usize,
    },
    /// A number is out of bounds.
    #[error("{field} is {value}: give a number from {least} to {most}")]
    Number {
        /// Its name, as in the configuration.
        field: &'static str,
        /// As given.
        value: f32,
        /// Least that is accepted.
        least: f32,
        /// Most that is accepted.
        most: f32,
    },
    /// A probability is not one.
    #[error("{field} is {value}: give a probability from 0 (never) to 1 (always)")]
    Probability {
        /// Its name, as in the configuration.
        field: &'static str,
        /// As given.
        value: f32,
    },
}

// The checks are written so that a NaN fails them.

/// A range within `least` and `most`, the smaller end first.
///
/// # Errors
/// Names the field and what it may be.
pub fn range(field: &'static str, [low, high]: Range, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Range { field, low, high, least, most }) }
}

/// A range of whole numbers within `least` and `most`, the smaller end first.
///
/// # Errors
/// Names the field and what it may be.
pub fn count(field: &'static str, [low, high]: [usize; 2], least: usize, most: usize) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Count { field, low, high, least, most }) }
}

/// A number within `least` and `most`.
///
/// # Errors
/// Names the field and what it may be.
pub fn number(field: &'static str, value: f32, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= value && value <= most;
    if fits { Ok(()) } else { Err(BoundsError::Number { field, value, least, most }) }
}

/// A number from 0 to 1.
///
/// # Errors
/// Names the field and what it may be.
pub fn probability(field: &'static str, value: f32) -> Result<(), BoundsError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(BoundsError::Probability { field, value }) }
}
