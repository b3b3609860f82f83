//! Phases and baselines of a run.

use std::str::FromStr;

/// Phase of a DYNAMO run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Phase 1: adapters and heads.
    Adapters,
    /// Phase 2: the router.
    Router,
    /// Phase 3: router, adapters and heads.
    Joint,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 3] = [Self::Adapters, Self::Router, Self::Joint];

    pub(super) fn number(self) -> usize {
        self as usize + 1
    }

    /// Returns the phase whose results this one starts from.
    pub(super) fn before(self) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|other| *other < self)
    }

    /// Returns the phases after this one.
    pub(super) fn later(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |other| *other > self)
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" => Ok(Self::Adapters),
            "2" => Ok(Self::Router),
            "3" => Ok(Self::Joint),
            _ => Err(format!("unknown phase `{text}`: it is 1, 2, 3 or all")),
        }
    }
}

/// Baseline that a run is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// No adapters: a head for each task on the frozen backbone.
    Head,
    /// One adapter for all tasks, with the sum of the tasks' ranks. On a speech backbone there is one head, so the task
    /// has to be inferred from the input. On a text backbone each task has its own head, which identifies the task.
    Shared,
    /// One adapter for all tasks as in `Shared`, which also learns from the predictions of the run's own adapters, each for its
    /// task. On a speech backbone alone.
    Distilled,
    /// The whole backbone trained on all tasks, with heads as for `Shared`.
    Full,
}

impl Baseline {
    /// All baselines.
    pub const ALL: [Self; 4] = [Self::Head, Self::Shared, Self::Distilled, Self::Full];

    /// Returns its name in folders and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Shared => "shared",
            Self::Distilled => "distilled",
            Self::Full => "full",
        }
    }
}

impl FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|baseline| baseline.name() == text);
        found.ok_or_else(|| format!("there is no baseline `{text}`: choose head, shared, distilled or full"))
    }
}
