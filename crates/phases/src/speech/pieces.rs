//! Pieces of recordings that fit a model's window.

use undertone_data::audio::SAMPLE_RATE;
use undertone_data::clips::Clips;
use undertone_data::cut::{SegmentError, TimedText, group};
use undertone_data::loader::SampleError;

/// Audio beyond the window that a recording may have, in seconds. It is left out: encoders of lossy formats add as much silence at both
/// ends, and times are rounded.
const EXCESS: f64 = 0.1;

/// Returns the maximum number of samples of a recording for a window.
pub(crate) fn most_samples(window: usize) -> usize {
    window + (EXCESS * f64::from(SAMPLE_RATE)) as usize
}

/// A clip, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    /// Index of the clip.
    pub clip: usize,
    /// Start and end in seconds of the file; `None` for the whole clip.
    pub part: Option<(f64, f64)>,
    /// Text of the piece.
    pub text: String,
    /// Parts of the text with their times, in seconds from the beginning of the piece.
    pub timed: Option<Vec<TimedText>>,
    /// Duration in seconds, if known.
    pub seconds: Option<f64>,
    /// Whether the piece before this one immediately precedes it in the recording.
    pub follows: bool,
}

impl Piece {
    pub fn name(&self, clips: &Clips) -> String {
        let name = &clips.clip(self.clip).name;
        match self.part {
            Some((start, _)) => format!("{name} from {start:.2} s"),
            None => name.clone(),
        }
    }

    /// Loads the audio at 16 kHz, mono.
    pub fn load(&self, clips: &Clips) -> Result<Vec<f32>, SampleError> {
        Ok(match self.part {
            Some((start, end)) => clips.load_between(self.clip, Some(start), Some(end))?,
            None => clips.load(self.clip)?,
        })
    }
}

/// Result of dividing all clips.
pub(crate) struct Division {
    /// Pieces that fit the window.
    pub pieces: Vec<Piece>,
    /// Clips that are too long and have no segment times, with their durations in seconds.
    pub long: Vec<(usize, f64)>,
    /// Clips whose segment times cannot be used.
    pub unusable: Vec<(usize, SegmentError)>,
}

/// Cuts clips that are longer than `window` seconds at their segment times, if these are known. `seconds` are the
/// durations of the clips, as far as they are known.
pub(crate) fn divided(clips: &Clips, window: f64, seconds: &[Option<f64>]) -> Division {
    let mut division = Division { pieces: Vec::with_capacity(clips.len()), long: Vec::new(), unusable: Vec::new() };
    for (index, seconds) in seconds.iter().copied().enumerate() {
        let clip = clips.clip(index);
        let fits = seconds.is_some_and(|seconds| seconds <= window + EXCESS);
        let segments = match seconds {
            Some(seconds) => clip.segments_within(seconds),
            None => clip.segments.clone(),
        };
        if !segments.is_empty() && !fits {
            let groups = match group(&segments, window) {
                Ok(groups) => groups,
                Err(error) => {
                    division.unusable.push((index, error));
                    continue;
                }
            };
            division.pieces.extend(groups.into_iter().enumerate().map(|(place, group)| Piece {
                clip: index,
                part: Some((group.start, group.end)),
                text: group.text,
                timed: Some(group.segments),
                seconds: Some(group.end - group.start),
                follows: place > 0,
            }));
        } else if let Some(seconds) = seconds.filter(|_| !fits) {
            division.long.push((index, seconds));
        } else {
            let begin = clip.start.unwrap_or(0.0);
            let timed = if segments.is_empty() {
                // A part of a longer recording begins and ends with its text.
                let part = seconds.filter(|_| clip.start.is_some() && clip.end.is_some());
                part.map(|end| vec![TimedText { start: 0.0, end, text: clip.text.clone() }])
            } else {
                Some(segments.iter().map(|s| s.later(-begin)).collect())
            };
            let before = division.pieces.last().map(|piece| piece.clip + 1);
            let follows = clips.continues(index) && before == Some(index);
            let text = clip.text.clone();
            division.pieces.push(Piece { clip: index, part: None, text, timed, seconds, follows });
        }
    }
    division
}
