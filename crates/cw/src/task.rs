//! What a listener is asked to write down.
//!
//! A task changes what is sent and what is written, never how it sounds. What is written follows from what is sent
//! alone, by a rule that each task's file states: a listener who copies every character can write it, and nothing in
//! it has to be guessed.

use super::CwSource;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What is to be written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CwTask {
    /// Every character that is sent: `DE K1ABC K` is written `DE K1ABC K`.
    #[default]
    Copy,
    /// The callsigns among what is sent, in order: `QRZ? DE K1ABC K1ABC K` is written `K1ABC`. A call that is heard
    /// again before another one is not written again.
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
    /// Every task.
    pub fn all() -> [Self; 5] {
        [Self::Copy, Self::Callsigns, Self::Log, Self::Expand, Self::Traffic]
    }

    /// Its name, as in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Callsigns => "callsigns",
            Self::Log => "log",
            Self::Expand => "expand",
            Self::Traffic => "traffic",
        }
    }

    /// Whether the weight of this source under `text` says anything about the task.
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

    /// The only source of a task that has one of its own.
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

impl FromStr for CwTask {
    type Err = UnknownTask;

    fn from_str(name: &str) -> Result<Self, UnknownTask> {
        Self::all().into_iter().find(|task| task.name() == name).ok_or_else(|| UnknownTask { name: name.to_owned() })
    }
}

/// A name is not that of a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no task `{name}`: the tasks are copy, callsigns, log, expand and traffic")]
pub struct UnknownTask {
    /// As given.
    pub name: String,
}
