//! Live transcription with a reader.

use crate::transcriber::Transcriber;
use crate::transcript::{Segment, text};

/// Live transcription of what a reader gives the model: as soon as transcriptions agree.
pub struct LiveReader<'a> {
    transcriber: &'a Transcriber,
    /// Audio from the start of the current piece.
    audio: Vec<f32>,
    /// Maximum length of the current piece, in samples, as far as it is known.
    longest: usize,
    /// Number of samples since the audio was last transcribed.
    unread: usize,
    /// Number of samples that are also at the end of the piece before.
    shared: usize,
    /// Returned characters of the audio that is kept.
    given: Vec<char>,
    /// Last two transcriptions of the audio, with confidences.
    last: [Vec<(char, f32)>; 2],
    begins_word: bool,
    least_confidence: f32,
}

/// Number of samples between two transcriptions: one second.
const STEP: usize = 16_000;

impl<'a> LiveReader<'a> {
    pub fn new(transcriber: &'a Transcriber, least_confidence: f32) -> Self {
        Self {
            transcriber,
            audio: Vec::new(),
            longest: transcriber.window(),
            unread: 0,
            shared: 0,
            given: Vec::new(),
            last: Default::default(),
            begins_word: true,
            least_confidence,
        }
    }

    pub fn push(&mut self, mut samples: &[f32]) -> String {
        let mut text = String::new();
        while !samples.is_empty() {
            let room = (STEP - self.unread).min(self.longest + 1 - self.audio.len());
            let (next, rest) = samples.split_at(room.min(samples.len()));
            self.audio.extend_from_slice(next);
            self.unread += next.len();
            samples = rest;
            while self.audio.len() > self.longest {
                // It may be known only once there is more audio.
                let longest = self.transcriber.longest_piece(&self.audio);
                if self.audio.len() <= longest {
                    self.longest = longest;
                } else {
                    text.push_str(&self.cut());
                    self.longest = self.transcriber.window();
                }
            }
            if self.unread == STEP {
                self.unread = 0;
                text.push_str(&self.read_ahead());
            }
        }
        text
    }

    /// Returns the end of the last transcription, on which the ones before do not agree yet.
    pub fn partial(&self) -> String {
        let (known, _) = matching_prefix(&self.given, &characters(&self.last[0]));
        text(&self.last[0][known..], self.least_confidence)
    }

    pub fn finish(mut self) -> String {
        let mut text = String::new();
        // What was waited for may have shown that several pieces are left.
        while self.transcriber.pieces(&self.audio).len() > 1 {
            text.push_str(&self.cut());
        }
        let length = self.audio.len();
        if length > 0 {
            text.push_str(&self.settle(length).0);
        }
        text
    }

    /// Returns the rest of a piece's text, once there is more than a window of audio, and starts the next piece.
    fn cut(&mut self) -> String {
        let mut pieces = self.transcriber.pieces(&self.audio).into_iter();
        let end = pieces.next().map_or(0, |piece| piece.samples.end);
        // A reader may leave out the rest.
        let (next, begins_word) =
            pieces.next().map_or((self.audio.len(), true), |piece| (piece.samples.start, piece.begins_word));
        let mut text = String::new();
        // A piece inside the gap at the end of the one before has no text.
        if end > self.shared {
            let ahead;
            (text, ahead) = self.settle(end);
            self.given.drain(..self.given.len() - ahead);
            self.shared = end;
            self.last = Default::default();
        }
        self.audio.drain(..next);
        self.shared = self.shared.saturating_sub(next);
        self.begins_word = begins_word;
        text
    }

    /// Transcribes the first `length` samples for the last time. Returns the text of them that has not been returned
    /// before, and the number of returned characters that come after them.
    fn settle(&mut self, length: usize) -> (String, usize) {
        let read = self.transcriber.segment(&self.audio, 0..length, self.begins_word);
        let characters = characters(&read.characters);
        let (known, changes) = matching_prefix(&self.given, &characters);
        let (covered, changes_ahead) = matching_prefix(&characters, &self.given);
        if changes_ahead < changes {
            let ahead = self.given[covered..].iter().position(|character| *character != ' ');
            return (String::new(), ahead.map_or(0, |spaces| self.given.len() - covered - spaces));
        }
        (self.give(Segment { characters: read.characters[known..].to_vec(), ..read }), 0)
    }

    /// Returns new text on which three transcriptions of the complete characters so far agree.
    fn read_ahead(&mut self) -> String {
        let reader = self.transcriber.reader();
        let Some(end) = reader.and_then(|reader| reader.complete(&self.audio, self.transcriber.window())) else {
            return String::new();
        };
        let read = self.transcriber.segment(&self.audio, 0..end, self.begins_word);
        let characters = characters(&read.characters);
        let same = |before: &Vec<(char, f32)>| {
            characters.iter().zip(before).take_while(|(now, (before, _))| *now == before).count()
        };
        let same = self.last.iter().map(same).min().unwrap_or_default();
        let agreed = characters[..same].iter().rposition(|character| *character != ' ').map_or(0, |last| last + 1);
        let (known, _) = matching_prefix(&self.given, &characters[..agreed]);
        self.last.swap(0, 1);
        self.last[0].clone_from(&read.characters);
        self.give(Segment { characters: read.characters[known..agreed].to_vec(), ..read })
    }

    /// Returns the text of new characters, and records them as returned.
    fn give(&mut self, new: Segment) -> String {
        if new.characters.is_empty() {
            return String::new();
        }
        let begins_word = self.given.is_empty() && self.begins_word;
        self.given.extend(characters(&new.characters));
        let text = new.text(self.least_confidence);
        if begins_word { format!(" {text}") } else { text }
    }
}

fn characters(read: &[(char, f32)]) -> Vec<char> {
    read.iter().map(|(character, _)| *character).collect()
}

/// Returns the length of the prefix of `read` that corresponds to the returned characters `given`, and its edit
/// distance to them. The two may differ, so it is the prefix with the smallest edit distance, and the longest of those.
fn matching_prefix(given: &[char], read: &[char]) -> (usize, usize) {
    let mut changes: Vec<usize> = (0..=read.len()).collect();
    for (row, character) in given.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut changes[0], row + 1);
        for (column, other) in read.iter().enumerate() {
            let changed = diagonal + usize::from(character != other);
            diagonal = changes[column + 1];
            changes[column + 1] = changed.min(diagonal + 1).min(changes[column] + 1);
        }
    }
    let length = (0..changes.len()).rev().min_by_key(|length| changes[*length]).unwrap_or_default();
    (length, changes[length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveTranscriber;
    use crate::tests::{bundled, sent};
    use rayon::prelude::*;
    use std::path::Path;
    use undertone_data::clips::Clips;
    use undertone_data::records::RecordsConfig;

    fn transcriber() -> Transcriber {
        bundled(|_| {})
    }

    fn live(transcriber: &Transcriber, audio: &[f32], block: usize) -> String {
        let mut live = LiveTranscriber::new(transcriber, 0.0);
        let mut text: String = audio.chunks(block).map(|block| live.push(block)).collect();
        text.push_str(&live.finish());
        text.trim_start().to_owned()
    }

    const MESSAGES: [&str; 3] = [
        "CQ CQ CQ DE W1AW W1AW W1AW K CQ CQ DE W1AW W1AW PSE K",
        "G4FON DE DL1ABC GM UR RST 599 599 NAME IS HANS HANS QTH BERLIN BERLIN HW CPY BK",
        "NOW IS THE TIME FOR ALL GOOD MEN TO COME TO THE AID OF THE PARTY",
    ];

    #[test]
    fn what_comes_live_is_what_a_file_of_it_says() {
        let transcriber = transcriber();
        let mut audio: Vec<(String, Vec<f32>)> = Vec::new();
        for (seed, (text, wpm)) in (1..).zip(MESSAGES.into_iter().zip([13.0, 34.0, 21.0])) {
            audio.push((format!("{text} at {wpm}"), sent(text, wpm, 20.0, seed)));
        }
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        for list in ["ebook2cw", "off-air"] {
            let path = fixtures.join(list).join("manifest.csv");
            let clips = Clips::open(&RecordsConfig { path: path.into(), ..Default::default() }).expect("a list");
            for index in 0..clips.len() {
                audio.push((clips.clip(index).name.clone(), clips.load(index).expect("audio")));
            }
        }
        let differ: Vec<String> = audio
            .into_par_iter()
            .filter_map(|(name, audio)| {
                let (live, file) = (live(&transcriber, &audio, 4_000), transcriber.audio(&audio));
                (live != file).then(|| format!("{name}\n live {live}\n file {file}"))
            })
            .collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
    }

    #[test]
    fn how_much_comes_at_a_time_changes_nothing() {
        let transcriber = transcriber();
        let audio = sent(MESSAGES[0], 20.0, 6.0, 9);
        let expected = live(&transcriber, &audio, 4_000);
        for block in [313, 16_000, 70_001, audio.len()] {
            assert_eq!(live(&transcriber, &audio, block), expected, "{block}");
        }
    }

    #[test]
    fn doubtful_characters_are_hidden_before_they_settle_as_they_are_after() {
        let (transcriber, audio) = (transcriber(), sent(MESSAGES[0], 20.0, 6.0, 9));
        // None is surer than certain.
        let mut live = LiveTranscriber::new(&transcriber, 1.1);
        let (mut text, mut partial) = (String::new(), String::new());
        for block in audio.chunks(4_000) {
            text.push_str(&live.push(block));
            partial.push_str(&live.partial());
        }
        text.push_str(&live.finish());
        for text in [text, partial] {
            assert!(text.contains('_') && text.chars().all(|c| c == '_' || c == ' '), "{text}");
        }
    }

    fn prefix(given: &str, read: &str) -> usize {
        matching_prefix(&given.chars().collect::<Vec<_>>(), &read.chars().collect::<Vec<_>>()).0
    }

    #[test]
    fn what_was_given_out_is_found_again_though_it_is_read_otherwise() {
        assert_eq!(prefix("", "CQ"), 0);
        assert_eq!(prefix("CQ", "CQ DE"), 2);
        assert_eq!(prefix("CQ DE", "CQ DE"), 5);
        assert_eq!(prefix("CT", "CQ DE W"), 2, "one was another");
        assert_eq!(prefix("CEQ", "CQ DE W"), 2, "one was none");
        assert_eq!(prefix("CQ CQ DE", "CQ DE"), 5, "what was given stays");
    }
}
