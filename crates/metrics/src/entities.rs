//! Precision, recall and F1 of named entities.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use thiserror::Error;

use crate::Score;

/// Counts of expected, found and correctly found entities, by type and summed over a corpus.
///
/// An entity is found correctly if its type, its first and its last token agree. This is seqeval in its default mode,
/// and thereby CoNLL's `conlleval`.
///
/// ```
/// # use undertone_metrics::{EntityScore, entities};
/// # fn main() -> Result<(), undertone_metrics::TagError> {
/// let mut total = EntityScore::default();
/// total += entities(&["B-PER", "I-PER", "O", "B-LOC"], &["B-PER", "I-PER", "O", "O"])?;
/// total += entities(&["O", "B-LOC"], &["O", "I-LOC"])?;
/// assert_eq!(total.micro().map(|score| (score.precision, score.recall)), Some((1.0, 2.0 / 3.0)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntityScore {
    /// Counts of each type that occurs.
    pub types: BTreeMap<String, EntityCounts>,
}

/// Counts of the entities of one type, or of all.
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
    #[error("`{0}` is no BIO tag; write `O`, `B-` and the type, or `I-` and the type")]
    Unknown(String),
}

/// Returns the entity counts of one sentence, tagged in BIO (IOB2), with one tag per token.
///
/// A sequence need not be well-formed: an `I-` that continues no entity of its type begins an entity. A bare `B` or `I`
/// has the type `_`.
///
/// # Errors
/// If the sides differ in length, or a tag is not a BIO tag.
pub fn entities<R: AsRef<str>, P: AsRef<str>>(reference: &[R], prediction: &[P]) -> Result<EntityScore, TagError> {
    if reference.len() != prediction.len() {
        return Err(TagError::Length { reference: reference.len(), prediction: prediction.len() });
    }
    let (expected, found) = (spans(reference)?, spans(prediction)?);
    let mut score = EntityScore::default();
    for span in &expected {
        let counts = score.counts_mut(span.kind);
        counts.expected += 1;
        counts.correct += usize::from(found.contains(span));
    }
    for span in &found {
        score.counts_mut(span.kind).found += 1;
    }
    Ok(score)
}

impl EntityScore {
    /// Counts of all types together.
    pub fn total(&self) -> EntityCounts {
        self.types.values().copied().sum()
    }

    /// Score over the entities of all types; `None` if no entity is expected or found.
    pub fn micro(&self) -> Option<Score> {
        let total = self.total();
        (total.expected + total.found > 0).then(|| total.score())
    }

    /// Score of each type that occurs, in the order of their names.
    pub fn by_type(&self) -> impl Iterator<Item = (&str, Score)> {
        self.types.iter().map(|(name, counts)| (name.as_str(), counts.score()))
    }

    fn counts_mut(&mut self, kind: &str) -> &mut EntityCounts {
        self.types.entry(kind.to_owned()).or_default()
    }
}

impl AddAssign for EntityScore {
    fn add_assign(&mut self, other: Self) {
        for (kind, counts) in other.types {
            *self.types.entry(kind).or_default() += counts;
        }
    }
}

impl EntityCounts {
    /// Precision, recall and F1 of these entities.
    pub fn score(&self) -> Score {
        Score::of_counts(self.correct, self.expected, self.found)
    }
}

impl AddAssign for EntityCounts {
    fn add_assign(&mut self, other: Self) {
        self.correct += other.correct;
        self.expected += other.expected;
        self.found += other.found;
    }
}

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

    fn assert_figures(score: Score, figures: Figures, culprit: &str) {
        for (ours, theirs) in [(score.precision, figures.0), (score.recall, figures.1), (score.f1, figures.2)] {
            assert!((ours - theirs).abs() < 1e-12, "{culprit}: {score:?}, expected {figures:?}");
        }
    }

    #[test]
    fn scores_are_those_of_seqeval() {
        let fixture: Fixture = serde_json::from_str(include_str!("../tests/fixtures/entities.json")).unwrap();
        assert!(fixture.sentences.len() > 50);
        let mut total = EntityScore::default();
        for Sentence { reference, prediction, score } in &fixture.sentences {
            let ours = entities(&tags(reference), &tags(prediction)).unwrap();
            assert_figures(ours.micro().unwrap_or_default(), *score, &format!("{reference:?} {prediction:?}"));
            total += ours;
        }
        assert_figures(total.micro().unwrap(), fixture.corpus, "corpus");
        assert_eq!(total.types.len(), fixture.types.len());
        for (kind, score) in total.by_type() {
            assert_figures(score, fixture.types[kind], kind);
        }
    }

    #[test]
    fn no_entity_has_no_score() {
        assert_eq!(entities(&["O", "O"], &["O", "O"]).unwrap().micro(), None);
        assert_eq!(entities(&["O"], &["I-X"]).unwrap().micro(), Some(Score::default()));
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
            let score = entities(&tags, &tags).unwrap().micro();
            prop_assert_eq!(score.is_some(), tags.iter().any(|tag| *tag != "O"));
            if let Some(score) = score {
                prop_assert_eq!(score, Score { precision: 1.0, recall: 1.0, f1: 1.0 });
            }
        }

        #[test]
        fn sides_mirror_each_other_and_order_is_free(pairs in prop::collection::vec((sentence(), sentence()), 1..5)) {
            let cut = |(a, b): &(Vec<&'static str>, Vec<&'static str>)| {
                let length = a.len().min(b.len());
                (a[..length].to_vec(), b[..length].to_vec())
            };
            let pairs: Vec<_> = pairs.iter().map(cut).collect();
            let forth: EntityScore = pairs.iter().map(|(a, b)| entities(a, b).unwrap()).sum();
            let back: EntityScore = pairs.iter().rev().map(|(a, b)| entities(b, a).unwrap()).sum();
            let (forth, back) = (forth.total(), back.total());
            prop_assert_eq!((forth.correct, forth.expected, forth.found), (back.correct, back.found, back.expected));
            prop_assert!(forth.correct <= forth.expected.min(forth.found));
        }
    }
}
