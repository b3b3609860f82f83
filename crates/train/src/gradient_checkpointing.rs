//! Gradient checkpointing: how much of the forward pass is kept for the backward pass.

use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;

/// `false`, `true` or `{every: n}`: whether a network keeps only the input of every n-th of its blocks, and computes
/// the blocks again in the backward pass (Chen et al., 2016). Saves memory for one more forward pass; gradients stay
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "must be true, false or {every: n}")]
pub enum GradientCheckpointing {
    /// Every block, or none.
    Flag(bool),
    /// Several blocks at a time.
    Segments(Segments),
}

/// `{every: n}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// Number of blocks that are computed again together. Memory is least at about the square root of the number of
    /// blocks.
    pub every: usize,
}

impl Default for GradientCheckpointing {
    fn default() -> Self {
        Self::Flag(false)
    }
}

impl GradientCheckpointing {
    /// Returns the number of blocks that are computed again together; `None` if everything is kept.
    pub fn every(self) -> Option<NonZeroUsize> {
        match self {
            Self::Flag(false) => None,
            Self::Flag(true) => Some(NonZeroUsize::MIN),
            Self::Segments(Segments { every }) => NonZeroUsize::new(every),
        }
    }

    /// Whether this is `{every: 0}`, which is invalid.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::Segments(Segments { every: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<GradientCheckpointing, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn is_a_flag_or_a_number_of_blocks() {
        let every = |json| read(json).expect(json).every().map(NonZeroUsize::get);
        assert_eq!(every("false"), None);
        assert_eq!(every("true"), Some(1));
        assert_eq!(every(r#"{"every": 3}"#), Some(3));
        for json in ["false", "true", r#"{"every":3}"#] {
            assert_eq!(serde_json::to_string(&read(json).expect(json)).expect("JSON"), json);
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_there_is() {
        for json in ["2", r#""yes""#, r#"{"each": 2}"#, r#"{"every": 2, "each": 2}"#, r#"{"every": -1}"#] {
            let error = read(json).expect_err(json);
            assert!(error.contains("must be true, false or {every: n}"), "{json}: {error}");
        }
    }
}
