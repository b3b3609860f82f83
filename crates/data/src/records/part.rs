use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Column;

/// A part of the records, the same in every run.
///
/// Every record belongs to a group. The position of a group between 0 and 1 is a hash of its name, and the part
/// contains the groups from `from` (included) to `to` (excluded). So adjoining parts never share a group. Whether a
/// record belongs to a part depends on its own group alone: a file may be sorted, shuffled or extended, and the same
/// article in another file belongs to the same part. In return, the size of a part is approximate, the more so the
/// fewer groups there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartConfig {
    /// Start of the part, from 0.
    pub from: f64,
    /// End of the part, up to 1.
    pub to: f64,
    /// Column whose equal values form a group, such as the title of an article. By default each record is a group of
    /// its own, named by its number among the records of all files.
    pub by: Option<Column>,
}

/// A share of the records, the same in every run, that keeps related records together: those with the same value in the
/// column `by`, otherwise those of a group of [`PartConfig::by`], otherwise those cut from one audio file, or with the
/// same passage or text.
///
/// As for a [`PartConfig`], the position of a group between 0 and 1 is a hash of its name. It is another hash, so that
/// a share contains the same fraction of a part as of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Start of the share, from 0.
    pub from: f64,
    /// End of the share, up to 1.
    pub to: f64,
    /// Column whose equal values stay together, such as the speaker.
    #[serde(default)]
    pub by: Option<Column>,
}

impl std::fmt::Display for Share {
    /// Size of the share: `5 %`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} %", (1e4 * (self.to - self.from)).round() / 1e2)
    }
}

impl Default for PartConfig {
    fn default() -> Self {
        Self { from: 0.0, to: 1.0, by: None }
    }
}

impl PartConfig {
    /// Returns whether the group with this name is in the part.
    pub(super) fn has(&self, group: &Value) -> bool {
        (self.from..self.to).contains(&place(&name(group)))
    }
}

impl Share {
    /// Returns whether the group with this name is in the share.
    pub(super) fn has(&self, group: &Value) -> bool {
        (self.from..self.to).contains(&place(&format!("share of {}", name(group))))
    }
}

/// Returns a group's name; a number becomes its text, so that JSON and CSV give the same group.
fn name(group: &Value) -> Cow<'_, str> {
    match group {
        Value::String(name) => name.into(),
        other => other.to_string().into(),
    }
}

/// Returns a name's position in [0, 1): FNV-1a, whose low bits are well distributed, then MurmurHash3's finaliser,
/// which spreads them to the high bits. Implemented here because it must never change: the standard library's hash may,
/// with any release.
fn place(name: &str) -> f64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^= hash >> 33;
    // An f64 holds 53 bits exactly, so the result stays below 1.
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(from: f64, to: f64) -> PartConfig {
        PartConfig { from, to, by: None }
    }

    #[test]
    fn places_never_change() {
        // Computed apart from this, with whole numbers in Python.
        assert_eq!(format!("{:.16}", place("Harvard_University")), "0.5907824461651631");
        assert_eq!(format!("{:.16}", place("1")), "0.4852325240791544");
    }

    #[test]
    fn shares_of_numbered_records_are_close_to_what_was_asked_for() {
        // 20,000 draws at 0.8 have a standard deviation of 0.0028.
        let inside = (1..=20_000).filter(|n| part(0.0, 0.8).has(&Value::from(*n))).count();
        assert!((inside as f64 / 20_000.0 - 0.8).abs() < 0.01, "{inside}");
    }

    #[test]
    fn a_share_of_a_part_is_as_large_as_one_of_the_whole() {
        let share = Share { from: 0.9, to: 1.0, by: None };
        let inside = |part: PartConfig| {
            let within: Vec<Value> = (1..=20_000).map(Value::from).filter(|n| part.has(n)).collect();
            within.iter().filter(|n| share.has(n)).count() as f64 / within.len() as f64
        };
        for part in [part(0.0, 1.0), part(0.0, 0.5), part(0.9, 1.0)] {
            // 2,000 draws at 0.1 have a standard deviation of 0.007.
            let found = inside(part.clone());
            assert!((found - 0.1).abs() < 0.02, "{part:?}: {found}");
        }
        assert_eq!(share.to_string(), "10 %");
    }

    proptest! {
        #[test]
        fn adjoining_parts_share_nothing_and_leave_nothing_out(name in "\\PC{0,30}", cut in 0.01..0.99) {
            let group = Value::from(name);
            prop_assert_eq!(part(0.0, cut).has(&group) as u8 + part(cut, 1.0).has(&group) as u8, 1);
        }

        #[test]
        fn numbers_and_their_texts_are_one_group(number in any::<i64>(), cut in 0.01..0.99) {
            prop_assert_eq!(part(0.0, cut).has(&number.into()), part(0.0, cut).has(&number.to_string().into()));
        }
    }
}
