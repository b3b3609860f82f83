//! Spacing of characters. By Farnsworth's method they are sent fast, but far apart, as for learners.

use super::envelope::{CHARACTER_GAP, Signal, WIDE_GAP_DITS};
use super::listen::answer;
use super::radio::RATE;
use std::ops::Range;

/// Gap between characters in dits, where they are as far apart as their speed asks for, and that between words as a multiple of it.
const USUAL_GAP: f64 = 3.0;
const WORD_TO_CHARACTER: [f64; 2] = [1.9, 2.8];
/// Ratio of a gap to the shortest ones above which it is one between words.
const WORD_GAP: f64 = 1.6;
/// Minimum numbers of gaps that decide the spacing: of gaps that are wide in any case, and of others. A single
/// one is between characters if its ratio is this large: where it is usual, as much audio has more characters.
const FEWEST_GAPS: [usize; 2] = [2, 3];
const SINGLE: f64 = 5.0;
/// Number of gaps below which all of them count.
const FEW_GAPS: usize = 5;
/// Minimum ratio of wide gaps to usual ones. What is less a model reads as it is.
const LEAST: f64 = 1.5;
/// Ratio above which gaps are wide even if they are all the same: single characters in words of their own are 7 / 3 apart.
const CERTAIN: f64 = WIDE_GAP_DITS / USUAL_GAP;
/// Samples over which audio is faded from before a cut to after it: 5 ms.
const FADE: usize = 80;

/// Characters that are far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spacing {
    /// Gap between characters, as a multiple of what their speed asks for.
    pub ratio: f64,
    /// Length of a dit, in samples.
    dit: f64,
}

impl Spacing {
    /// Returns the spacing of a signal, if it is wide.
    ///
    /// Gaps of seven dits alone are those between words of one character each; with others that are 7 / 3 as long, they are gaps
    /// between characters.
    pub fn wide(signal: &Signal) -> Option<Self> {
        let Measured { gaps, shortest, spacing } = Measured::of(signal)?;
        let (short, long) = gaps.split_at(gaps.partition_point(|gap| *gap <= WORD_GAP * shortest));
        let middle = |gaps: &[f64]| gaps.get(gaps.len() / 2).copied();
        let between = middle(long).zip(middle(short)).map(|(long, short)| long / short);
        let two_kinds = gaps.len() >= FEWEST_GAPS[1]
            && short.len() >= long.len()
            && between.is_some_and(|times| (WORD_TO_CHARACTER[0]..=WORD_TO_CHARACTER[1]).contains(&times));
        let least = if gaps.len() >= FEWEST_GAPS[0] { CERTAIN } else { SINGLE };
        let is_certain = spacing.ratio >= least;
        (is_certain || two_kinds && spacing.ratio >= LEAST).then_some(spacing)
    }

    /// Whether no two characters of a signal are as close as their speed asks for, so that more of it may show that it is wide.
    pub fn may_be_wide(signal: &Signal) -> bool {
        Measured::of(signal).is_some_and(|Measured { spacing, .. }| spacing.ratio >= LEAST)
    }

    /// Returns the gaps that are too wide, of a signal with these marks. One in which another station sends is none of them.
    pub fn gaps(&self, audio: &[f32], marks: &[Range<usize>]) -> Vec<Range<usize>> {
        let wide = gaps(marks).filter(|gap| gap.len() as f64 > CHARACTER_GAP * self.dit);
        wide.filter(|gap| answer(&audio[gap.clone()]).is_none()).collect()
    }

    /// Returns audio with these gaps as long as the speed of the characters asks for.
    pub fn closed(&self, audio: &[f32], gaps: &[Range<usize>]) -> Vec<f32> {
        let mut closed = Vec::with_capacity(audio.len());
        let mut from = 0;
        for gap in gaps {
            let left = (gap.len() as f64 / self.ratio) as usize;
            let [before, after] = [gap.start + left / 2, gap.end - (left - left / 2)];
            if after <= before + FADE {
                continue;
            }
            closed.extend_from_slice(&audio[from..before]);
            let fade = (0..FADE).map(|at| {
                let share = at as f32 / FADE as f32;
                audio[before + at] * (1.0 - share) + audio[after - FADE + at] * share
            });
            closed.extend(fade);
            from = after;
        }
        closed.extend_from_slice(&audio[from..]);
        closed
    }

    /// Returns by how much audio with these gaps becomes shorter, as a ratio of at least 1.
    pub fn gain(&self, samples: usize, gaps: &[Range<usize>]) -> f64 {
        let saved: f64 = gaps.iter().map(|gap| gap.len() as f64).map(|gap| gap - gap / self.ratio).sum();
        samples as f64 / (samples as f64 - saved)
    }
}

/// Gaps of a signal that are not inside characters.
struct Measured {
    /// Their lengths in samples, from the shortest on.
    gaps: Vec<f64>,
    /// Length of the shortest. Of several gaps, one or an eighth may be cut short by a peak of noise.
    shortest: f64,
    /// Spacing, if the shortest are between characters.
    spacing: Spacing,
}

impl Measured {
    fn of(signal: &Signal) -> Option<Self> {
        let dit = 1.2 / signal.tone.wpm * RATE;
        let mut gaps: Vec<f64> = gaps(&signal.marks).map(|gap| gap.len() as f64).collect();
        gaps.retain(|gap| *gap > CHARACTER_GAP * dit);
        gaps.sort_by(f64::total_cmp);
        let spurious = if gaps.len() < FEW_GAPS { 0 } else { (gaps.len() / 8).max(1) };
        let shortest = *gaps.get(spurious)?;
        Some(Self { gaps, shortest, spacing: Spacing { ratio: shortest / (USUAL_GAP * dit), dit } })
    }
}

/// Returns the gaps between marks.
fn gaps(marks: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    marks.windows(2).map(|pair| pair[0].end..pair[1].start)
}

#[cfg(test)]
mod tests {
    use super::super::tests::far_apart;
    use super::*;
    use crate::listen::certain_signal;
    use crate::morse::code;

    const TEXT: &str = "NOW IS THE TIME FOR ALL GOOD MEN TO COME";

    #[test]
    fn characters_that_are_far_apart_are_brought_together() {
        for (wpm, ratio) in [(18.0, 0.3), (18.0, 0.45), (25.0, 0.6)] {
            let audio = far_apart(TEXT, wpm, ratio);
            let signal = certain_signal(&audio).expect("a signal");
            let spacing = Spacing::wide(&signal).expect("it is wide");
            // A text of 50 dits has 19 of them in gaps (PARIS and the word gap after it).
            let expected = f64::from(50.0 / ratio - 31.0) / 19.0;
            assert!((spacing.ratio / expected - 1.0).abs() < 0.15, "{wpm} {ratio}: {spacing:?}, not {expected}");
            let gaps = spacing.gaps(&audio, &signal.marks);
            let closed = spacing.closed(&audio, &gaps);
            let gain = audio.len() as f64 / closed.len() as f64;
            assert!((spacing.gain(audio.len(), &gaps) / gain - 1.0).abs() < 0.02, "{gain}");
            let after = certain_signal(&closed).expect("a signal");
            let marks: usize = TEXT.chars().filter_map(code).map(str::len).sum();
            assert_eq!((after.marks.len(), Spacing::wide(&after)), (marks, None));
            assert!((after.tone.wpm / f64::from(wpm) - 1.0).abs() < 0.1, "{:?}", after.tone);
        }
    }

    #[test]
    fn words_of_one_character_are_not_characters_far_apart() {
        for text in ["NOW IS THE TIME FOR ALL", "A B C D E F G H", "5 5 5 NN TU", "E E E E E E", "ANNA BOB"] {
            let audio = far_apart(text, 20.0, 1.0);
            assert_eq!(certain_signal(&audio).and_then(|signal| Spacing::wide(&signal)), None, "{text}");
        }
    }
}
