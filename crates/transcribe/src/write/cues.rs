//! Division of a transcript into subtitles.

use crate::transcript::{Segment, Transcript, UNREAD, Word};

/// Layout of subtitles and texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Maximum number of characters of a line.
    pub line: usize,
    /// Maximum number of lines of a subtitle.
    pub lines: usize,
    /// Pause between words that ends a subtitle, in seconds.
    pub pause_s: f64,
    /// Probability below which a character is written as `_`.
    pub least_confidence: f32,
    /// Whether JSON has the confidence of every character.
    pub characters: bool,
}

impl Default for Layout {
    /// Two lines of 42 characters, as broadcasters use.
    fn default() -> Self {
        Self { line: 42, lines: 2, pause_s: 1.5, least_confidence: 0.0, characters: false }
    }
}

/// A subtitle.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cue {
    /// In seconds.
    pub start: f64,
    pub end: f64,
    pub lines: Vec<String>,
}

/// Least length of a subtitle, in seconds.
const SHORTEST: f64 = 0.1;
/// Marks that end a sentence, after which a subtitle that is half full ends.
const SENTENCE_ENDS: [char; 8] = ['.', '!', '?', '。', '！', '？', '…', '؟'];

/// Returns the subtitles of a transcript. Where words have times, a subtitle has as many words as fit; otherwise a segment is
/// divided in proportion to its characters.
pub(super) fn cues(transcript: &Transcript, layout: &Layout) -> Vec<Cue> {
    let mut cues: Vec<Cue> = transcript.segments.iter().flat_map(|segment| of_segment(segment, layout)).collect();
    for index in 0..cues.len() {
        let next = cues.get(index + 1).map_or(f64::INFINITY, |next| next.start);
        let cue = &mut cues[index];
        cue.end = cue.end.max(cue.start + SHORTEST).min(next.max(cue.start));
    }
    cues
}

fn of_segment(segment: &Segment, layout: &Layout) -> Vec<Cue> {
    let timed = if segment.words.is_empty() { in_proportion(segment, layout) } else { legible(segment, layout) };
    let mut cues = Vec::new();
    let mut begun: Vec<Word> = Vec::new();
    for word in timed {
        let pause = begun.last().is_some_and(|last| word.start - last.end > layout.pause_s);
        let text: String = begun.iter().map(|word| word.text.as_str()).collect();
        let sentence =
            text.trim_end().ends_with(SENTENCE_ENDS) && text.chars().count() * 2 > layout.line * layout.lines;
        let fits = wrapped(&format!("{text}{}", word.text), layout.line).len() <= layout.lines.max(1);
        if !begun.is_empty() && (pause || sentence || !fits) {
            cues.extend(cue(&std::mem::take(&mut begun), layout));
        }
        begun.push(word);
    }
    cues.extend(cue(&begun, layout));
    cues
}

/// Words with their times, and with `_` for each doubtful character. Words have the characters of the segment, with other spaces between
/// them.
fn legible(segment: &Segment, layout: &Layout) -> Vec<Word> {
    let mut characters = segment.characters.iter().filter(|(character, _)| !character.is_whitespace());
    let mut written = |own: char| match own.is_whitespace() {
        true => own,
        false => match characters.next() {
            Some((same, confidence)) if *same == own && *confidence < layout.least_confidence => UNREAD,
            _ => own,
        },
    };
    let of_word = |word: &Word| Word { text: word.text.chars().map(&mut written).collect(), ..word.clone() };
    segment.words.iter().map(of_word).collect()
}

/// Words with times that are guessed from their place in the segment's text.
fn in_proportion(segment: &Segment, layout: &Layout) -> Vec<Word> {
    let text = segment.text(layout.least_confidence);
    let (all, length) = (text.chars().count().max(1) as f64, segment.end() - segment.start());
    let at = |characters: usize| segment.start() + length * characters as f64 / all;
    let (mut words, mut before) = (Vec::new(), 0);
    for word in text.split_inclusive(' ') {
        let end = before + word.chars().count();
        words.push(Word { text: word.to_owned(), start: at(before), end: at(end), probability: 1.0 });
        before = end;
    }
    words
}

fn cue(words: &[Word], layout: &Layout) -> Option<Cue> {
    let (first, last) = (words.first()?, words.last()?);
    let text: String = words.iter().map(|word| word.text.as_str()).collect();
    let lines = wrapped(text.trim(), layout.line);
    (!lines.is_empty()).then_some(Cue { start: first.start, end: last.end, lines })
}

/// Breaks a text into lines of at most `longest` characters, at spaces where there are any.
fn wrapped(text: &str, longest: usize) -> Vec<String> {
    let longest = longest.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= longest => {
                line.push(' ');
                line.push_str(word);
            }
            _ => {
                // A word that is longer than a line, or a text without spaces.
                let characters: Vec<char> = word.chars().collect();
                lines.extend(characters.chunks(longest).map(|part| part.iter().collect::<String>()));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_hold_all_words_and_are_no_longer_than_allowed(text in "([a-zé道]{1,12} ){0,20}", longest in 1_usize..30) {
            let lines = wrapped(&text, longest);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= longest && !line.is_empty()));
            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(squeezed(&lines.join(" ")), squeezed(&text));
        }

        #[test]
        fn subtitles_follow_each_other(words in prop::collection::vec((0.0_f64..2.0, 0.0_f64..1.0, "[a-z]{1,9}[.,]?"), 1..40), line in 5_usize..50) {
            let mut at = 0.0;
            let words: Vec<Word> = words.into_iter().map(|(pause, length, text)| {
                let start = at + pause;
                at = start + length;
                Word { text: format!(" {text}"), start, end: at, probability: 1.0 }
            }).collect();
            let said: String = words.iter().map(|word| word.text.trim()).collect();
            let segment = Segment { words, ..Segment::default() };
            let transcript = Transcript { segments: vec![segment], ..Transcript::default() };
            let cues = cues(&transcript, &Layout { line, ..Layout::default() });
            prop_assert!(cues.iter().all(|cue| cue.lines.len() <= 2 && cue.start <= cue.end));
            prop_assert!(cues.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(cues.iter().flat_map(|cue| &cue.lines).map(|line| line.replace(' ', "")).collect::<String>(), said);
        }
    }
}
