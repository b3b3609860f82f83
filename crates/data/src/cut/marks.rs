//! Segment times as Whisper writes them.

use super::TimedText;

/// What one step of a timestamp is, in seconds.
pub const STEP_S: f64 = 0.02;
/// The last timestamp that Whisper has, `<|30.00|>`, in steps.
const LAST: u32 = 1500;

/// A timestamp or a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark<'a> {
    /// The token `<|t|>`, by its number: steps of 20 ms from the start of the window. `<|0.00|>` is 0, `<|30.00|>` 1500.
    Time(u32),
    /// What is said between two of them, trimmed.
    Text(&'a str),
}

/// The order in which Whisper writes segments down: start, text, end for each.
///
/// Times are seconds from the start of the window. They are rounded to 20 ms, held within the window of `window_s` seconds
/// (and 30 s, which Whisper's timestamps end at), and never go back: a segment that begins before the one in front of it
/// has ended begins where that ends. Segments without text are left out.
pub fn marks(segments: &[TimedText], window_s: f64) -> Vec<Mark<'_>> {
    let last = ((window_s / STEP_S).floor() as u32).min(LAST);
    let mut now = 0;
    let mut at = |seconds: f64| {
        // Of a number that is negative or none, the conversion makes 0.
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
