//! Division of long audio into pieces that fit a model's window.
//!
//! If the transcript consists of segments with times, [`group`] packs them. Otherwise [`pieces`] cuts the audio at its
//! silences, a model transcribes each piece, and [`divide`] finds the part of the transcript that belongs to each
//! piece. Its error rate shows which pieces have a matching text and which should be left out. [`marks`] converts
//! segment times into the timestamps that Whisper is trained on.
//!
//! ```
//! use undertone_data::cut::{TimedText, divide, group, marks, Mark};
//!
//! let said = |start, end, text: &str| TimedText { start, end, text: text.into() };
//! let groups = group(&[said(3.0, 20.0, "One."), said(21.0, 31.5, "Two."), said(31.5, 40.0, "Three.")], 30.0)?;
//! assert_eq!((groups.len(), groups[0].text.as_str()), (2, "One. Two."));
//! assert_eq!(marks(&groups[0].segments, 30.0)[2], Mark::Time(850));
//!
//! let division = divide("Cut me in two, please!", &["cat me".into(), "in two please".into()]).expect("words in common");
//! assert_eq!((division.parts[0].text.as_str(), division.parts[1].text.as_str()), ("Cut me", "in two, please!"));
//! assert_eq!(division.parts[0].error_rate(), 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod align;
mod divide;
mod marks;
mod segments;
mod silence;
mod units;

pub use divide::{Division, TranscriptPart, divide};
pub use marks::{Mark, STEP_S, marks};
pub use segments::{SegmentError, SegmentGroup, TimedText, group};
pub use silence::pieces;
