//! How the texts of tasks are written, counted in their training data, to tell texts of another style which task they are for.

use std::collections::BTreeMap;
use undertone_store::{HostTensor, StoreError, TensorFile};

/// Logarithms of how often words, and pieces of words, stand in the texts of each task: naive Bayes over hashed n-grams.
///
/// Case matters, because tokenizers for lower-cased models hide it. Texts that were written elsewhere share few features of a
/// frozen model with those of their task, but many of their words and spellings.
#[derive(Clone, Debug, PartialEq)]
pub struct WordCounts {
    tasks: usize,
    /// Logarithm of the probability of each piece in a text of each task, `[BUCKETS, tasks]`.
    logarithms: Vec<f32>,
}

/// Character between the two texts of a pair: the record separator of ASCII.
pub const PAIR: char = '\u{1e}';

/// Name of the tensor in a file.
const LOGARITHMS: &str = "logarithms";

/// Number of different pieces; others share one by their hash.
const BUCKETS: usize = 1 << 16;

/// Count of every piece before the first text. Small: a piece that a task has never had is strong evidence against it.
const SMOOTHING: f64 = 0.01;

/// Longest piece of a word, in characters.
const LONGEST: usize = 3;

/// Number of pieces that whether a text is a pair counts as.
const MARKS: usize = 3;

/// Number of pieces that are read of a text.
const MOST: usize = 4096;

impl WordCounts {
    /// Counts the pieces of texts, each with its task, below `tasks`. `None` if a task has no text.
    pub fn count<'a>(texts: impl Iterator<Item = (&'a str, usize)>, tasks: usize) -> Option<Self> {
        let mut counts = vec![0_u64; BUCKETS * tasks];
        let mut totals = vec![0_u64; tasks];
        for (text, task) in texts {
            for bucket in buckets(text) {
                counts[bucket * tasks + task] += 1;
                totals[task] += 1;
            }
        }
        if tasks == 0 || totals.contains(&0) {
            return None;
        }
        let logarithm = |(i, count): (usize, u64)| {
            let total = totals[i % tasks] as f64 + SMOOTHING * BUCKETS as f64;
            ((count as f64 + SMOOTHING) / total).ln() as f32
        };
        Some(Self { tasks, logarithms: counts.into_iter().enumerate().map(logarithm).collect() })
    }

    /// Evidence of a text for each task: the logarithm of its probability, above the mean of all tasks, divided by the square
    /// root of its number of pieces. Pieces overlap, so that their probabilities are not independent, and the sum alone would be
    /// far too sure of long texts.
    pub fn evidence(&self, text: &str) -> Vec<f32> {
        let mut sums = vec![0.0_f64; self.tasks];
        let mut pieces = 0;
        for bucket in buckets(text) {
            let row = &self.logarithms[bucket * self.tasks..][..self.tasks];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            pieces += 1;
        }
        let mean = sums.iter().sum::<f64>() / self.tasks as f64;
        let scale = f64::from(pieces.max(1)).sqrt();
        sums.into_iter().map(|sum| ((sum - mean) / scale) as f32).collect()
    }

    /// Tensors for a file.
    pub fn tensors(&self) -> BTreeMap<String, HostTensor> {
        let tensor = HostTensor { shape: vec![BUCKETS, self.tasks], data: self.logarithms.clone() };
        BTreeMap::from([(LOGARITHMS.to_owned(), tensor)])
    }

    /// Reads the tensors of a file, for this number of tasks; `None` if they are of another number.
    ///
    /// # Errors
    /// When the tensor is missing.
    pub fn read(file: &TensorFile, tasks: usize) -> Result<Option<Self>, StoreError> {
        let HostTensor { shape, data } = file.read(LOGARITHMS)?;
        Ok((tasks > 0 && shape == [BUCKETS, tasks]).then_some(Self { tasks, logarithms: data }))
    }
}

/// Returns the pieces of a text by their hashes: of each word, all of up to three characters with the space around it, and the
/// word itself; and whether the text is a [pair](PAIR).
fn buckets(text: &str) -> impl Iterator<Item = usize> {
    let mark = if text.contains(PAIR) { "\u{2}" } else { "\u{1}" };
    let words = text.split(|c: char| c.is_whitespace() || c == PAIR).filter(|word| !word.is_empty());
    let pieces = words.flat_map(|word| {
        let spaced: Vec<char> = format!(" {word} ").chars().collect();
        let pieces =
            (1..=LONGEST).flat_map(|n| spaced.windows(n).map(|piece| hash(piece.iter().copied())).collect::<Vec<_>>());
        pieces.chain([hash(word.chars())]).collect::<Vec<_>>()
    });
    std::iter::repeat_n(hash(mark.chars()), MARKS).chain(pieces).take(MOST)
}

/// FNV-1a of the UTF-8 bytes of characters, which `predict.py` computes, too.
fn hash(characters: impl Iterator<Item = char>) -> usize {
    let mut bytes = [0; 4];
    let hash = characters.fold(0x811c_9dc5_u32, |hash, character| {
        let encoded = character.encode_utf8(&mut bytes).bytes();
        encoded.fold(hash, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    });
    hash as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_store::{Dtype, write_tensors};

    const TEXTS: [(&str, usize); 6] = [
        ("the film is slow and the plot is thin", 0),
        ("a moving story , well told", 0),
        ("the cast is wonderful", 0),
        ("OMG cant wait 4 the game 2nite!!! @bob", 1),
        ("gr8 day in NYC with @ann :)", 1),
        ("LOL u r so funny", 1),
    ];

    fn counts() -> WordCounts {
        WordCounts::count(TEXTS.into_iter(), 2).expect("counted")
    }

    fn choice(counts: &WordCounts, text: &str) -> usize {
        let evidence = counts.evidence(text);
        usize::from(evidence[1] > evidence[0])
    }

    #[test]
    fn hashes_are_those_of_fnv() {
        // Vectors of the authors' page (isthe.com/chongo/tech/comp/fnv), modulo the number of buckets.
        for (text, hashed) in [("", 0x811c_9dc5_u32), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(hash(text.chars()), hashed as usize % BUCKETS, "{text}");
        }
        assert_eq!(hash("é".chars()), hash_of_bytes("é".as_bytes()));
    }

    fn hash_of_bytes(bytes: &[u8]) -> usize {
        bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)) as usize
            % BUCKETS
    }

    #[test]
    fn unseen_texts_are_told_by_how_they_are_written() {
        let counts = counts();
        for (text, task) in [
            ("the story is moving", 0),
            ("a thin but wonderful film", 0),
            ("cant wait 2 c u @tom!!!", 1),
            ("SO FUNNY LOL", 1),
        ] {
            assert_eq!(choice(&counts, text), task, "{text}");
        }
        // The words are those of films, the case is that of messages.
        assert_ne!(counts.evidence("THE FILM"), counts.evidence("the film"));
    }

    #[test]
    fn evidence_is_that_of_its_definition() {
        let counts = WordCounts::count([("ab", 0), ("ab", 0), ("c", 1)].into_iter(), 2).expect("counted");
        // The mark of a single text, and of ` ab `: four of one character (the space twice), three of two, two of three, and the word.
        let (of_ab, of_c) = (3 + 4 + 3 + 2 + 1, 3 + 3 + 2 + 1 + 1);
        let p = |count: f64, total: f64| ((count + SMOOTHING) / (total + SMOOTHING * BUCKETS as f64)).ln();
        let (first, second) = (2.0 * f64::from(of_ab), f64::from(of_c));
        // Of ` c `: the mark three times, the space twice, `c` twice, ` c`, `c ` and ` c `.
        let mark = [p(6.0, first), p(3.0, second)];
        let space = [p(4.0, first), p(2.0, second)];
        let letter = [p(0.0, first), p(2.0, second)];
        let other = [p(0.0, first), p(1.0, second)];
        let sums = [0, 1].map(|task| 3.0 * mark[task] + 2.0 * space[task] + 2.0 * letter[task] + 3.0 * other[task]);
        let expected = (sums[1] - sums[0]) / 2.0 / f64::from(of_c).sqrt();
        let evidence = counts.evidence("c");
        assert!((f64::from(evidence[1]) - expected).abs() < 1e-4, "{evidence:?} {expected}");
        assert!((evidence[0] + evidence[1]).abs() < 1e-5);
    }

    #[test]
    fn long_texts_and_pairs_and_empty_ones_have_evidence() {
        let pairs = [("where it is here", 0), ("where\u{1e}it is here", 1)];
        let counts = WordCounts::count(pairs.into_iter(), 2).expect("counted");
        assert_eq!((choice(&counts, "it is here"), choice(&counts, "is it\u{1e}here")), (0, 1));
        // A text of several lines is no pair.
        assert_eq!(counts.evidence("is it\nhere"), counts.evidence("is it here"));
        assert!(counts.evidence("").iter().all(|x| x.is_finite()));
        assert_eq!(buckets(&"word ".repeat(10_000)).count(), MOST);
        assert_eq!(WordCounts::count([("a", 0)].into_iter(), 2), None);
        assert_eq!(WordCounts::count(std::iter::empty(), 0), None);
    }

    #[test]
    fn files_hold_all_of_it() {
        let (counts, dir) = (counts(), tempfile::tempdir().expect("a directory"));
        let path = dir.path().join("words.safetensors");
        write_tensors(&path, &counts.tensors(), Dtype::F32).expect("written");
        let file = TensorFile::open(&path).expect("a file");
        assert_eq!(WordCounts::read(&file, 2).expect("read"), Some(counts));
        assert_eq!(WordCounts::read(&file, 3).expect("read"), None);
    }
}
