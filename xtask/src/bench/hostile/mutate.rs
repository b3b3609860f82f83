//! How a good input becomes a hostile one. A seed and a number fix every byte.

use crate::bench::random::Random;
use std::ops::Range;

impl Random {
    /// A part of `0..length` of at most `most`.
    fn part(&mut self, length: usize, most: usize) -> Range<usize> {
        let start = self.below(length);
        start..(start + 1 + self.below(most)).min(length)
    }

    /// A place in `0..length`: often near the beginning or the end, where formats say what they hold.
    fn place(&mut self, length: usize) -> usize {
        match self.below(4) {
            0 => self.below(length.min(64)),
            1 => self.below(length.min(512)),
            2 => length.saturating_sub(1 + self.below(length.min(1024))),
            _ => self.below(length),
        }
    }
}

/// What numbers in texts become.
const NUMBERS: [&str; 30] = [
    "0", "-1", "1", "2", "-0.0", "0.5", "7", "255", "256", "65536", "1000000", "1000000000", "2147483648",
    "4294967295", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "18446744073709551616", "99999999999999999999999999999", "1e9", "1e18", "-1e18", "1e308",
    "1e999", "1e-320", "NaN", ".nan", ".inf",
];

/// What words in texts become.
const WORDS: [&str; 18] = [
    "", "null", "true", "[]", "{}", "[[]]", "\"\"", "\"a\"", "-", "~", "..", "/", "/dev/null", "\u{0}", "\u{202e}é世",
    "\"\\ud800\"", "NaN", "x",
];

/// What stands somewhere in texts.
const ODD: [&[u8]; 20] = [
    b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\0", b"\r", b"\n", b"\n\n", b"\t",
    b"\"", b"'", b"{", b"}", b"[", b": ", b", ", b"#", b"\n<<: *a\n", b"\n---\n",
];

/// What words of a machine become.
const EXTREMES: [u64; 12] =
    [0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Changes a binary file in a few places. `other` is another of its kind.
pub fn binary(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let at = random.place(bytes.len());
        match random.below(12) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            4..=6 => extreme(&mut bytes[at..], random),
            7 => bytes.truncate(at),
            8 => drop(bytes.drain(random.part(bytes.len(), 4096))),
            9 => {
                let part = bytes[random.part(bytes.len(), 4096)].to_vec();
                bytes.splice(at..at, part);
            }
            10 => {
                let part = random.part(bytes.len(), 64);
                bytes[part].fill_with(|| random.next() as u8);
            }
            _ => splice(bytes, other, random),
        }
    }
}

/// Changes a part of a binary file in a few places, and not its length.
pub fn in_place(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.place(bytes.len());
        match random.below(3) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            _ => extreme(&mut bytes[at..], random),
        }
    }
}

/// Overwrites a number of 1 to 8 bytes, in either order of bytes, with one at the edge of what fits.
fn extreme(bytes: &mut [u8], random: &mut Random) {
    let width = (*random.pick(&[1, 2, 4, 8])).min(bytes.len());
    let number = *random.pick(&EXTREMES);
    match random.below(2) {
        0 => bytes[..width].copy_from_slice(&number.to_le_bytes()[..width]),
        _ => bytes[..width].copy_from_slice(&number.to_be_bytes()[8 - width..]),
    }
}

/// A text's beginning, and another's end.
fn splice(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    bytes.truncate(random.below(bytes.len()));
    bytes.extend(&other[random.below(other.len())..]);
}

/// Changes a text of keys and values in a few places. `other` is another of its kind.
pub fn text(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        match random.below(20) {
            0..=6 => replace(bytes, random, is_number, |random, _| random.pick(&NUMBERS).as_bytes().to_vec()),
            7 | 8 => replace(bytes, random, is_word, |random, _| random.pick(&WORDS).as_bytes().to_vec()),
            9 | 10 => replace(bytes, random, is_word, |random, text| {
                let words = runs(text, is_word);
                let word = if words.is_empty() { 0..0 } else { random.pick(&words).clone() };
                text[word].to_vec()
            }),
            11 => replace(bytes, random, is_word, |random, _| vec![b'a'; *random.pick(&[1000, 70_000, 1_000_000])]),
            12 => replace(bytes, random, is_word, |random, _| nested(random)),
            13 | 14 => lines(bytes, random),
            15 | 16 => {
                let at = random.below(bytes.len() + 1);
                bytes.splice(at..at, random.pick(&ODD).iter().copied());
            }
            17 => bytes.truncate(random.below(bytes.len() + 1)),
            18 if !bytes.is_empty() => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            _ => splice(bytes, other, random),
        }
    }
}

/// Brackets in brackets.
fn nested(random: &mut Random) -> Vec<u8> {
    let depth = *random.pick(&[100, 1000, 100_000]);
    let (open, close) = *random.pick(&[("[", "]"), ("{\"a\":", "}"), ("{a: ", "}"), ("(", ")"), ("[", "")]);
    [open.repeat(depth), "1".into(), close.repeat(depth)].concat().into_bytes()
}

/// Leaves a line out, or writes one again: a key twice, a row twice, a value without its key.
fn lines(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(3) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at]),
        _ => lines.swap(at, other),
    }
    *bytes = lines.concat();
}

fn is_number(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'.'
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./-".contains(&byte) || !byte.is_ascii()
}

/// Where bytes of a kind stand in a row.
fn runs(bytes: &[u8], is: fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for at in (0..bytes.len()).filter(|at| is(bytes[*at])) {
        match found.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += 1,
            None => found.push(at..at + 1),
        }
    }
    found
}

/// Puts something else in the place of one of the runs.
fn replace(
    bytes: &mut Vec<u8>,
    random: &mut Random,
    is: fn(u8) -> bool,
    new: impl FnOnce(&mut Random, &[u8]) -> Vec<u8>,
) {
    let runs = runs(bytes, is);
    if !runs.is_empty() {
        let run = random.pick(&runs).clone();
        let new = new(random, bytes);
        bytes.splice(run, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutated(mutate: fn(&mut Vec<u8>, &[u8], &mut Random), number: u64) -> Vec<u8> {
        let mut bytes = b"run: {name: a, steps: 12}\nlist: [1.5, x]\n".to_vec();
        mutate(&mut bytes, b"other: 3\n", &mut Random::new(7, "yaml", number));
        bytes
    }

    #[test]
    fn a_seed_and_a_number_fix_every_byte() {
        for mutate in [binary, text] {
            let all: Vec<Vec<u8>> = (0..200).map(|number| mutated(mutate, number)).collect();
            assert!((0..200).all(|number| mutated(mutate, number) == all[number as usize]));
            let different: std::collections::BTreeSet<_> = all.iter().collect();
            assert!(different.len() > 150, "{} of 200", different.len());
        }
    }

    #[test]
    fn nothing_is_too_short_to_be_changed() {
        for mutate in [binary, text] {
            for length in 0..3 {
                for number in 0..500 {
                    mutate(&mut vec![b'1'; length], b"", &mut Random::new(1, "", number));
                }
            }
        }
    }

    #[test]
    fn numbers_and_words_are_found() {
        assert_eq!(runs(b"a: 12, 1.5e3", is_number), [3..5, 7..10, 11..12]);
        assert_eq!(runs(b"a_b: c/d", is_word), [0..3, 5..8]);
    }
}
