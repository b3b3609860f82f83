//! Files of a transcript: text, subtitles, tables and JSON.

mod cues;
mod json;

pub use cues::Layout;
pub use json::rounded;

use crate::transcript::Transcript;
use cues::{Cue, cues};
use serde::Serialize;
use std::fmt::Write;

/// Format of a transcript's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Plain text: a line for each recording.
    Text,
    /// SubRip.
    Srt,
    /// WebVTT.
    Vtt,
    /// A table with tabs: start and end in milliseconds, and text.
    Tsv,
    /// An object with the keys of openai-whisper.
    Json,
    /// The same object on one line, with the key `audio`.
    Jsonl,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 6] = [Self::Text, Self::Srt, Self::Vtt, Self::Tsv, Self::Json, Self::Jsonl];

    /// Name, which is the extension of files as well.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
            Self::Tsv => "tsv",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
        }
    }

    /// Whether it shows when things are said, for which words need times unless the segments are short.
    pub fn is_subtitles(self) -> bool {
        matches!(self, Self::Srt | Self::Vtt)
    }

    /// Whether it has the times of words.
    pub fn has_words(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl) || self.is_subtitles()
    }

    /// Returns the content of a transcript's file, which ends with a line break.
    pub fn write(self, transcript: &Transcript, layout: &Layout) -> String {
        match self {
            Self::Text => transcript.text(layout.least_confidence) + "\n",
            Self::Srt => srt(&cues(transcript, layout)),
            Self::Vtt => vtt(&cues(transcript, layout)),
            Self::Tsv => tsv(transcript, layout),
            Self::Json => pretty(&json::object(transcript, layout, None)),
            Self::Jsonl => line(&json::object(transcript, layout, None)),
        }
    }

    /// As [`write`](Self::write), with the name of the recording in [`Jsonl`](Self::Jsonl).
    pub fn write_named(self, name: &str, transcript: &Transcript, layout: &Layout) -> String {
        match self {
            Self::Jsonl => line(&json::object(transcript, layout, Some(name))),
            _ => self.write(transcript, layout),
        }
    }
}

fn line(object: &impl Serialize) -> String {
    // Strings and finite numbers are valid JSON.
    serde_json::to_string(object).unwrap_or_default() + "\n"
}

fn pretty(object: &impl Serialize) -> String {
    serde_json::to_string_pretty(object).unwrap_or_default() + "\n"
}

fn srt(cues: &[Cue]) -> String {
    cues.iter().enumerate().fold(String::new(), |mut file, (index, cue)| {
        let [start, end] = [cue.start, cue.end].map(|seconds| clock(seconds, ','));
        // A line with an arrow would be read as times.
        let text = cue.lines.join("\n").replace("-->", "->");
        // Writing to a string does not fail.
        let _ = write!(file, "{}\n{start} --> {end}\n{text}\n\n", index + 1);
        file
    })
}

fn vtt(cues: &[Cue]) -> String {
    cues.iter().fold("WEBVTT\n\n".to_owned(), |mut file, cue| {
        let [start, end] = [cue.start, cue.end].map(|seconds| clock(seconds, '.'));
        let text = cue.lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(file, "{start} --> {end}\n{text}\n\n");
        file
    })
}

fn tsv(transcript: &Transcript, layout: &Layout) -> String {
    transcript.segments.iter().fold("start\tend\ttext\n".to_owned(), |mut file, segment| {
        let [start, end] = [segment.start(), segment.end()].map(|seconds| (seconds * 1000.0).round());
        let text = segment.text(layout.least_confidence).replace(['\t', '\n'], " ");
        let _ = writeln!(file, "{start}\t{end}\t{text}");
        file
    })
}

/// Hours, minutes, seconds and milliseconds.
fn clock(seconds: f64, point: char) -> String {
    let ms = (seconds * 1000.0).round() as u64;
    let (hours, minutes, seconds, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}")
}

#[cfg(test)]
mod tests;
