//! Characters that are sent several times in a row. A model that reads whole windows miscounts them (`TS500` for `TS5000`); the marks
//! of a clear signal do not.

use super::listen::Heard;
use super::morse;

/// Number of runs to either side that text and marks must agree on.
const CONTEXT: usize = 2;

/// Characters of a text or marks that are the same, one after the other.
struct Run {
    /// Code of the character; empty if it has none.
    code: String,
    count: usize,
    /// Place of the first in the text, in characters; in marks, that of the first character.
    start: usize,
    /// Whether a word ends within it, or a character of it takes several in the text: a prosign.
    is_divided: bool,
}

/// Returns how many more of each character of a text were sent than it has, by the marks. Where these have fewer, some may have been lost
/// in a fade, and the text counts.
pub(super) fn missing(text: &str, heard: &[Heard]) -> Vec<usize> {
    let mut missing = vec![0; text.chars().count()];
    let (written, sent) = (runs(written(text)), runs(sent(heard)));
    let pairs = pairs(&written, &sent);
    // Both ends count as agreed on, if they are ends of both.
    let agree = |at: usize, beside: usize, step: isize| {
        (1..=CONTEXT as isize).all(|distance| {
            let [a, b] = [(at, written.len()), (beside, sent.len())]
                .map(|(from, len)| from.checked_add_signed(step * distance).filter(|at| *at < len));
            match (a, b) {
                (Some(a), Some(b)) => pairs[a] == Some(b),
                (a, b) => a.is_none() && b.is_none(),
            }
        })
    };
    for (at, beside) in pairs.iter().enumerate().filter_map(|(at, beside)| Some((at, (*beside)?))) {
        let (own, other) = (&written[at], &sent[beside]);
        let is_plain = !own.is_divided && !other.is_divided && !own.code.is_empty();
        if other.count > own.count && is_plain && agree(at, beside, 1) && agree(at, beside, -1) {
            missing[own.start] = other.count - own.count;
        }
    }
    missing
}

/// A character of a text or of marks, or a prosign.
struct Character {
    /// Empty if it has none.
    code: String,
    /// Place of its first character in the text; number among those of marks.
    start: usize,
    is_prosign: bool,
    ends_word: bool,
}

fn written(text: &str) -> Vec<Character> {
    let mut characters: Vec<Character> = Vec::new();
    let mut start = 0;
    for word in text.split(' ') {
        for piece in morse::pieces(word) {
            let code = morse::symbol(piece).map_or_else(String::new, |symbol| symbol.code.to_owned());
            let length = piece.chars().count();
            characters.push(Character { code, start, is_prosign: length > 1, ends_word: false });
            start += length;
        }
        start += 1;
        if let Some(last) = characters.last_mut() {
            last.ends_word = true;
        }
    }
    characters
}

fn sent(heard: &[Heard]) -> Vec<Character> {
    let numbered = heard.iter().enumerate();
    let of = |(start, Heard { code, ends_word }): (usize, &Heard)| Character {
        code: code.clone(),
        start,
        is_prosign: false,
        ends_word: *ends_word,
    };
    numbered.map(of).collect()
}

fn runs(characters: Vec<Character>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut ended = false;
    for Character { code, start, is_prosign, ends_word } in characters {
        match runs.last_mut().filter(|run| run.code == code) {
            Some(run) => {
                run.count += 1;
                run.is_divided |= ended;
            }
            None => runs.push(Run { code, count: 1, start, is_divided: is_prosign }),
        }
        ended = ends_word;
    }
    runs
}

/// Returns for each run the one that it is the same as, if there is one, where as few as possible differ (Wagner and Fischer, 1974).
fn pairs(written: &[Run], sent: &[Run]) -> Vec<Option<usize>> {
    let width = sent.len() + 1;
    let mut costs: Vec<usize> = (0..width).collect();
    for (at, own) in written.iter().enumerate() {
        costs.push(at + 1);
        for (beside, other) in sent.iter().enumerate() {
            let before = &costs[at * width..];
            let changed = before[beside] + usize::from(own.code != other.code);
            costs.push(changed.min(before[beside + 1] + 1).min(before[width + beside] + 1));
        }
    }
    let mut pairs = vec![None; written.len()];
    let (mut a, mut b) = (written.len(), sent.len());
    while a > 0 && b > 0 {
        let cost = costs[a * width + b];
        let is_same = written[a - 1].code == sent[b - 1].code;
        if cost == costs[(a - 1) * width + b - 1] + usize::from(!is_same) {
            (a, b) = (a - 1, b - 1);
            pairs[a] = is_same.then_some(b);
        } else if cost == costs[(a - 1) * width + b] + 1 {
            a -= 1;
        } else {
            b -= 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is heard of a text, if every mark is.
    fn heard(text: &str) -> Vec<Heard> {
        written(text).into_iter().map(|Character { code, ends_word, .. }| Heard { code, ends_word }).collect()
    }

    fn corrected(text: &str, sent: &str) -> String {
        let missing = missing(text, &heard(sent));
        text.chars().zip(missing).flat_map(|(character, more)| std::iter::repeat_n(character, more + 1)).collect()
    }

    #[test]
    fn what_is_missing_in_a_row_is_found() {
        for (text, sent) in [
            ("IC730 TS500 FT100", "IC7300 TS5000 FT1000"),
            ("DE W1AW W1AW 59 K", "DE W1AW W1AW 599 K"),
            ("DL0OO", "DL0OOO"),
            ("O TEST", "OOO TEST"),
            // Another error does not hide it, if it is two characters away.
            ("RIG X IC730 ES ANT", "RIG U IC7300 ES ANT"),
            ("3Z0E <SK>", "3Z0EEE <SK>"),
        ] {
            assert_eq!(corrected(text, sent), sent.replace("U IC", "X IC"), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_changed() {
        for (text, sent) in [
            // Fewer are heard, in a fade; a word ends between them; beside it is another error; another character is missing.
            ("IC7300 ES", "IC730 ES"),
            ("5NN N CPY", "5NNN N CPY"),
            ("BE EAST", "BE E EAST"),
            ("IC720 ES", "IC7300 ES"),
            ("IC30 ES", "IC7300 ES"),
            ("", "EEE"),
            ("EEE", ""),
            ("A? <X ü", "AA? X U"),
        ] {
            assert_eq!(corrected(text, sent), text, "{sent}");
        }
    }

    proptest! {
        #[test]
        fn what_was_sent_as_often_as_it_is_written_stays(text in "[A-Z0-9?/=]{0,12}( [A-Z0-9]{1,6}){0,6}( <SK>)?") {
            prop_assert_eq!(corrected(&text, &text), text);
        }

        #[test]
        fn any_text_has_a_count_for_each_character(text in "\\PC{0,20}", sent in "[A-Z ]{0,20}") {
            prop_assert_eq!(missing(&text, &heard(&sent)).len(), text.chars().count());
        }
    }
}
