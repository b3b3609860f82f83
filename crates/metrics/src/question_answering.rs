//! Exact match and F1 of short answers, as SQuAD scores them.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::Score;
use crate::tokens::{ngrams, shared, words};

/// Scores of answers to questions, summed over an evaluation set.
///
/// ```
/// # use undertone_metrics::{AnswerScore, squad_v2};
/// let answers =
///     [(vec!["the Eiffel Tower", "Eiffel"], "Eiffel tower!"), (vec!["in May 1889"], "May 1889"), (vec![], "")];
/// let total: AnswerScore = answers.iter().map(|(golds, prediction)| squad_v2(golds, prediction)).sum();
/// assert_eq!(total.exact_match(), Some(2.0 / 3.0));
/// assert!((total.f1().unwrap() - (1.0 + 0.8 + 1.0) / 3.0).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AnswerScore {
    /// Number of questions whose answer equals a gold answer, once both are normalised.
    pub exact: usize,
    /// Sum of the questions' F1, each in `[0, 1]`.
    pub f1_sum: f64,
    /// Number of questions.
    pub questions: usize,
}

/// Returns the score of one answer by the rules of SQuAD v1.1: the best over the gold answers.
///
/// Answers are compared in lower case without punctuation, articles and superfluous white space. F1 is that of the
/// remaining words, regardless of their order. If no word remains on either side, the match is exact and F1 is 0, as in
/// the official script. A question without a gold answer, which v1.1 does not have, scores 0.
pub fn squad_v1<G: AsRef<str>>(golds: &[G], prediction: &str) -> AnswerScore {
    let golds: Vec<String> = golds.iter().map(|gold| normalize(gold.as_ref())).collect();
    best(&golds, &normalize(prediction), 0.0)
}

/// Returns the score of one answer by the rules of SQuAD v2: the best over the gold answers.
///
/// As [`squad_v1`], but a question may have no answer: `golds` is empty, or nothing of it remains after normalisation.
/// Then an answer of which nothing remains scores 1, and any other 0.
pub fn squad_v2<G: AsRef<str>>(golds: &[G], prediction: &str) -> AnswerScore {
    let mut golds: Vec<String> =
        golds.iter().map(|gold| normalize(gold.as_ref())).filter(|gold| !gold.is_empty()).collect();
    if golds.is_empty() {
        golds.push(String::new());
    }
    best(&golds, &normalize(prediction), 1.0)
}

impl AnswerScore {
    /// Share of the questions answered exactly, in `[0, 1]`; `None` without a question.
    pub fn exact_match(&self) -> Option<f64> {
        (self.questions > 0).then(|| self.exact as f64 / self.questions as f64)
    }

    /// Mean F1 of the questions, in `[0, 1]`; `None` without a question.
    pub fn f1(&self) -> Option<f64> {
        (self.questions > 0).then(|| self.f1_sum / self.questions as f64)
    }
}

sums!(AnswerScore { exact, f1_sum, questions });

/// Score of one question over normalised texts; `f1_of_nothing` is the F1 of two empty ones.
fn best(golds: &[String], prediction: &str, f1_of_nothing: f64) -> AnswerScore {
    let found: Vec<&str> = words(prediction).collect();
    let f1 = |gold: &String| {
        let gold: Vec<&str> = words(gold).collect();
        if gold.is_empty() && found.is_empty() {
            return f1_of_nothing;
        }
        Score::of_counts(shared(&ngrams(&gold, 1), &ngrams(&found, 1)), gold.len(), found.len()).f1
    };
    AnswerScore {
        exact: usize::from(golds.iter().any(|gold| gold == prediction)),
        f1_sum: golds.iter().map(f1).fold(0.0, f64::max),
        questions: 1,
    }
}

/// Normalises a text: lower case, no ASCII punctuation, no articles, single spaces.
fn normalize(text: &str) -> String {
    // Characters that Python's `\w` matches, except the underscore, which is punctuation and already removed. Rust's
    // `\w` also matches combining marks, so the article of a decomposed `thé` would remain.
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{L}\p{N}]+").expect("a valid pattern"));
    let bare: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let without_articles = WORD.replace_all(&bare, |found: &Captures| match &found[0] {
        "a" | "an" | "the" => " ".to_owned(),
        word => word.to_owned(),
    });
    words(&without_articles).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        questions: Vec<Question>,
        v2_exact: f64,
        v2_f1: f64,
    }

    #[derive(Deserialize)]
    struct Question {
        golds: Vec<String>,
        prediction: String,
        normalized: String,
        /// Exact match and F1; null without a gold answer.
        v1: Option<(f64, f64)>,
        v2: (f64, f64),
    }

    fn assert_scores(score: AnswerScore, (exact, f1): (f64, f64), text: &str) {
        assert_eq!(score.exact_match(), Some(exact), "{text:?}");
        assert!((score.f1().unwrap() - f1).abs() < 1e-12, "{text:?}: {score:?} for {f1}");
    }

    #[test]
    fn scores_are_those_of_the_official_scripts() {
        let fixture: Fixture = serde_json::from_str(include_str!("../tests/fixtures/squad.json")).unwrap();
        assert!(fixture.questions.len() > 50);
        let mut total = AnswerScore::default();
        for question in &fixture.questions {
            let Question { golds, prediction, normalized, v1, v2 } = question;
            assert_eq!(&normalize(prediction), normalized);
            if let Some(v1) = v1 {
                assert_scores(squad_v1(golds, prediction), *v1, prediction);
            }
            let score = squad_v2(golds, prediction);
            assert_scores(score, *v2, prediction);
            total += score;
        }
        assert!((total.exact_match().unwrap() - fixture.v2_exact).abs() < 1e-12);
        assert!((total.f1().unwrap() - fixture.v2_f1).abs() < 1e-12);
    }

    #[test]
    fn no_question_has_no_score() {
        assert_eq!(AnswerScore::default().exact_match(), None);
        assert_eq!(AnswerScore::default().f1(), None);
    }

    #[test]
    fn an_unanswerable_question_wants_no_answer() {
        let none: [&str; 0] = [];
        assert_eq!(squad_v2(&none, " The ").f1(), Some(1.0));
        assert_eq!(squad_v2(&[""], "42").f1(), Some(0.0));
        assert_eq!(squad_v2(&["", "42"], "").exact_match(), Some(0.0));
        assert_eq!(squad_v1(&none, "").exact_match(), Some(0.0));
    }

    proptest! {
        #[test]
        fn a_gold_answer_scores_1(golds in prop::collection::vec("\\PC{0,12}", 1..4), which: prop::sample::Index) {
            let gold = which.get(&golds).clone();
            let some = !normalize(&gold).is_empty();
            prop_assert_eq!(squad_v1(&golds, &gold).exact_match(), Some(1.0));
            if some {
                prop_assert!((squad_v1(&golds, &gold).f1().unwrap() - 1.0).abs() < 1e-12);
                prop_assert_eq!(squad_v2(&golds, &gold).exact_match(), Some(1.0));
            }
        }

        #[test]
        fn scores_are_bounded_and_the_order_of_golds_is_free(
            golds in prop::collection::vec("[ab the.]{0,10}", 1..4),
            prediction in "[ab the.]{0,10}",
        ) {
            let reversed: Vec<&String> = golds.iter().rev().collect();
            let score = squad_v2(&golds, &prediction);
            prop_assert!((0.0..=1.0).contains(&score.f1().unwrap()));
            prop_assert!(score.f1() >= score.exact_match());
            prop_assert_eq!(score, squad_v2(&reversed, &prediction));
        }
    }
}
