//! Audio to text while it comes.

use crate::{Passage, Transcriber};
use undertone_cw::listen::{Gap, last_gap};

/// Reads audio of any length while it comes, and keeps no more of it than fits the model's window and a second.
///
/// Morse is read anew each second, as far as its characters are whole, so that text comes within three seconds of being sent;
/// what has been given out stays, also where more context would have it read otherwise. Of other audio a text comes with each
/// pause that the model's window is cut at.
pub struct LiveTranscriber<'a> {
    transcriber: &'a Transcriber,
    audio: Vec<f32>,
    /// Samples that came since Morse was last read.
    unread: usize,
    /// What of the audio that is kept has been given out.
    given: Vec<char>,
    begins_word: bool,
    /// The gap up to which the audio has been read.
    read_to: Option<Gap>,
    least_confidence: f32,
}

/// Samples between two readings: a second.
const STEP: usize = 16_000;

impl<'a> LiveTranscriber<'a> {
    /// Before any audio has come. Characters that the model takes to be right with a probability below `least_confidence` are
    /// given as `_`.
    pub fn new(transcriber: &'a Transcriber, least_confidence: f32) -> Self {
        Self {
            transcriber,
            audio: Vec::new(),
            unread: 0,
            given: Vec::new(),
            begins_word: true,
            read_to: None,
            least_confidence,
        }
    }

    /// Takes the next 16 kHz samples, and gives the text that is new.
    pub fn push(&mut self, samples: &[f32]) -> String {
        self.audio.extend_from_slice(samples);
        self.unread += samples.len();
        let window = self.transcriber.window();
        let mut text = String::new();
        while self.audio.len() > window {
            // What has been read is not read again in another piece.
            let (next, begins_word) = match self.read_to.take() {
                Some(gap) => (gap.samples.start, gap.between_words),
                None => {
                    let pieces = self.transcriber.pieces(&self.audio[..=window]);
                    text.push_str(&self.read(pieces[0].samples.end));
                    (pieces[1].samples.start, pieces[1].begins_word)
                }
            };
            self.audio.drain(..next);
            self.begins_word = begins_word;
            self.given.clear();
        }
        if self.unread >= STEP && self.transcriber.reads_morse() {
            self.unread = 0;
            if let Some(gap) = last_gap(&self.audio) {
                text.push_str(&self.read(gap.samples.end));
                self.read_to = Some(gap);
            }
        }
        text
    }

    /// The text of what is left.
    pub fn finish(mut self) -> String {
        let length = self.audio.len();
        if length == 0 { String::new() } else { self.read(length) }
    }

    /// What there is to read in the first `length` samples beyond what has been given out.
    fn read(&mut self, length: usize) -> String {
        let read = self.transcriber.passage(&self.audio, 0..length, self.begins_word);
        let known = matching_prefix(&self.given, &read.characters);
        let new = read.characters[known..].to_vec();
        if new.is_empty() {
            return String::new();
        }
        let begins_word = self.given.is_empty() && self.begins_word;
        self.given.extend(new.iter().map(|(character, _)| *character));
        let text = Passage { characters: new, ..read }.text(self.least_confidence);
        if begins_word { format!(" {text}") } else { text }
    }
}

/// How many of the characters that are `read` now are those that have been `given` out, some of which may have been read
/// otherwise: the beginning that takes the fewest changes, and of such the longest.
fn matching_prefix(given: &[char], read: &[(char, f32)]) -> usize {
    let mut changes: Vec<usize> = (0..=read.len()).collect();
    for (row, character) in given.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut changes[0], row + 1);
        for (column, (other, _)) in read.iter().enumerate() {
            let changed = diagonal + usize::from(character != other);
            diagonal = changes[column + 1];
            changes[column + 1] = changed.min(diagonal + 1).min(changes[column] + 1);
        }
    }
    (0..changes.len()).rev().min_by_key(|length| changes[*length]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(given: &str, read: &str) -> usize {
        let read: Vec<(char, f32)> = read.chars().map(|character| (character, 1.0)).collect();
        matching_prefix(&given.chars().collect::<Vec<_>>(), &read)
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
