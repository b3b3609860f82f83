//! Recordings that cannot be read.

/// Number of them that are named.
const NAMED: usize = 5;

/// Names the first unreadable recordings, each with the reason.
pub fn warn(unreadable: &[(String, String)]) {
    for (name, reason) in unreadable.iter().take(NAMED) {
        tracing::warn!("`{name}` cannot be read: {reason}");
    }
}
