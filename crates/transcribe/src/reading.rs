//! Reader of a model: none for speech, else a registered one that prepares audio for it.

use std::sync::Arc;
use undertone_data::cut;
use undertone_data::features::HOP;
use undertone_data::reader::{self, Piece, Reader, Unknown};
use undertone_model::whisper::PretrainedWhisper;

/// How a model is given its audio.
#[derive(Clone)]
pub struct Reading {
    /// The reader; `None` for speech.
    pub reader: Option<Arc<dyn Reader>>,
    /// Window of the model, in samples.
    pub window: usize,
}

/// Reason why a model cannot read what its folder says that it reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// There is no such reader.
    #[error(
        "`reader` in the model's generation_config.json: {unknown}; {register}, or remove the key",
        unknown = .0,
        register = if .0.known.is_empty() { "call `undertone::register()` before the model is loaded" } else { "register it" }
    )]
    Unknown(#[from] Unknown),
    /// The vocabulary lacks characters.
    #[error(
        "the model's generation_config.json says that it reads `{reader}`, but its vocabulary lacks {missing:?}: give \
         the tokenizer.json that it was trained with, or remove the key `reader`"
    )]
    Vocabulary {
        /// Name of the reader.
        reader: String,
        /// First character that is missing.
        missing: char,
    },
}

impl Reading {
    /// Returns how a model is given its audio: by the reader that its folder names, or else by the one that recognises
    /// its vocabulary.
    ///
    /// # Errors
    /// If there is no reader of that name, or if the model cannot write its characters.
    pub fn of(whisper: &PretrainedWhisper) -> Result<Self, ReaderError> {
        let missing = |reader: &Arc<dyn Reader>| {
            reader.alphabet().chars().find(|c| whisper.tokenizer.encode(&c.to_string()).is_err())
        };
        let tokens = whisper.tokenizer.vocab_size();
        let reader = match &whisper.generation.reader {
            Some(name) => {
                let reader = reader::get(name)?;
                if let Some(missing) = missing(&reader) {
                    return Err(ReaderError::Vocabulary { reader: name.clone(), missing });
                }
                Some(reader)
            }
            None => reader::all().into_iter().find(|reader| reader.recognises(tokens) && missing(reader).is_none()),
        };
        Ok(Self { reader, window: whisper.config.max_frames() * HOP })
    }

    /// Returns the audio of a piece as its reader gives it to the model; `None` for what is given as it is.
    pub fn prepared(&self, piece: &[f32]) -> Option<Vec<f32>> {
        self.reader.as_ref().and_then(|reader| reader.prepared(piece, self.window))
    }

    /// Cuts audio into pieces that fit the model's window once they are [`prepared`](Self::prepared): those of its reader, or for
    /// speech at pauses.
    pub fn pieces(&self, audio: &[f32]) -> Vec<Piece> {
        match &self.reader {
            Some(reader) => reader.pieces(audio, self.window),
            None => {
                let piece = |samples| Piece { samples, begins_word: true };
                cut::pieces(audio, self.window).into_iter().map(piece).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::whisper_nano as bundled;

    fn name(whisper: &PretrainedWhisper) -> Option<String> {
        Reading::of(whisper).expect("readable").reader.map(|reader| reader.name().to_owned())
    }

    #[test]
    fn a_folder_names_its_reader_and_older_ones_are_recognised() {
        let mut whisper = bundled();
        assert_eq!(whisper.generation.reader.as_deref(), Some("cw"));
        assert_eq!(name(&whisper).as_deref(), Some("cw"));
        whisper.generation.reader = None;
        assert_eq!(name(&whisper).as_deref(), Some("cw"), "by its vocabulary");
        let letters = undertone_model::whisper::WhisperTokenizer::of_characters("ABC ", &["en"]).expect("a tokenizer");
        whisper.tokenizer = letters;
        assert_eq!(name(&whisper), None);
    }

    #[test]
    fn a_model_that_cannot_read_what_it_says_is_refused() {
        let refused = |whisper: &PretrainedWhisper| Reading::of(whisper).err().expect("refused").to_string();
        let mut whisper = bundled();
        whisper.tokenizer =
            undertone_model::whisper::WhisperTokenizer::of_characters("ABC ", &["en"]).expect("a tokenizer");
        let error = refused(&whisper);
        assert!(error.contains("reads `cw`, but its vocabulary lacks 'D'"), "{error}");
        whisper.generation.reader = Some("runes".into());
        let error = refused(&whisper);
        assert!(error.contains("`reader`") && error.contains("`runes`"), "{error}");
    }
}
