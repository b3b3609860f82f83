//! Packing of a transcript's segments into pieces.

use serde::{Deserialize, Serialize};

use crate::text::append;

/// Excess over the window that counts as rounding, in seconds: half a sample at 16 kHz.
const ROUNDING: f64 = 0.5 / 16_000.0;
/// Number of a segment's characters that an error shows.
const SHOWN: usize = 40;

/// A text with its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedText {
    /// Start, in seconds.
    pub start: f64,
    /// End, in seconds.
    pub end: f64,
    /// Text.
    pub text: String,
}

impl TimedText {
    /// Returns the segment shifted to a later time, in seconds.
    pub fn later(&self, seconds: f64) -> Self {
        Self { start: self.start + seconds, end: self.end + seconds, text: self.text.clone() }
    }

    /// Returns the segment with its times multiplied by a factor, for a clip whose speed was changed.
    pub fn scaled(&self, factor: f64) -> Self {
        Self { start: self.start * factor, end: self.end * factor, text: self.text.clone() }
    }
}

/// Consecutive segments that fit a window together.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentGroup {
    /// Start of the first segment, in seconds of the whole audio.
    pub start: f64,
    /// End of the last segment, in seconds of the whole audio.
    pub end: f64,
    /// Texts of the segments, joined by spaces if their script has any.
    pub text: String,
    /// Segments, in seconds from `start` on.
    pub segments: Vec<TimedText>,
}

/// Error of segments that cannot be packed; they count from 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SegmentError {
    /// The times of a segment are not `0 <= start < end`, or not finite.
    #[error("segment {number} goes from {start} s to {end} s: make 0 <= start < end")]
    Empty {
        /// Number of the segment.
        number: usize,
        /// Start of the segment.
        start: f64,
        /// End of the segment.
        end: f64,
    },
    /// A segment begins before the previous one.
    #[error("segment {number} begins at {start} s, before the one in front of it at {before} s: sort them by time")]
    Order {
        /// Number of the segment.
        number: usize,
        /// Start of the segment.
        start: f64,
        /// Start of the previous segment.
        before: f64,
    },
    /// A segment is longer than the window.
    #[error(
        "segment {number}, {text:?}, lasts {seconds:.2} s, from {start} s on, and the model reads {window:.2} s at \
         once: split it in two, or leave it out"
    )]
    TooLong {
        /// Number of the segment.
        number: usize,
        /// Beginning of its text.
        text: String,
        /// Start of the segment.
        start: f64,
        /// Length of the segment.
        seconds: f64,
        /// Length of the window.
        window: f64,
    },
}

/// Packs segments, in order, into as few groups as possible of at most `window` seconds each, including the silences
/// between them.
///
/// Segments may overlap a little, as subtitles do; a group lasts until the last of its segments has ended.
///
/// # Errors
/// If a segment is empty, out of order or alone longer than the window; the error names it.
pub fn group(segments: &[TimedText], window: f64) -> Result<Vec<SegmentGroup>, SegmentError> {
    let mut groups: Vec<SegmentGroup> = Vec::new();
    let mut before = 0.0;
    for (index, segment) in segments.iter().enumerate() {
        let (number, &TimedText { start, end, ref text }) = (index + 1, segment);
        if !(0.0 <= start && start < end && end.is_finite()) {
            return Err(SegmentError::Empty { number, start, end });
        }
        if start < before {
            return Err(SegmentError::Order { number, start, before });
        }
        before = start;
        if end - start > window + ROUNDING {
            let (text, seconds) = (text.trim().chars().take(SHOWN).collect(), end - start);
            return Err(SegmentError::TooLong { number, text, start, seconds, window });
        }
        match groups.last_mut() {
            Some(group) if end.max(group.end) - group.start <= window + ROUNDING => group.push(segment),
            _ => {
                let mut group = SegmentGroup { start, end, text: String::new(), segments: Vec::new() };
                group.push(segment);
                groups.push(group);
            }
        }
    }
    Ok(groups)
}

impl SegmentGroup {
    fn push(&mut self, segment: &TimedText) {
        let text = segment.text.trim();
        append(&mut self.text, text);
        self.end = self.end.max(segment.end);
        let [start, end] = [segment.start, segment.end].map(|time| time - self.start);
        self.segments.push(TimedText { start, end, text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(start: f64, end: f64, text: &str) -> TimedText {
        TimedText { start, end, text: text.into() }
    }

    #[test]
    fn segments_are_packed_up_to_the_window() {
        let given = [said(1.0, 10.0, " a "), said(12.0, 25.0, "b"), said(25.0, 31.0, "c"), said(31.0, 32.0, "")];
        let groups = group(&given, 30.0).unwrap();
        assert_eq!(groups.iter().map(|g| (g.start, g.end)).collect::<Vec<_>>(), [(1.0, 31.0), (31.0, 32.0)]);
        assert_eq!((groups[0].text.as_str(), groups[1].text.as_str()), ("a b c", ""));
        assert_eq!(groups[0].segments[1], said(11.0, 24.0, "b"));
        // 35.7 - 5.7 is a little more than 30 in floating point.
        assert_eq!(group(&[said(5.7, 35.7, "a")], 30.0).unwrap().len(), 1);
        assert!(group(&[], 30.0).unwrap().is_empty());
        assert_eq!(given[1].scaled(0.5), said(6.0, 12.5, "b"));
    }

    #[test]
    fn scripts_without_spaces_are_joined_without() {
        let groups = group(&[said(0.0, 1.0, "你好"), said(1.0, 2.0, "世界"), said(2.0, 3.0, "ok")], 30.0).unwrap();
        assert_eq!(groups[0].text, "你好世界 ok");
    }

    #[test]
    fn refusals_name_the_segment_and_the_way_out() {
        let refusal = |given: &[TimedText]| group(given, 30.0).unwrap_err().to_string();
        let long = refusal(&[said(0.0, 1.0, "a"), said(2.0, 40.5, "A long story")]);
        assert_eq!(
            long,
            "segment 2, \"A long story\", lasts 38.50 s, from 2 s on, and the model reads 30.00 s at once: split it in \
             two, or leave it out"
        );
        assert!(refusal(&[said(1.0, 1.0, "a")]).starts_with("segment 1 goes from 1 s to 1 s"));
        assert!(refusal(&[said(0.0, f64::NAN, "a")]).starts_with("segment 1 goes from"));
        assert!(refusal(&[said(5.0, 6.0, "a"), said(4.0, 7.0, "b")]).contains("before the one in front of it at 5 s"));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_group_is_too_long(steps in prop::collection::vec((0.0f64..40.0, 0.1f64..29.0), 1..40)) {
            let mut now = 0.0;
            let given: Vec<TimedText> = steps.iter().enumerate().map(|(n, (gap, length))| {
                now += gap;
                said(now, now + length, &n.to_string())
            }).collect();
            let groups = group(&given, 30.0).unwrap();
            let back: Vec<&str> = groups.iter().flat_map(|g| g.text.split(' ')).collect();
            prop_assert_eq!(back, given.iter().map(|s| s.text.as_str()).collect::<Vec<_>>());
            for (group, next) in groups.iter().zip(groups.iter().skip(1)) {
                prop_assert!(next.start + next.segments[0].end - group.start > 30.0, "the next one would not have fit");
            }
            prop_assert!(groups.iter().all(|g| g.end - g.start < 30.001));
            prop_assert!(groups.iter().flat_map(|g| &g.segments).all(|s| 0.0 <= s.start && s.end < 30.001));
        }
    }
}
