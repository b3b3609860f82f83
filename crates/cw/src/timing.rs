//! Timing of a clip: its characters, and the elements that they are keyed in.

use super::{CwMark, morse};
use undertone_data::source::{Mark, Timing};

/// Number of classes of elements: silence, dit, dah, and the gaps inside a character, between characters, between
/// words.
pub const ELEMENT_CLASSES: usize = 6;
const DIT: usize = 1;
const DAH: usize = 2;
const GAP_IN_CHARACTER: usize = 3;
const GAP_OF_LETTERS: usize = 4;
const GAP_OF_WORDS: usize = 5;

/// Returns the timing of a clip with these marks. A space is marked without its first and last unit, and the characters
/// of a prosign share its extent, without elements.
pub fn timing(marks: &[CwMark]) -> Timing {
    let mut timing = Timing::default();
    let mut previous_end: Option<f32> = None;
    let mut rest = marks;
    while let Some(first) = rest.first() {
        // The characters of a prosign are keyed as one and have the same times.
        let shared = rest.iter().take_while(|mark| mark.start == first.start && mark.end == first.end).count();
        let (group, after) = rest.split_at(shared);
        rest = after;
        let (start, end) = (first.start, first.end);
        if first.character == ' ' {
            let margin = (end - start) / 7.0;
            timing.characters.push(Mark { start: start + margin, end: end - margin, label: ' ' });
            timing.elements.push(Mark { start, end, label: Some(GAP_OF_WORDS) });
            previous_end = None;
            continue;
        }
        if let Some(before) = previous_end {
            timing.elements.push(Mark { start: before, end: start, label: Some(GAP_OF_LETTERS) });
        }
        let share = (end - start) / shared as f32;
        timing.characters.extend(group.iter().enumerate().map(|(index, mark)| {
            let start = start + share * index as f32;
            Mark { start, end: start + share, label: mark.character }
        }));
        match morse::code(first.character).filter(|_| shared == 1) {
            Some(code) => key(code, start, end, &mut timing.elements),
            None => timing.elements.push(Mark { start, end, label: None }),
        }
        previous_end = Some(end);
    }
    timing
}

/// Lays out a character's elements over its extent: a dit is one unit, a dah three, the gaps between them one.
fn key(code: &str, start: f32, end: f32, elements: &mut Vec<Mark<Option<usize>>>) {
    let length = |element: char| if element == '-' { 3.0 } else { 1.0 };
    let units: f32 = code.chars().map(length).sum::<f32>() + code.len() as f32 - 1.0;
    let unit = (end - start) / units;
    elements.push(Mark { start, end, label: Some(GAP_IN_CHARACTER) });
    let mut at = start;
    for element in code.chars() {
        let next = at + length(element) * unit;
        elements.push(Mark { start: at, end: next, label: Some(if element == '-' { DAH } else { DIT }) });
        at = next + unit;
    }
}
