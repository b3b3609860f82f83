//! Targets for the encoder from the known timing of synthesised samples.
//!
//! From scratch, an encoder and a decoder learn slowly from each other: until the encoder output is informative, the
//! decoder has nothing to align to. A synthesised sample has the time of every character, so the encoder can be
//! supervised directly. Two linear heads, used in training only, predict the character at each position from the
//! encoder's output, and the Morse element (dit, dah, gap) from an early layer.

use crate::config::ConfigError;
use serde::{Deserialize, Serialize};
use undertone_cw::{CwMark, morse};

/// Number of classes of the element head: silence, dit, dah, and the gaps inside a character, between characters,
/// between words.
pub const ELEMENTS: usize = 6;
const SILENCE: i64 = 0;
const DIT: i64 = 1;
const DAH: i64 = 2;
const GAP_IN_CHARACTER: i64 = 3;
const GAP_OF_LETTERS: i64 = 4;
const GAP_OF_WORDS: i64 = 5;
/// Label of positions without a loss.
const IGNORED: i64 = -100;

/// Loss terms on the encoder from known timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlignmentConfig {
    /// Weight of the cross-entropy of the character at each position; 0 leaves it out.
    pub characters: f64,
    /// Weight of the cross-entropy of the Morse element at each position; 0 leaves it out.
    pub elements: f64,
    /// Number of encoder blocks before the element head.
    pub elements_layer: usize,
}

impl Default for AlignmentConfig {
    fn default() -> Self {
        Self { characters: 0.0, elements: 0.0, elements_layer: 2 }
    }
}

impl AlignmentConfig {
    /// Whether any term has a weight above 0.
    pub fn is_on(&self) -> bool {
        self.characters > 0.0 || self.elements > 0.0
    }

    /// # Errors
    /// When a weight is negative or not finite, or `elements_layer` is set without a weight for `elements`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, weight) in [("characters", self.characters), ("elements", self.elements)] {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(ConfigError::Value(format!("`loss.alignment.{key}` is {weight}: it must be at least 0")));
            }
        }
        if self.elements == 0.0 && self.elements_layer != Self::default().elements_layer {
            let reason = "is for `loss.alignment.elements`, which is 0: give that a weight, or leave it out";
            return Err(ConfigError::Value(format!("`loss.alignment.elements_layer` {reason}")));
        }
        Ok(())
    }
}

/// Targets at each encoder position (20 ms) of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Token of the character being sent, or the blank.
    pub characters: Vec<i64>,
    /// Morse element being sent.
    pub elements: Vec<i64>,
}

impl Alignment {
    /// Returns the targets for the marks of a sample with `positions` positions.
    pub fn new(marks: &[CwMark], positions: usize, blank: u32, token: impl Fn(char) -> u32) -> Self {
        let mut this = Self { characters: vec![i64::from(blank); positions], elements: vec![SILENCE; positions] };
        let mut previous_end: Option<f32> = None;
        let mut rest = marks;
        while let Some(first) = rest.first() {
            // The characters of a prosign are keyed as one and share its extent.
            let shared = rest.iter().take_while(|m| m.start == first.start && m.end == first.end).count();
            let (group, after) = rest.split_at(shared);
            rest = after;
            if first.character == ' ' {
                let margin = (first.end - first.start) / 7.0;
                fill(&mut this.characters, first.start + margin, first.end - margin, i64::from(token(' ')));
                fill(&mut this.elements, first.start, first.end, GAP_OF_WORDS);
                previous_end = None;
                continue;
            }
            if let Some(end) = previous_end {
                fill(&mut this.elements, end, first.start, GAP_OF_LETTERS);
            }
            let share = (first.end - first.start) / shared as f32;
            for (i, mark) in group.iter().enumerate() {
                let start = first.start + share * i as f32;
                fill(&mut this.characters, start, start + share, i64::from(token(mark.character)));
            }
            match morse::code(first.character).filter(|_| shared == 1) {
                Some(code) => this.key(code, first.start, first.end),
                None => fill(&mut this.elements, first.start, first.end, IGNORED),
            }
            previous_end = Some(first.end);
        }
        this
    }

    /// Lays out a character's elements over its extent: a dit is one unit, a dah three, the gaps between them one.
    fn key(&mut self, code: &str, start: f32, end: f32) {
        let length = |element: char| if element == '-' { 3.0 } else { 1.0 };
        let units: f32 = code.chars().map(length).sum::<f32>() + code.len() as f32 - 1.0;
        let unit = (end - start) / units;
        fill(&mut self.elements, start, end, GAP_IN_CHARACTER);
        let mut at = start;
        for element in code.chars() {
            let next = at + length(element) * unit;
            fill(&mut self.elements, at, next, if element == '-' { DAH } else { DIT });
            at = next + unit;
        }
    }
}

/// Sets the positions whose centre is between `start` and `end`, in seconds.
fn fill(targets: &mut [i64], start: f32, end: f32, value: i64) {
    let position = |seconds: f32| ((seconds * 50.0).round().max(0.0) as usize).min(targets.len());
    let range = position(start)..position(end).max(position(start));
    targets[range].fill(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_targets() {
        // "A E" with units of 40 ms, two positions each: A is dit, gap, dah; a word gap of seven; E is a dit.
        let mark = |start: f32, end: f32, character| CwMark { start, end, character };
        let marks = [mark(0.04, 0.24, 'A'), mark(0.24, 0.52, ' '), mark(0.52, 0.56, 'E')];
        let alignment = Alignment::new(&marks, 30, 99, |c| c as u32);
        let runs = |values: &[i64]| {
            let mut runs: Vec<(i64, usize)> = Vec::new();
            for v in values {
                match runs.last_mut() {
                    Some((last, n)) if last == v => *n += 1,
                    _ => runs.push((*v, 1)),
                }
            }
            runs
        };
        assert_eq!(runs(&alignment.characters), [(99, 2), (65, 10), (99, 2), (32, 10), (99, 2), (69, 2), (99, 2)]);
        assert_eq!(runs(&alignment.elements), [(0, 2), (1, 2), (3, 2), (2, 6), (5, 14), (1, 2), (0, 2)]);
    }

    #[test]
    fn a_prosign_is_spelled_over_its_extent_without_elements() {
        let marks: Vec<CwMark> = "<SK>".chars().map(|character| CwMark { start: 0.0, end: 0.8, character }).collect();
        let alignment = Alignment::new(&marks, 40, 99, |c| c as u32);
        assert_eq!(alignment.characters.chunks(10).map(|c| c[0]).collect::<Vec<_>>(), [60, 83, 75, 62]);
        assert!(alignment.elements.iter().all(|e| *e == IGNORED));
    }
}
