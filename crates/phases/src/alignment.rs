//! Targets for the encoder from the known timing of synthesised samples.
//!
//! From scratch, an encoder and a decoder learn slowly from each other: until the encoder output is informative, the
//! decoder has nothing to align to. A synthesised sample may have the time of every character, so the encoder can be
//! supervised directly. Two linear heads, used in training only, predict the character at each position from the
//! encoder's output, and the element that a character consists of from an early layer.

use undertone_data::source::{Mark, Timing};

/// Class of positions without an element.
const SILENCE: i64 = 0;
/// Label of positions without a loss.
const IGNORED: i64 = -100;

/// Targets at each encoder position of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Token of the character being sent, or the blank.
    pub characters: Vec<i64>,
    /// Class of the element being sent.
    pub elements: Vec<i64>,
}

impl Alignment {
    /// Returns the targets for a sample of `positions` positions, of which there are `rate` per second.
    pub fn new(timing: &Timing, positions: usize, rate: f32, blank: u32, token: impl Fn(char) -> u32) -> Self {
        let mut this = Self { characters: vec![i64::from(blank); positions], elements: vec![SILENCE; positions] };
        for mark in &timing.characters {
            fill(&mut this.characters, mark, rate, i64::from(token(mark.label)));
        }
        for mark in &timing.elements {
            fill(&mut this.elements, mark, rate, mark.label.map_or(IGNORED, |class| class as i64));
        }
        this
    }
}

/// Sets the positions whose centre is in the time of `mark`.
fn fill<L>(targets: &mut [i64], mark: &Mark<L>, rate: f32, value: i64) {
    let position = |seconds: f32| ((seconds * rate).round().max(0.0) as usize).min(targets.len());
    let range = position(mark.start)..position(mark.end).max(position(mark.start));
    targets[range].fill(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_cw::{CwMark, timing};

    #[test]
    fn marks_become_targets() {
        // "A E" with units of 40 ms, two positions each: A is dit, gap, dah; a word gap of seven; E is a dit.
        let mark = |start: f32, end: f32, character| CwMark { start, end, character };
        let marks = [mark(0.04, 0.24, 'A'), mark(0.24, 0.52, ' '), mark(0.52, 0.56, 'E')];
        let alignment = Alignment::new(&timing(&marks), 30, 50.0, 99, |c| c as u32);
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
        let halved = Alignment::new(&timing(&marks), 15, 25.0, 99, |c| c as u32);
        assert_eq!(runs(&halved.characters), [(99, 1), (65, 5), (99, 1), (32, 5), (99, 1), (69, 1), (99, 1)]);
    }

    #[test]
    fn a_prosign_is_spelled_over_its_extent_without_elements() {
        let marks: Vec<CwMark> = "<SK>".chars().map(|character| CwMark { start: 0.0, end: 0.8, character }).collect();
        let alignment = Alignment::new(&timing(&marks), 40, 50.0, 99, |c| c as u32);
        assert_eq!(alignment.characters.chunks(10).map(|c| c[0]).collect::<Vec<_>>(), [60, 83, 75, 62]);
        assert!(alignment.elements.iter().all(|e| *e == IGNORED));
    }
}
