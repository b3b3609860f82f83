//! Reader of a model: none for speech, else a registered one that prepares audio for it.

use crate::kinds::{self, REGISTER};
use crate::{Experiment, Split};
use std::sync::Arc;
use undertone_data::cut;
use undertone_data::features::HOP;
use undertone_data::reader::{Piece, Reader, Unknown};
use undertone_model::whisper::PretrainedWhisper;

/// Reader of a model.
#[derive(Clone)]
pub(crate) struct Reading {
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
        register = if .0.known.is_empty() { REGISTER } else { "register it" }
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
                let reader = kinds::reader(name)?;
                if let Some(missing) = missing(&reader) {
                    return Err(ReaderError::Vocabulary { reader: name.clone(), missing });
                }
                Some(reader)
            }
            None => kinds::readers().into_iter().find(|reader| reader.recognises(tokens) && missing(reader).is_none()),
        };
        Ok(Self { reader, window: whisper.config.max_frames() * HOP })
    }

    /// Cuts audio into pieces that fit the model's window: those of its reader, or for speech at pauses.
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

impl Experiment {
    /// Returns the name of the reader for a model that is trained on nothing but sources with this reader.
    pub(crate) fn reader(&self) -> Option<String> {
        let tasks = self.all_tasks();
        let sources = tasks.iter().flat_map(|task| task.data.splits().sources(Split::Train).unwrap_or_default());
        let readers = sources.map(|source| Some(source.synthesised()?.kind().ok()?.reader()?.to_owned()));
        let readers: Vec<String> = readers.collect::<Option<_>>()?;
        let first = readers.first()?.clone();
        readers.iter().all(|reader| *reader == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;
    use burn::tensor::Device;

    fn bundled() -> PretrainedWhisper {
        ModelConfig::default().load(&Device::flex(), 0).expect("the bundled model")
    }

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

    #[test]
    fn models_are_marked_that_are_trained_on_what_has_a_reader_alone() {
        let load = |settings: &[&str]| Experiment::of_yaml("", settings).expect("an experiment");
        assert_eq!(load(&[]).reader().as_deref(), Some("cw"));
        let mixed = "data.train=[{synth: cw}, {path: x.csv}]";
        assert_eq!(load(&[mixed, "data.valid={path: y.csv}"]).reader(), None);
    }
}
