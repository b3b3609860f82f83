//! Readers: how a model that reads something other than speech is given its audio.
//!
//! A model's folder names its reader as `reader` in `generation_config.json`. You add a kind of reader with
//! [`register`], before a model is loaded.

use std::ops::Range;
use std::sync::Arc;

use undertone_registry::Registry;
pub use undertone_registry::{NameTaken, Unknown};

use crate::shared::entry;

/// A piece of a long recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Range of its samples.
    pub samples: Range<usize>,
    /// Whether it starts with a new word. Otherwise it continues the last word of the piece before.
    pub begins_word: bool,
}

/// A kind of reader. Audio is mono at 16 kHz.
pub trait Reader: Send + Sync {
    /// Returns the name that models' folders use.
    fn name(&self) -> &str;

    /// Returns the characters that a model must be able to write.
    fn alphabet(&self) -> String;

    /// Whether a model is read with this reader although its folder names none, by the number of tokens that it has. It
    /// can write the alphabet.
    fn recognises(&self, _tokens: usize) -> bool {
        false
    }

    /// Returns the maximum length of a piece at the start of this audio for a model with this window, both in samples. If that
    /// depends on audio after its end, it is at least as long as the audio that decides it.
    fn longest_piece(&self, _audio: &[f32], window: usize) -> usize {
        window
    }

    /// Cuts audio into pieces, in order, each of at most its [`longest_piece`](Self::longest_piece).
    fn pieces(&self, audio: &[f32], window: usize) -> Vec<Piece>;

    /// Returns the audio that a model with this window is given for a piece, at most a window of it; `None` if that is the piece
    /// as it is.
    fn prepared(&self, _piece: &[f32], _window: usize) -> Option<Vec<f32>> {
        None
    }

    /// Returns for each character of what a model wrote of a piece how many more of it were sent in a row than it has: models miscount
    /// what is repeated. Characters at the end may be left out of the answer.
    fn missing(&self, _text: &str, _piece: &[f32]) -> Vec<usize> {
        Vec::new()
    }

    /// Returns the number of samples up to which every character is complete, whatever follows, at most those of the first piece;
    /// `None` if none is.
    fn complete(&self, audio: &[f32], window: usize) -> Option<usize>;

    /// Returns what a model with this window can be given instead if it is in doubt: the piece without what is beside the
    /// signal, in one or several ways; nothing if there is no signal.
    fn signals(&self, piece: &[f32], window: usize) -> Vec<Vec<f32>>;
}

static READERS: Registry<Entry> = Registry::new("reader", Vec::new);

entry!(Reader);

/// Registers a kind of reader under its name, for the whole process.
///
/// # Errors
/// If the name is already registered.
pub fn register(reader: impl Reader + 'static) -> Result<(), NameTaken> {
    READERS.register(Entry(Arc::new(reader)))
}

/// Returns all kinds of reader.
pub fn all() -> Vec<Arc<dyn Reader>> {
    READERS.all().into_iter().map(|Entry(reader)| reader).collect()
}

/// Returns the kind of reader with this name.
///
/// # Errors
/// If there is none.
pub fn get(name: &str) -> Result<Arc<dyn Reader>, Unknown> {
    READERS.get(name).map(|Entry(reader)| reader)
}
