//! A whole message, and the time available for it.

use super::{keying, keying::Fist, morse};

/// Text that is sent, and its label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub sent: String,
    pub written: String,
}

/// Maximum number of characters in a label.
pub(super) const LONGEST_TEXT: usize = 100;

/// Time available for a message.
pub(super) struct Room<'a> {
    pub fist: &'a Fist,
    /// Time within the clip's drawn length, in seconds: long messages end about here.
    pub wanted_s: f64,
    /// Time within the longest clip, in seconds: the shortest message of its kind may need more than the wanted time.
    pub longest_s: f64,
}

impl Room<'_> {
    /// Returns the length of a text without jitter.
    pub fn seconds(&self, text: &str) -> f64 {
        let words = morse::parse(text).unwrap_or_default();
        keying::key(&words, self.fist, 0.0..f64::INFINITY, || 0.0).end()
    }
}
