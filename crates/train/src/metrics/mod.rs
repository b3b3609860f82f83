//! Metrics of what a model writes, hears or decides, over a whole evaluation set.

mod error_rate;

pub use error_rate::{Edits, ErrorRate, cer, wer};
