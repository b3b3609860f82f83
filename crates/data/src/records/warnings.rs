//! Warnings about records, which are read several times.

use std::sync::{Mutex, PoisonError};

/// Gives a warning, if it was not given before.
pub(crate) fn warn_once(text: String) {
    static GIVEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !given.contains(&text) {
        tracing::warn!("{text}");
        given.push(text);
    }
}
