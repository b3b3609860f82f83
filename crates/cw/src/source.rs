//! Kinds of text that can be sent.

use serde::{Deserialize, Serialize};

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CwSource {
    /// English words, abbreviations, Q-codes, numbers.
    Words,
    /// Random groups.
    Groups,
    /// Callsigns.
    Callsigns,
    /// Ordinary contacts.
    Qso,
    /// CQ World Wide DX Contest.
    Cqww,
    /// ARRL International DX Contest.
    ArrlDx,
    /// CQ WPX Contest.
    Cqwpx,
    /// ARRL Field Day.
    FieldDay,
    /// ARRL Sweepstakes.
    Sweepstakes,
    /// Beacons.
    Beacons,
    /// Groups of figures.
    Numbers,
    /// Anything that can be keyed, in random order.
    Scatter,
    /// Sentences of plain English.
    Sentences,
    /// One of the texts under `text.fixed`.
    Fixed,
    /// Phrases in Q-codes and abbreviations, for the task `expand`.
    Phrases,
    /// Formal traffic, for the task `traffic`.
    Radiogram,
}
