//! Audio that arrives on standard input.

use crate::failure::Failure;
use crate::output;
use crate::signals::on_end;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use undertone::data::audio::{AudioError, LiveAudio};
use undertone::transcribe::{LiveTranscriber, Transcriber};

/// Number of samples per block of live audio: a quarter of a second.
const BLOCK: usize = 4_000;
/// Blocks that are read ahead: half a minute, so that no recorder waits for the model.
const AHEAD: usize = 120;
/// Time after which a signal is looked for while no audio comes.
const PATIENCE: Duration = Duration::from_millis(100);
/// Minimum time between two partial lines. They take at most half of the time, whatever one takes.
const EVERY: Duration = Duration::from_millis(700);

/// Writes the text of audio while it arrives. On a terminal, what has not settled yet is shown after it in grey. The first Ctrl-C ends
/// the recording, and its last text is written; the second one ends the program.
pub fn transcribe(transcriber: &Transcriber, rate: Option<u32>, least_confidence: f32) -> Result<(), Failure> {
    let mut live = LiveTranscriber::new(transcriber, least_confidence);
    let mut shown = Live { on_terminal: std::io::stdout().is_terminal(), ..Live::default() };
    let mut next = Instant::now();
    let (stopped, mut failed) = (Arc::new(AtomicBool::new(false)), None);
    let stop = stopped.clone();
    on_end(move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Failure::Interrupted.status()));
        }
    })?;
    let blocks = blocks(rate);
    while failed.is_none() && !stopped.load(Ordering::Relaxed) {
        let block = match blocks.recv_timeout(PATIENCE) {
            Ok(block) => block,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut samples = Vec::new();
        // What came meanwhile is read together.
        for block in std::iter::once(block).chain(blocks.try_iter()) {
            match block {
                Ok(block) => samples.extend(block),
                Err(error) => failed = Some(error),
            }
        }
        output::text(shown.settled(&live.push(&samples)))?;
        if shown.on_terminal && Instant::now() >= next {
            let started = Instant::now();
            output::text(shown.partial(&live.partial()))?;
            next = Instant::now() + started.elapsed().max(EVERY);
        }
    }
    // What has come since the last block was read. A file would bring more without end.
    let rest = blocks.try_iter().take(AHEAD).map_while(Result::ok).flatten().collect::<Vec<_>>();
    output::text(shown.settled(&live.push(&rest)))?;
    output::text(shown.settled(&live.finish()) + &shown.end())?;
    failed.map_or(Ok(()), |error| Err(Failure::bad_input(error)))
}

/// Reads standard input in the background.
fn blocks(rate: Option<u32>) -> Receiver<Result<Vec<f32>, AudioError>> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        let mut audio = match LiveAudio::new(std::io::stdin().lock(), rate) {
            Ok(audio) => audio,
            Err(error) => return drop(sender.send(Err(error))),
        };
        loop {
            let block = audio.next(BLOCK);
            let is_last = block.as_ref().map_or(true, Vec::is_empty);
            // Nobody listens any more after an error.
            if sender.send(block).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Text on standard output, of which the end of the last row may still change on a terminal.
#[derive(Default)]
struct Live {
    on_terminal: bool,
    begun: bool,
    /// Final text of the last row.
    row: String,
}

/// Characters in a row of a terminal; most have 80.
const WIDTH: usize = 79;
/// Fewest characters of a row that partial text is shown in.
const LEAST: usize = 20;
/// Control sequences: erase the row; grey and back.
const ERASE: &str = "\r\x1b[K";
const GREY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

impl Live {
    /// Returns what to write for text that is final.
    fn settled(&mut self, text: &str) -> String {
        // No space before the first word.
        let text = if self.begun { text } else { text.trim_start() };
        if text.is_empty() {
            return String::new();
        }
        self.begun = true;
        if !self.on_terminal {
            return text.to_owned();
        }
        let mut written = ERASE.to_owned();
        for word in text.split_inclusive(' ') {
            // A word that is longer than a row would be wrapped by the terminal, and its start not be erased.
            let mut word = word;
            while length(word.trim_end()) > WIDTH {
                let end =
                    word.char_indices().nth(WIDTH.saturating_sub(length(&self.row))).map_or(word.len(), |(at, _)| at);
                written += &format!("{}{}\n", self.row, &word[..end]);
                self.row.clear();
                word = &word[end..];
            }
            if length(&self.row) + length(word.trim_end()) > WIDTH {
                written += self.row.trim_end();
                written.push('\n');
                self.row.clear();
            }
            self.row += if self.row.is_empty() { word.trim_start() } else { word };
        }
        written + &self.row
    }

    /// Returns what to write for text that may change, in the place of the one before.
    fn partial(&mut self, text: &str) -> String {
        let mut written = ERASE.to_owned();
        if WIDTH.saturating_sub(length(&self.row)) < LEAST && !text.is_empty() {
            written += &format!("{}\n", self.row);
            self.row.clear();
        }
        let (room, characters) = (WIDTH.saturating_sub(length(&self.row)), length(text));
        let shown = match characters > room {
            true => format!("…{}", text.chars().skip(characters - room + 1).collect::<String>()),
            false => text.to_owned(),
        };
        written + &format!("{}{GREY}{shown}{PLAIN}", self.row)
    }

    /// Returns what to write at the end.
    fn end(&self) -> String {
        if self.on_terminal { format!("{ERASE}{}\n", self.row) } else { "\n".into() }
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a terminal after what was written, without colours.
    fn rows(written: &str) -> Vec<String> {
        let plain = written.replace(GREY, "").replace(PLAIN, "");
        plain.split('\n').map(|row| row.rsplit(ERASE).next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn text_that_settles_replaces_what_was_partial() {
        let mut live = Live { on_terminal: true, ..Live::default() };
        let mut written = live.partial(" and so my");
        written += &live.settled(" And so, my fellow");
        written += &live.partial(" Americans");
        assert_eq!(rows(&written), ["And so, my fellow Americans"]);
        written += &live.settled(" Americans, ask not what your country can do for you, ask what you can do for it.");
        written += &live.end();
        let found = rows(&written);
        assert!(found.iter().all(|row| length(row) <= WIDTH), "{found:?}");
        let said = "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for it.";
        assert_eq!(found.join(" ").trim_end(), said);
        // What a model repeats may have no spaces.
        written += &live.settled(&format!(" {}", "ha".repeat(100)));
        written += &live.partial(" ha");
        let found = rows(&written);
        assert!(found.iter().all(|row| length(row) <= WIDTH), "{found:?}");
        assert_eq!(found.concat().matches("ha").count(), 101 + found.concat().matches("what").count(), "{found:?}");
        let long = "word ".repeat(40);
        assert!(rows(&live.partial(&long)).iter().all(|row| length(row) <= WIDTH));
    }

    #[test]
    fn elsewhere_only_what_is_final_is_written() {
        let mut live = Live::default();
        assert_eq!(live.settled(" CQ") + &live.settled(" DE") + &live.end(), "CQ DE\n");
    }
}
