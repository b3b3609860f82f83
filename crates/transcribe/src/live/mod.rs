//! Live transcription of audio.

mod reader;
mod speech;

use crate::transcriber::Transcriber;
use reader::LiveReader;
use speech::LiveSpeech;

/// Live transcription of audio of any length. It keeps no more audio than fits the model's window, and what it returns does
/// not depend on the size of the blocks that it is given.
///
/// For a model with a [reader](undertone_data::reader), audio is cut where [`Transcriber::audio`] cuts it, and transcribed
/// again each second, up to the last complete character. Text on which three transcriptions agree is returned, some seconds
/// after it was sent. Speech is found by voice activity, and returned when it pauses for about a second. Returned text is
/// final, even if more context would change it.
pub struct LiveTranscriber<'a>(Live<'a>);

enum Live<'a> {
    Reader(LiveReader<'a>),
    Speech(Box<LiveSpeech<'a>>),
}

impl<'a> LiveTranscriber<'a> {
    /// Returns a live transcriber without audio. Characters with a confidence below `least_confidence` are returned as
    /// `_`.
    pub fn new(transcriber: &'a Transcriber, least_confidence: f32) -> Self {
        Self(match transcriber.reader() {
            Some(_) => Live::Reader(LiveReader::new(transcriber, least_confidence)),
            None => Live::Speech(Box::new(LiveSpeech::new(transcriber, least_confidence))),
        })
    }

    /// Adds the next 16 kHz samples, and returns new text.
    pub fn push(&mut self, samples: &[f32]) -> String {
        match &mut self.0 {
            Live::Reader(live) => live.push(samples),
            Live::Speech(live) => live.push(samples),
        }
    }

    /// Returns what may follow the text that was returned, as it sounds now; it may change. For speech, this transcribes
    /// what has been said since the last pause.
    pub fn partial(&self) -> String {
        match &self.0 {
            Live::Reader(live) => live.partial(),
            Live::Speech(live) => live.partial(),
        }
    }

    /// Returns the text of the remaining audio.
    pub fn finish(self) -> String {
        match self.0 {
            Live::Reader(live) => live.finish(),
            Live::Speech(live) => live.finish(),
        }
    }
}
