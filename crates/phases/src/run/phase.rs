//! What a run goes through, and what it is compared with.

use std::str::FromStr;

/// A phase of a DYNAMO run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// 1: adapters and heads.
    Adapters,
    /// 2: the router.
    Router,
    /// 3: both.
    Joint,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Adapters, Self::Router, Self::Joint];

    pub(super) fn number(self) -> usize {
        self as usize + 1
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" => Ok(Self::Adapters),
            "2" => Ok(Self::Router),
            "3" => Ok(Self::Joint),
            _ => Err(format!("there is no phase `{text}`: there are 1, 2, 3 and all")),
        }
    }
}

/// What a run is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// No adapters: a head for each task on the frozen backbone.
    Head,
    /// One adapter for all tasks with the ranks of theirs together. On a speech backbone it has one head, so that what an
    /// input asks for has to be found in the input; on a text backbone each task has its own, and so is told apart.
    Shared,
    /// The whole backbone trained on all tasks, with heads as for `Shared`.
    Full,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Head, Self::Shared, Self::Full];

    /// What folders and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Shared => "shared",
            Self::Full => "full",
        }
    }
}

impl FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|baseline| baseline.name() == text);
        found.ok_or_else(|| format!("there is no baseline `{text}`: there are head, shared and full"))
    }
}
