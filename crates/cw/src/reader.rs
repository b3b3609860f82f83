//! How a model that reads Morse is given its audio.

use super::{listen, morse, narrowed};
use undertone_data::reader::{Piece, Reader};

/// The reader `cw`. Recordings are cut between characters, and in doubt the keyed tone is read alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct MorseReader;

/// Limit on the size of a Morse vocabulary, special tokens included. Vocabularies of languages have thousands of
/// tokens.
const MOST_TOKENS: usize = 128;

impl Reader for MorseReader {
    fn name(&self) -> &str {
        "cw"
    }

    fn alphabet(&self) -> String {
        morse::alphabet().collect()
    }

    /// Folders that were written before they named their reader have a vocabulary of Morse characters only.
    fn recognises(&self, tokens: usize) -> bool {
        tokens < MOST_TOKENS
    }

    fn pieces(&self, audio: &[f32], window: usize) -> Vec<Piece> {
        listen::pieces(audio, window)
    }

    fn complete(&self, audio: &[f32]) -> Option<usize> {
        listen::last_gap(audio).map(|gap| gap.samples.end)
    }

    /// The main source of confusion is other stations beside the tone.
    fn signal(&self, audio: &[f32]) -> Option<Vec<f32>> {
        listen::keyed_tone(audio).map(|_| narrowed(audio))
    }
}
