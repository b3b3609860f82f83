//! Metrics of a model's texts, answers and decisions over an evaluation set.
//!
//! Error rates ([`cer`], [`wer`]), overlap of texts ([`rouge`], [`bleu`]), answers to questions ([`squad_v1`],
//! [`squad_v2`]), labels ([`ConfusionMatrix`]) and entities ([`entities`]) are sums over a corpus: you add the scores
//! of single samples and take the rate of the whole. Each agrees with the Python package that papers use; tests compare
//! them. [`Hallucination`] counts words that were written where nobody spoke. [`registry`] finds text metrics by the names in configurations, and [`direction_of`] says in which direction
//! each improves. You can register further metrics there. [`SampleScores`] keeps the scores of single samples, for a
//! confidence interval of the corpus, and [`paired_bootstrap`] compares two systems on the same samples.
//!
//! This crate knows no tensor, no model and no data set: it compares texts, labels and spans.
//!
//! ```
//! use undertone_metrics::{Direction, registry, wer};
//!
//! let pairs = [("the cat sat", "the cat sat"), ("on the mat", "on mat")];
//! let words = pairs.iter().map(|(reference, hypothesis)| wer(reference, hypothesis)).sum::<undertone_metrics::ErrorRate>();
//! assert_eq!(words.rate(), Some(1.0 / 6.0));
//!
//! // The same, by the name that a configuration gives.
//! let metric = registry::lookup("wer").expect("a metric of texts");
//! let mut score = metric.start();
//! pairs.iter().for_each(|(reference, hypothesis)| score.add(reference, hypothesis));
//! assert_eq!((score.value(), metric.direction), (words.rate(), Direction::Lower));
//! ```

/// Sums of a metric: those of its fields, or with its name alone those that follow from its own `AddAssign`.
macro_rules! sums {
    ($metric:ident { $($field:ident),+ }) => {
        impl std::ops::AddAssign for $metric {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }

        sums!($metric);
    };
    ($metric:ident) => {
        impl std::ops::Add for $metric {
            type Output = Self;

            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl std::iter::Sum for $metric {
            fn sum<I: Iterator<Item = Self>>(metrics: I) -> Self {
                metrics.fold(Self::default(), |sum, metric| sum + metric)
            }
        }
    };
}

mod bleu;
mod classification;
mod difference;
mod direction;
mod entities;
mod error_rate;
mod hallucination;
mod interval;
mod porter;
mod question_answering;
pub mod registry;
mod rouge;
mod score;
mod tokens;

pub use bleu::{Bleu, bleu};
pub use classification::ConfusionMatrix;
pub use difference::{Difference, paired_bootstrap};
pub use direction::Direction;
pub use entities::{EntityCounts, TagError, entities};
pub use error_rate::{Edits, ErrorRate, cer, wer};
pub use hallucination::Hallucination;
pub use interval::{Interval, SampleScores, bootstrap};
pub use question_answering::{AnswerScore, squad_v1, squad_v2};
pub use registry::direction_of;
pub use rouge::{Rouge, rouge};
pub use score::Score;
