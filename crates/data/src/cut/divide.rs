//! Division of a transcript among the pieces of its audio.

use std::ops::Range;

use super::align::{distance, matches};
use super::units::{Numbers, Units};

/// Maximum number of unmatched words of the transcript that are taken for words lost at an edge. More of them are assigned
/// to a piece with an empty hypothesis.
const STRAY: usize = 4;

/// A transcript in parts, one for each piece of the audio.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// Parts, in the order of the pieces. Together they are the transcript.
    pub parts: Vec<TranscriptPart>,
}

/// The part of a transcript that belongs to one piece.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptPart {
    /// Text; empty if nothing is said in the piece.
    pub text: String,
    /// Byte range of the text in the transcript.
    pub range: Range<usize>,
    /// Number of its words after normalisation; of its characters for scripts without spaces.
    pub words: usize,
    /// Number of insertions, deletions and substitutions between it and the hypothesis.
    pub errors: usize,
}

impl TranscriptPart {
    /// Returns the errors per word, of at least 1 word. Above a few tenths, the piece and its text do not belong
    /// together, or the model does not know the language.
    pub fn error_rate(&self) -> f64 {
        self.errors as f64 / self.words.max(1) as f64
    }
}

/// Divides the transcript of a long recording among its pieces, with a model's hypothesis for each piece.
///
/// The words of reference and hypotheses, in lower case and without punctuation and diacritics, are aligned with the
/// fewest errors (characters instead of words in scripts without spaces). The border between two pieces is between the
/// matched words next to it. Unmatched words between those two are distributed in proportion to the unmatched words of
/// the hypotheses, or evenly if there are none. If a piece in between has an empty hypothesis and more than four words
/// are unmatched, it gets them.
///
/// Every word of the transcript, punctuation included, is in exactly one part. Returns `None` if no division is
/// possible: without pieces, or if the hypotheses contain no word of the transcript.
///
/// The time is proportional to the product of both lengths, some seconds for 30,000 words; the memory to their sum.
pub fn divide(reference: &str, transcribed: &[String]) -> Option<Division> {
    let mut numbers = Numbers::default();
    let reference_units = Units::new(reference, &mut numbers);
    let transcribed: Vec<Vec<u32>> = transcribed.iter().map(|text| Units::new(text, &mut numbers).numbers).collect();
    let pairs = matches(&reference_units.numbers, &transcribed.concat());
    if transcribed.is_empty() || pairs.is_empty() && !reference.trim().is_empty() {
        return None;
    }

    let units = reference_units.numbers.len();
    let lengths: Vec<usize> = transcribed.iter().map(Vec::len).collect();
    let mut borders: Vec<usize> =
        borders(&pairs, &lengths, units).into_iter().map(|unit| reference_units.word_at(unit)).collect();
    borders.push(reference_units.words.len());
    let mut from = 0;
    let parts = borders.iter().zip(&transcribed).map(|(to, transcribed)| {
        let words = from..*to;
        from = *to;
        reference_units.part(reference, words, transcribed)
    });
    Some(Division { parts: parts.collect() })
}

impl Units {
    /// Returns the border between words that is nearest to the border before a unit.
    fn word_at(&self, unit: usize) -> usize {
        let Some(&word) = self.word_of.get(unit) else { return self.words.len() };
        let before = self.word_of[..unit].iter().rev().take_while(|other| **other == word).count();
        let after = self.word_of[unit..].iter().take_while(|other| **other == word).count();
        if before < after { word } else { word + 1 }
    }

    fn part(&self, text: &str, words: Range<usize>, transcribed: &[u32]) -> TranscriptPart {
        let start = self.words.get(words.start).map_or(text.len(), |word| word.start);
        let end = if words.is_empty() { start } else { self.words[words.end - 1].end };
        let [from, to] = [words.start, words.end].map(|word| self.word_of.partition_point(|of| *of < word));
        let said = &self.numbers[from..to];
        TranscriptPart {
            text: text[start..end].to_owned(),
            range: start..end,
            words: said.len(),
            errors: distance(said, transcribed),
        }
    }
}

/// Returns, for each piece but the last, the unit of the transcript before which it ends.
fn borders(pairs: &[(usize, usize)], lengths: &[usize], units: usize) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(lengths.iter().scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    }));
    let total = starts[lengths.len()];
    let mut borders = Vec::new();
    // First unit and word after the last match.
    let (mut unit, mut word) = (0, 0);
    for (at, (to_unit, to_word)) in pairs.iter().copied().chain([(units, total)]).enumerate() {
        let piece = borders.len();
        let ended = starts[piece + 1..lengths.len()].iter().take_while(|end| **end <= to_word).count();
        if ended > 0 {
            let gap = Gap { missed: to_unit - unit, first: at == 0, last: at == pairs.len() };
            // Number of the gap's words in each piece at the gap.
            let inside = |n: usize| starts[n + 1].min(to_word).saturating_sub(starts[n].max(word));
            let pieces: Vec<(usize, bool)> = (piece..=piece + ended).map(|n| (inside(n), lengths[n] == 0)).collect();
            borders.extend(gap.shares(&pieces).into_iter().map(|share| unit + share));
        }
        (unit, word) = (to_unit + 1, to_word + 1);
    }
    borders
}

/// Gap between two matches.
struct Gap {
    /// Number of unmatched units of the transcript.
    missed: usize,
    /// Whether there is no match before it.
    first: bool,
    /// Whether there is no match after it.
    last: bool,
}

impl Gap {
    /// Returns the number of unmatched units before each border. `pieces` gives, for each piece, the number of its
    /// hypothesis' words in the gap, and whether its whole hypothesis is empty.
    fn shares(&self, pieces: &[(usize, bool)]) -> Vec<usize> {
        let transcribed: usize = pieces.iter().map(|(words, _)| words).sum();
        let silent = pieces.iter().filter(|(_, silent)| *silent).count();
        let surplus = self.missed.saturating_sub(transcribed);
        let lost = if silent > 0 && surplus > STRAY { surplus as f64 / silent as f64 } else { 0.0 };
        let weight = |(words, silent): &(usize, bool)| *words as f64 + if *silent { lost } else { 0.0 };
        let total: f64 = pieces.iter().map(weight).sum();
        let mut before = 0.0;
        let borders = pieces[..pieces.len() - 1].iter().map(|piece| {
            before += weight(piece);
            match (total > 0.0, self.first, self.last) {
                (true, ..) => (self.missed as f64 * before / total).round() as usize,
                (false, true, _) => 0,
                (false, _, true) => self.missed,
                (false, ..) => self.missed / 2,
            }
        });
        borders.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use proptest::prelude::*;
    use rand::RngExt;
    use rand_chacha::ChaCha8Rng;

    fn texts(reference: &str, transcribed: &[&str]) -> Vec<String> {
        let transcribed: Vec<String> = transcribed.iter().map(|text| text.to_string()).collect();
        divide(reference, &transcribed).unwrap().parts.into_iter().map(|part| part.text).collect()
    }

    #[test]
    fn a_transcript_is_divided_where_its_pieces_meet() {
        let reference = "It was the best of times, it was the worst of times; it was the age of wisdom.";
        let transcribed = ["it was the best of times", "it was the worst of dimes it", "was the age of wisdom"];
        let expected = ["It was the best of times,", "it was the worst of times; it", "was the age of wisdom."];
        assert_eq!(texts(reference, &transcribed), expected);
    }

    #[test]
    fn words_that_nobody_heard_go_where_something_else_was_heard() {
        assert_eq!(texts("a b c d e f", &["a b x", "y e f"]), ["a b c", "d e f"]);
        assert_eq!(texts("a b c d e f", &["a b", "x y e f"]), ["a b", "c d e f"]);
        assert_eq!(texts("a b c d e f", &["a b x y", "e f"]), ["a b c d", "e f"]);
        assert_eq!(texts("a b c d e f", &["a b", "e f"]), ["a b c", "d e f"]);
        assert_eq!(texts("a b c d", &["a b c d", ""]), ["a b c d", ""]);
        assert_eq!(texts("a b c d", &["", "", "c d"]), ["", "", "a b c d"]);
    }

    #[test]
    fn what_is_missing_altogether_goes_to_the_piece_where_nothing_was_heard() {
        let parts = texts("a b c 1 2 3 4 5 6 d e f", &["a b c", "", "d e f"]);
        assert_eq!(parts, ["a b c", "1 2 3 4 5 6", "d e f"]);
        assert_eq!(texts("1 2 3 4 5 6 d e f", &["", "d e f"]), ["1 2 3 4 5 6", "d e f"]);
        assert_eq!(texts("a b c 1 d e f", &["a b c", "", "d e f"]).concat(), "a b c1 d e f");
    }

    #[test]
    fn languages_without_spaces_are_divided_between_characters() {
        assert_eq!(texts("你好，世界。今天很好！", &["你好世界", "今天恨好"]), ["你好，世界。", "今天很好！"]);
    }

    #[test]
    fn errors_are_counted_by_piece() {
        let transcribed = ["one to three".into(), "nothing of the kind".into(), "".into()];
        let division = divide("One, two, three. Four five six.", &transcribed).unwrap();
        let errors: Vec<_> = division.parts.iter().map(|part| (part.words, part.errors)).collect();
        assert_eq!(errors, [(3, 1), (3, 4), (0, 0)]);
        assert!((division.parts[0].error_rate() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(&"One, two, three. Four five six."[division.parts[1].range.clone()], "Four five six.");
    }

    #[test]
    fn without_anything_to_go_by_there_is_no_division() {
        assert_eq!(divide("a b", &[]), None);
        assert_eq!(divide("a b", &["c d".into()]), None);
        assert_eq!(divide("...", &["c d".into()]), None);
        assert_eq!(texts(" ", &["c d", ""]), ["", ""]);
    }

    #[test]
    fn borders_of_hours_of_transcript_are_found() {
        let rng = &mut random::stream(1, 1);
        let words: Vec<usize> = (0..30_000).map(|_| vocabulary(rng)).collect();
        let pieces = cut(&words, rng);
        let transcribed: Vec<String> =
            pieces.iter().map(|piece| spelt(&misheard(&words[piece.clone()], 0.2, rng))).collect();
        let division = divide(&spelt(&words), &transcribed).unwrap();
        let off = off(&division, &pieces);
        assert!(off.iter().filter(|off| **off > 2).count() * 100 <= off.len(), "{off:?}");
    }

    /// A word with the frequency of real text: by Zipf's law, the n-th most frequent has a share in proportion to 1/n.
    fn vocabulary(rng: &mut ChaCha8Rng) -> usize {
        (5000f64.powf(rng.random::<f64>())) as usize
    }

    fn spelt(words: &[usize]) -> String {
        words.iter().map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ")
    }

    /// Pieces of 20 to 90 words.
    fn cut(words: &[usize], rng: &mut ChaCha8Rng) -> Vec<Range<usize>> {
        let (mut pieces, mut start) = (Vec::new(), 0);
        while start < words.len() {
            let end = (start + rng.random_range(20..=90)).min(words.len());
            pieces.push(start..end);
            start = end;
        }
        pieces
    }

    /// Half of the errors are substitutions, a quarter deletions and a quarter insertions.
    fn misheard(words: &[usize], errors: f64, rng: &mut ChaCha8Rng) -> Vec<usize> {
        let mut transcribed = Vec::new();
        for word in words {
            let kind: f64 = rng.random::<f64>() / errors;
            match kind {
                0.0..0.5 => transcribed.push(vocabulary(rng)),
                0.5..0.75 => {}
                0.75..1.0 => transcribed.extend([*word, vocabulary(rng)]),
                _ => transcribed.push(*word),
            }
        }
        transcribed
    }

    /// Returns the distance of each border from the right one, in words.
    fn off(division: &Division, pieces: &[Range<usize>]) -> Vec<usize> {
        let mut end = 0;
        let ends = division.parts.iter().map(|part| {
            end += part.words;
            end
        });
        ends.zip(pieces).map(|(end, piece)| end.abs_diff(piece.end)).collect()
    }

    #[test]
    fn borders_are_within_two_words_when_a_third_is_misheard() {
        for errors in [0.1, 0.2, 0.3] {
            let rng = &mut random::stream(5, (errors * 10.0) as u64);
            let mut all = Vec::new();
            for _ in 0..60 {
                let words: Vec<usize> = (0..1000).map(|_| vocabulary(rng)).collect();
                let pieces = cut(&words, rng);
                let transcribed: Vec<String> =
                    pieces.iter().map(|piece| spelt(&misheard(&words[piece.clone()], errors, rng))).collect();
                all.extend(off(&divide(&spelt(&words), &transcribed).unwrap(), &pieces));
            }
            let far = all.iter().filter(|off| **off > 2).count();
            assert!(far * 100 <= all.len(), "{far} of {} at {errors}", all.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn nothing_is_lost_and_nothing_doubled(
            reference in "([a-e]{1,2}[,. ]{0,2} |你|好。|\\(b\\) |-c ){0,60}",
            transcribed in prop::collection::vec("([a-e]{1,2} |你|好){0,12}", 1..8),
        ) {
            if let Some(division) = divide(&reference, &transcribed) {
                prop_assert_eq!(division.parts.len(), transcribed.len());
                let back: Vec<char> = division.parts.iter().flat_map(|p| p.text.chars()).filter(|c| !c.is_whitespace()).collect();
                prop_assert_eq!(back, reference.chars().filter(|c| !c.is_whitespace()).collect::<Vec<_>>());
                let words: Vec<&str> = division.parts.iter().flat_map(|part| part.text.split_whitespace()).collect();
                if reference.is_ascii() {
                    prop_assert_eq!(words, reference.split_whitespace().collect::<Vec<_>>());
                }
                for part in &division.parts {
                    prop_assert_eq!(&reference[part.range.clone()], &part.text);
                }
            }
        }

        #[test]
        fn what_was_heard_perfectly_is_divided_perfectly(pieces in prop::collection::vec("[A-D][a-d]{0,3}(,? [a-d]{1,4}){0,15}[.!?]", 1..10)) {
            let transcribed: Vec<String> = pieces.iter().map(|piece| piece.to_lowercase()).collect();
            let division = divide(&pieces.join(" "), &transcribed).unwrap();
            for (part, piece) in division.parts.iter().zip(&pieces) {
                prop_assert_eq!(&part.text, piece);
                prop_assert_eq!(part.errors, 0);
            }
        }
    }
}
