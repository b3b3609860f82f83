//! Single texts that somebody typed.

use crate::{Answer, TextError, TextSample};
use std::path::Path;
use undertone_data::records::{Origin, Place};

/// A text, or a text and what it is about: a question and its context.
#[derive(Clone, Copy, Debug)]
pub struct UserInput<'a> {
    /// The text.
    pub text: &'a str,
    /// What it is about.
    pub context: Option<&'a str>,
}

/// What a text became: one sample, or several where it is too long for one.
#[derive(Clone, Debug)]
pub struct UserSamples {
    /// The samples.
    pub samples: Vec<TextSample>,
    /// Tokens that are in none of them.
    pub cut: usize,
}

/// Why a text cannot be read as a task reads its records.
#[derive(Debug, thiserror::Error)]
pub enum UserInputError {
    /// A question has nowhere to find its answer.
    #[error("it finds answers in a context: give one")]
    NoContext,
    /// The text does not become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Where something that was typed comes from.
pub fn user_input_origin() -> Origin {
    Origin { path: Path::new("the text").into(), place: Place::Line(1) }
}

/// Which answers need no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrivialBaseline {
    /// The most frequent label, no entity, the source as it is.
    Copy,
    /// The first sentence: of the source, or of the context.
    Lead,
}

/// Makes answers that need no model.
pub type BaselineAnswer = Box<dyn Fn(&TextSample) -> Answer>;

/// Up to the first full stop, question or exclamation mark that white space follows.
pub fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let ends = text.char_indices().zip(text.chars().skip(1)).find_map(|((at, c), next)| {
        (matches!(c, '.' | '?' | '!') && next.is_whitespace()).then_some(at + c.len_utf8())
    });
    &text[..ends.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_at_a_mark_before_white_space() {
        assert_eq!(first_sentence(" It is 3.5 m. It fell."), "It is 3.5 m.");
        assert_eq!(first_sentence("No end"), "No end");
        assert_eq!(first_sentence("Über! So"), "Über!");
    }
}
