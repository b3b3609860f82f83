//! Audio of any length to text with a Whisper.
//!
//! A [`Transcriber`] has a loaded model and [`TranscribeOptions`]. It finds [speech](vad), decodes its windows in batches (or one
//! after the other by timestamps, as openai-whisper does), tries again at higher temperatures where a text repeats itself or
//! is improbable, detects the language, and aligns words with the audio. [`write`](mod@write) makes subtitles and other files of a
//! [`Transcript`]. [`LiveTranscriber`] reads audio while it arrives.
//!
//! A model that reads something other than speech, such as Morse code, is given its audio by its
//! [reader](undertone_data::reader).
//!
//! This crate trains nothing, and does not choose or load models: networks and the decoding loop are in `undertone-model`.
//!
//! ```no_run
//! use std::path::Path;
//! use undertone_model::whisper::PretrainedWhisper;
//! use undertone_transcribe::write::{Format, Layout};
//! use undertone_transcribe::{TranscribeOptions, Transcriber};
//!
//! let device = undertone_ops::DeviceSpec::Cpu.resolve()?;
//! let whisper = PretrainedWhisper::load(Path::new("whisper-tiny.en"), &device)?;
//! let options = TranscribeOptions { words: true, ..TranscribeOptions::default() };
//! let transcriber = Transcriber::new(whisper, &device, options)?;
//! let transcript = transcriber.transcript(&undertone_data::audio::load(Path::new("talk.flac"))?);
//! println!("{}", Format::Srt.write(&transcript, &Layout::default()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compression;
mod decode;
mod decoded;
mod doubt;
mod error;
mod live;
mod options;
mod pieces;
mod prompt;
mod prompt_parts;
mod reading;
mod recordings;
mod repeats;
mod sequential;
#[cfg(test)]
mod tests;
mod transcriber;
mod transcript;
pub mod vad;
mod window;
mod words;
pub mod write;

pub use compression::{REPETITIVE, compression_ratio};
pub use error::TranscribeError;
pub use live::LiveTranscriber;
pub use options::{Language, Segmentation, TranscribeOptions, Window};
pub use reading::{ReaderError, Reading};
pub use recordings::Update;
pub use transcriber::Transcriber;
pub use transcript::{DetectedLanguage, Segment, Transcript, Word};
