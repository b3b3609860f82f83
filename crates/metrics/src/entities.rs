//! Precision, recall and F1 of named entities.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::Score;

/// Counts of expected, found and correctly found entities, of a sentence or summed over a corpus.
///
/// An entity is found correctly if its type, its first and its last token agree. This is seqeval in its default mode,
/// and thereby CoNLL's `conlleval`.
///
/// ```
/// # use undertone_metrics::{EntityCounts, entities};
/// # fn main() -> Result<(), undertone_metrics::TagError> {
/// let mut total = EntityCounts::default();
/// total += entities(&["B-PER", "I-PER", "O", "B-LOC"], &["B-PER", "I-PER", "O", "O"])?;
/// total += entities(&["O", "B-LOC"], &["O", "I-LOC"])?;
/// assert_eq!((total.score().precision, total.score().recall), (1.0, 2.0 / 3.0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntityCounts {
    /// Number of predicted entities that the references also contain.
    pub correct: usize,
    /// Number of reference entities.
    pub expected: usize,
    /// Number of predicted entities.
    pub found: usize,
}

/// Error in the tags of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TagError {
    /// The numbers of tags differ.
    #[error("the sentence has {reference} reference tags and {prediction} predicted ones; give one of each per token")]
    Length {
        /// Number of reference tags.
        reference: usize,
        /// Number of predicted tags.
        prediction: usize,
    },
    /// The tag is not a BIO tag.
    #[error("`{0}` is not a BIO tag; write `O`, `B-` and the type, or `I-` and the type")]
    Unknown(String),
}

/// Returns the entity counts of one sentence, tagged in BIO (IOB2), with one tag per token.
///
/// A sequence need not be well-formed: an `I-` that continues no entity of its type begins an entity. A bare `B` or `I`
/// has the type `_`.
///
/// # Errors
/// If the sides differ in length, or a tag is not a BIO tag.
pub fn entities<R: AsRef<str>, P: AsRef<str>>(reference: &[R], prediction: &[P]) -> Result<EntityCounts, TagError> {
    if reference.len() != prediction.len() {
        return Err(TagError::Length { reference: reference.len(), prediction: prediction.len() });
    }
    let (expected, found) = (spans(reference)?, spans(prediction)?);
    let correct = expected.intersection(&found).count();
    Ok(EntityCounts { correct, expected: expected.len(), found: found.len() })
}

impl EntityCounts {
    /// Precision, recall and F1 of these entities.
    pub fn score(&self) -> Score {
        Score::of_counts(self.correct, self.expected, self.found)
    }
}

sums!(EntityCounts { correct, expected, found });

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Span<'a> {
    kind: &'a str,
    /// First token.
    start: usize,
    /// Token after the last.
    end: usize,
}

fn spans<T: AsRef<str>>(tags: &[T]) -> Result<BTreeSet<Span<'_>>, TagError> {
    let mut spans = BTreeSet::new();
    let mut open: Option<(&str, usize)> = None;
    for (i, tag) in tags.iter().enumerate() {
        let tag = parse(tag.as_ref())?;
        if let (Some((kind, _)), Tag::Inside(same)) = (open, tag)
            && kind == same
        {
            continue;
        }
        spans.extend(open.map(|(kind, start)| Span { kind, start, end: i }));
        open = match tag {
            Tag::Begin(kind) | Tag::Inside(kind) => Some((kind, i)),
            Tag::Outside => None,
        };
    }
    spans.extend(open.map(|(kind, start)| Span { kind, start, end: tags.len() }));
    Ok(spans)
}

#[derive(Clone, Copy)]
enum Tag<'a> {
    Begin(&'a str),
    Inside(&'a str),
    Outside,
}

fn parse(tag: &str) -> Result<Tag<'_>, TagError> {
    let (position, kind) = tag.split_once('-').unwrap_or((tag, ""));
    let named = if kind.is_empty() { "_" } else { kind };
    match position {
        "B" => Ok(Tag::Begin(named)),
        "I" => Ok(Tag::Inside(named)),
        _ if tag == "O" => Ok(Tag::Outside),
        _ => Err(TagError::Unknown(tag.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    use super::*;

    /// precision, recall, F1
    type Figures = (f64, f64, f64);

    #[derive(Deserialize)]
    struct Fixture {
        sentences: Vec<Sentence>,
        corpus: Figures,
        types: BTreeMap<String, Figures>,
    }

    #[derive(Deserialize)]
    struct Sentence {
        reference: String,
        prediction: String,
        score: Figures,
    }

    fn tags(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    /// The tags of a line, with those of other types outside.
    fn only<'t>(kind: &str, line: &'t str) -> Vec<&'t str> {
        let is_own = |tag: &str| matches!(parse(tag), Ok(Tag::Begin(own) | Tag::Inside(own)) if own == kind);
        tags(line).into_iter().map(|tag| if is_own(tag) { tag } else { "O" }).collect()
    }

    fn assert_figures(score: Score, figures: Figures, culprit: &str) {
        for (ours, theirs) in [(score.precision, figures.0), (score.recall, figures.1), (score.f1, figures.2)] {
            assert!((ours - theirs).abs() < 1e-12, "{culprit}: {score:?}, expected {figures:?}");
        }
    }

    #[test]
    fn scores_are_those_of_seqeval() {
        let fixture: Fixture = serde_json::from_str(include_str!("../tests/fixtures/entities.json")).unwrap();
        assert!(fixture.sentences.len() > 50);
        let mut total = EntityCounts::default();
        for Sentence { reference, prediction, score } in &fixture.sentences {
            let ours = entities(&tags(reference), &tags(prediction)).unwrap();
            assert_figures(ours.score(), *score, &format!("{reference:?} {prediction:?}"));
            total += ours;
        }
        assert_figures(total.score(), fixture.corpus, "corpus");
        for (kind, figures) in &fixture.types {
            let of = |s: &Sentence| entities(&only(kind, &s.reference), &only(kind, &s.prediction)).unwrap();
            let counts: EntityCounts = fixture.sentences.iter().map(of).sum();
            assert_figures(counts.score(), *figures, kind);
        }
    }

    #[test]
    fn entities_are_counted_on_both_sides() {
        assert_eq!(entities(&["O", "O"], &["O", "O"]).unwrap(), EntityCounts::default());
        assert_eq!(entities(&["O"], &["I-X"]).unwrap(), EntityCounts { found: 1, ..Default::default() });
    }

    #[test]
    fn tags_that_cannot_be_read_are_named() {
        let unknown = |tag: &str| Err(TagError::Unknown(tag.to_owned()));
        for tag in ["PER", "", "O-PER", "S-PER", "b-PER"] {
            assert_eq!(entities(&["O"], &[tag]), unknown(tag));
        }
        assert_eq!(entities(&["O"], &["O", "O"]), Err(TagError::Length { reference: 1, prediction: 2 }));
    }

    fn sentence() -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(prop::sample::select(vec!["O", "B-A", "I-A", "B-B", "I-B"]), 0..20)
    }

    proptest! {
        #[test]
        fn a_tagging_scores_1_against_itself(tags in sentence()) {
            let counts = entities(&tags, &tags).unwrap();
            prop_assert_eq!(counts.found > 0, tags.iter().any(|tag| *tag != "O"));
            if counts.found > 0 {
                prop_assert_eq!(counts.score(), Score { precision: 1.0, recall: 1.0, f1: 1.0 });
            }
        }

        #[test]
        fn sides_mirror_each_other_and_order_is_free(pairs in prop::collection::vec((sentence(), sentence()), 1..5)) {
            let cut = |(a, b): &(Vec<&'static str>, Vec<&'static str>)| {
                let length = a.len().min(b.len());
                (a[..length].to_vec(), b[..length].to_vec())
            };
            let pairs: Vec<_> = pairs.iter().map(cut).collect();
            let forth: EntityCounts = pairs.iter().map(|(a, b)| entities(a, b).unwrap()).sum();
            let back: EntityCounts = pairs.iter().rev().map(|(a, b)| entities(b, a).unwrap()).sum();
            prop_assert_eq!((forth.correct, forth.expected, forth.found), (back.correct, back.found, back.expected));
            prop_assert!(forth.correct <= forth.expected.min(forth.found));
        }
    }
}
