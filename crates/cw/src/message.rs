//! A whole message, and the time there is for it.

use super::{keying, keying::Fist, morse};

/// What is sent, and what is to be written of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub sent: String,
    pub written: String,
}

/// Most characters in a written text.
pub(super) const LONGEST_TEXT: usize = 100;

/// The time there is for a message.
pub(super) struct Room<'a> {
    pub fist: &'a Fist,
    /// What the clip's drawn length leaves, in seconds: long messages end about here.
    pub wanted_s: f64,
    /// What the longest clip leaves, in seconds: the shortest message of its kind may need more than is wanted.
    pub longest_s: f64,
}

impl Room<'_> {
    /// How long a text lasts without jitter.
    pub fn seconds(&self, text: &str) -> f64 {
        let words = morse::parse(text).unwrap_or_default();
        keying::key(&words, self.fist, 0.0..f64::INFINITY, || 0.0).end()
    }
}
