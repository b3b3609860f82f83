//! Segment times as Whisper's timestamps.

use super::TimedText;

/// Step of a timestamp, in seconds.
pub const STEP_S: f64 = 0.02;
/// Whisper's last timestamp, `<|30.00|>`, in steps.
const LAST: u32 = 1500;

/// A timestamp or a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark<'a> {
    /// The token `<|t|>`, as a number of steps of 20 ms from the start of the window. `<|0.00|>` is 0, `<|30.00|>`
    /// 1500.
    Time(u32),
    /// The text between two timestamps, trimmed.
    Text(&'a str),
}

/// Returns the segments in the order in which Whisper writes them: start, text, end for each.
///
/// Times are in seconds from the start of the window. They are rounded to 20 ms, clamped to the window of `window_s`
/// seconds (and to 30 s, the end of Whisper's timestamps), and never decrease: a segment that begins before the end of
/// the previous one begins at that end. Segments without text are left out.
pub fn marks(segments: &[TimedText], window_s: f64) -> Vec<Mark<'_>> {
    let last = ((window_s / STEP_S).floor() as u32).min(LAST);
    let mut now = 0;
    let mut at = |seconds: f64| {
        // The conversion turns negative numbers and NaN into 0.
        now = ((seconds / STEP_S).round() as u32).clamp(now, last);
        Mark::Time(now)
    };
    let said = segments.iter().filter(|segment| !segment.text.trim().is_empty());
    said.flat_map(|segment| [at(segment.start), Mark::Text(segment.text.trim()), at(segment.end)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mark::{Text, Time};
    use proptest::prelude::*;

    fn said(start: f64, end: f64, text: &str) -> TimedText {
        TimedText { start, end, text: text.into() }
    }

    #[test]
    fn times_are_rounded_to_steps_and_held_in_the_window() {
        let given =
            [said(0.009, 1.011, " Hello "), said(1.0, 2.5, "there"), said(2.5, 3.0, " "), said(29.0, 30.4, "!")];
        let expected =
            [Time(0), Text("Hello"), Time(51), Time(51), Text("there"), Time(125), Time(1450), Text("!"), Time(1500)];
        assert_eq!(marks(&given, 30.0), expected);
        assert_eq!(marks(&[said(1.0, 9.0, "a")], 8.0)[2], Time(400));
        assert_eq!(marks(&[said(-1.0, 99.0, "a")], 60.0), [Time(0), Text("a"), Time(1500)]);
    }

    proptest! {
        #[test]
        fn times_never_go_back(times in prop::collection::vec((-1.0f64..40.0, -1.0f64..40.0), 0..20)) {
            let given: Vec<TimedText> = times.iter().map(|(start, end)| said(*start, *end, "x")).collect();
            let steps: Vec<u32> = marks(&given, 30.0).into_iter().filter_map(|mark| match mark {
                Time(step) => Some(step),
                Text(_) => None,
            }).collect();
            prop_assert_eq!(steps.len(), 2 * given.len());
            prop_assert!(steps.is_sorted() && steps.iter().all(|step| *step <= 1500));
        }
    }
}
