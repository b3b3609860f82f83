//! What the checks find.

use std::fmt::{self, Display, Formatter};

/// The rules of the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Files of a crate form no circle, nor do the modules right below its root.
    Circle,
    /// Crates depend on each other as ARCHITECTURE.md says, and not in a circle.
    Arrow,
    /// Only `ops` names a backend.
    Backend,
    /// No source is longer than [`super::LONGEST`] lines.
    Length,
    /// Some crates do not say the words of a kind from outside.
    Word,
}

impl Rule {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Circle => "circle",
            Self::Arrow => "arrow",
            Self::Backend => "backend",
            Self::Length => "length",
            Self::Word => "word",
        }
    }
}

/// A place where a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub rule: Rule,
    /// The file; a crate's name for arrows.
    pub place: String,
    /// What is there.
    pub text: String,
}

impl Finding {
    pub fn new(rule: Rule, place: impl Display, text: impl Display) -> Self {
        Self { rule, place: place.to_string(), text: text.to_string() }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule.name(), self.place, self.text)
    }
}
