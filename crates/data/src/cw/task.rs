//! What a listener is asked to write down, and messages that are whole.
//!
//! A task changes what is sent and what is written, never how it sounds. What is written follows from what is sent
//! alone, by a rule that each task's file states: a listener who copies every character can write it, and nothing in
//! it has to be guessed.

use super::{CwError, CwSource, CwText, calls, expand, keying, keying::Fist, log, morse, random::whole, traffic};
use rand_chacha::ChaCha8Rng;
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
    type Err = CwError;

    fn from_str(name: &str) -> Result<Self, CwError> {
        Self::all()
            .into_iter()
            .find(|task| task.name() == name)
            .ok_or_else(|| CwError::UnknownTask { name: name.to_owned() })
    }
}

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

/// A whole message that should fit, or nothing: then try again, or send one of [`shortest`].
pub(super) fn compose(
    task: CwTask,
    source: CwSource,
    text: &CwText,
    room: &Room<'_>,
    rng: &mut ChaCha8Rng,
) -> Option<Message> {
    let message = match task {
        CwTask::Copy => None,
        CwTask::Callsigns => calls::compose(source, text, room, rng),
        CwTask::Log => log::compose(source, text, room, rng),
        CwTask::Expand => expand::compose(text, room, rng),
        CwTask::Traffic => traffic::compose(room, rng),
    };
    message.filter(|message| message.written.len() <= LONGEST_TEXT)
}

/// Sent where nothing that was drawn fits: [`super::CwConfig::validate`] makes sure that each of these does.
pub(super) fn shortest(task: CwTask, source: CwSource, text: &CwText) -> Vec<Message> {
    let cut = text.cut_numbers > 0.0;
    let messages: &[(&str, &str)] = match (task, source) {
        (CwTask::Copy, _) => &[],
        (CwTask::Callsigns, _) => &[("TU N5EE", "N5EE"), ("DE EA5E", "EA5E"), ("K4IT K", "K4IT"), ("R W6EI", "W6EI")],
        (CwTask::Log, CwSource::FieldDay) => &[("W5EE 1E ME", "W5EE 1E ME"), ("K4IT 2A TN", "K4IT 2A TN")],
        (CwTask::Log, CwSource::Sweepstakes) => &[("5 A N5EE 56 MS", "N5EE 005 A 56 MS")],
        (CwTask::Log, CwSource::ArrlDx) if cut => &[("K1EE 5NN ME", "K1EE 599 ME"), ("EA5E 5NN K", "EA5E 599 K")],
        (CwTask::Log, CwSource::ArrlDx) => &[("K1EE 599 ME", "K1EE 599 ME"), ("EA5E 599 K", "EA5E 599 K")],
        (CwTask::Log, CwSource::Cqwpx) if cut => &[("N5EE 5NN TTE", "N5EE 599 005"), ("EA5E 5NN TTE", "EA5E 599 005")],
        (CwTask::Log, CwSource::Cqwpx) => &[("N5EE 599 556", "N5EE 599 556"), ("EA5E 599 265", "EA5E 599 265")],
        (CwTask::Log, _) if cut => &[("N5EE 5NN 4", "N5EE 599 04"), ("K4IT 5NN 4", "K4IT 599 04")],
        (CwTask::Log, _) => &[("N5EE 599 4", "N5EE 599 04"), ("K4IT 599 4", "K4IT 599 04")],
        (CwTask::Expand, _) => &[
            ("TU 73", "THANK YOU, BEST REGARDS"),
            ("73 TU", "BEST REGARDS, THANK YOU"),
            ("TU QRT", "THANK YOU, I AM CLOSING DOWN"),
        ],
        (CwTask::Traffic, _) => &[("NR 4 +", "NR 4 <AR>"), ("NR 5 +", "NR 5 <AR>"), ("NR 6 +", "NR 6 <AR>")],
    };
    messages.iter().map(|(sent, written)| Message { sent: (*sent).into(), written: (*written).into() }).collect()
}

/// One of [`shortest`].
pub(super) fn last_resort(task: CwTask, source: CwSource, text: &CwText, rng: &mut ChaCha8Rng) -> Message {
    let messages = shortest(task, source, text);
    messages[whole(rng, 0..messages.len())].clone()
}
