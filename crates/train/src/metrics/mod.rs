//! Metrics of what a model writes, hears or decides, over a whole evaluation set.

mod bleu;
mod classification;
mod direction;
mod entities;
mod error_rate;
mod porter;
mod question_answering;
mod rouge;
mod score;
mod tokens;

use std::iter::Sum;
use std::ops::Add;

pub use bleu::{Bleu, bleu};
pub use classification::ConfusionMatrix;
pub use direction::{Direction, direction_of};
pub use entities::{EntityCounts, EntityScore, TagError, entities};
pub use error_rate::{Edits, ErrorRate, cer, wer};
pub use question_answering::{AnswerScore, squad_v1, squad_v2};
pub use rouge::{Rouge, rouge};
pub use score::Score;

/// The sums that follow from `AddAssign` and `Default`.
macro_rules! sums {
    ($($metric:ty),*) => {$(
        impl Add for $metric {
            type Output = Self;

            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl Sum for $metric {
            fn sum<I: Iterator<Item = Self>>(metrics: I) -> Self {
                metrics.fold(Self::default(), Add::add)
            }
        }
    )*};
}

sums!(AnswerScore, Bleu, EntityCounts, EntityScore, Rouge);
