//! Single texts as user input.

use crate::{Answer, TextError, TextSample};
use std::path::Path;
use undertone_data::records::{Origin, Place};

/// User input: a text, or a question and its context.
#[derive(Clone, Copy, Debug)]
pub struct UserInput<'a> {
    /// Text or question.
    pub text: &'a str,
    /// Context of the question.
    pub context: Option<&'a str>,
    /// Place that it comes from, for error messages; none for a text of the command line.
    pub origin: Option<&'a Origin>,
}

impl UserInput<'_> {
    /// Returns the origin, for error messages.
    pub fn origin(&self) -> Origin {
        self.origin.cloned().unwrap_or_else(|| Origin::new(&Path::new("the text").into(), Place::Line(1)))
    }
}

/// Use that a kind of task makes of the context of a user input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextUse {
    /// It reads one text, without a context.
    Unused,
    /// It reads a text, or a text and its context as a pair.
    Optional,
    /// Its answer is a part of the context.
    Required,
}

/// Samples of a text: one, or several if it is too long for one.
#[derive(Clone, Debug)]
pub struct UserSamples {
    /// Samples.
    pub samples: Vec<TextSample>,
    /// Number of tokens that are in none of them.
    pub cut: usize,
}

/// Reason why user input cannot become samples of a task.
#[derive(Debug, thiserror::Error)]
pub enum UserInputError {
    /// The task answers questions, but there is no context.
    #[error("it finds answers in a context: give one")]
    NoContext,
    /// The tokenizer failed.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Baselines that need no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrivialBaseline {
    /// The most frequent label, no entity, or the unchanged source.
    Copy,
    /// The first sentence of the source or of the context.
    Lead,
}

/// Function that returns a baseline's answer to a sample.
pub type BaselineAnswer = Box<dyn Fn(&TextSample) -> Answer>;

/// Returns the text up to the first full stop, question or exclamation mark that is followed by white space.
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
