//! Tasks: the labels of the clips.
//!
//! A task changes the texts that are sent and the labels, never the sound. The label follows from the sent text alone,
//! by a rule that each task's file states. So it can be written by anyone who copies every character, without guessing.

use super::CwSource;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Label of a clip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CwTask {
    /// Every character that is sent: `DE K1ABC K` is written `DE K1ABC K`.
    #[default]
    Copy,
    /// The sent callsigns, in order: `QRZ? DE K1ABC K1ABC K` is written `K1ABC`. A call that is repeated before another
    /// one is not written again.
    Callsigns,
    /// A contest exchange as a line of the log: `DE K1ABC 5NN T4 K` is written `K1ABC 599 04`.
    Log,
    /// Abbreviations and Q-codes as plain English: `UR RST 579 = QTH BOSTON` is written
    /// `YOUR REPORT IS 579, MY LOCATION IS BOSTON`.
    Expand,
    /// Formal traffic with its procedural signals by name: `= ARRIVED SAFE = BOB +` is written
    /// `<BT> ARRIVED SAFE <BT> BOB <AR>`.
    Traffic,
}

impl CwTask {
    /// Returns the name, as in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Callsigns => "callsigns",
            Self::Log => "log",
            Self::Expand => "expand",
            Self::Traffic => "traffic",
        }
    }

    /// Returns whether the weight of this source under `text` affects the task.
    pub(super) fn draws_from(self, source: CwSource) -> bool {
        let contest = matches!(
            source,
            CwSource::Cqww | CwSource::ArrlDx | CwSource::Cqwpx | CwSource::FieldDay | CwSource::Sweepstakes
        );
        match self {
            Self::Copy => true,
            Self::Callsigns => contest || matches!(source, CwSource::Callsigns | CwSource::Qso),
            Self::Log => contest,
            Self::Expand | Self::Traffic => false,
        }
    }

    /// Returns the source of a task with only one.
    pub(super) fn own_source(self) -> Option<CwSource> {
        match self {
            Self::Copy | Self::Callsigns | Self::Log => None,
            Self::Expand => Some(CwSource::Phrases),
            Self::Traffic => Some(CwSource::Radiogram),
        }
    }
}

impl fmt::Display for CwTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
