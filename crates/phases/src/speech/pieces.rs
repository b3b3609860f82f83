//! What of a recording a model can hear at once.

use undertone_data::audio::SAMPLE_RATE;
use undertone_data::clips::Clips;
use undertone_data::cut::{SegmentError, TimedText, group};
use undertone_data::loader::SampleError;

/// A clip, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    /// Which clip.
    pub clip: usize,
    /// From where to where, in seconds of the file; all of the clip, if nothing is said.
    pub part: Option<(f64, f64)>,
    /// What is said in it.
    pub text: String,
    /// When the parts of that are said, in seconds from the piece's beginning.
    pub timed: Option<Vec<TimedText>>,
    /// How long it is, where that is known.
    pub seconds: Option<f64>,
    /// Whether the piece before this one is what was said before it.
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

    /// 16 kHz, mono.
    pub fn load(&self, clips: &Clips) -> Result<Vec<f32>, SampleError> {
        Ok(match self.part {
            Some((start, end)) => clips.load_between(self.clip, Some(start), Some(end))?,
            None => clips.load(self.clip)?,
        })
    }
}

/// What becomes of all clips.
pub(crate) struct Division {
    /// What the model can hear at once.
    pub pieces: Vec<Piece>,
    /// The clips that are too long and have no times, with their seconds.
    pub long: Vec<(usize, f64)>,
    /// The clips whose times cannot be used.
    pub unusable: Vec<(usize, SegmentError)>,
}

/// Cuts clips that do not fit a window of so many seconds where the times of their text are known. `seconds` are those of
/// the clips, as far as they are known.
pub(crate) fn divided(clips: &Clips, window: f64, seconds: &[Option<f64>]) -> Division {
    let mut division = Division { pieces: Vec::with_capacity(clips.len()), long: Vec::new(), unusable: Vec::new() };
    for (index, seconds) in seconds.iter().copied().enumerate() {
        let clip = clips.clip(index);
        let fits = seconds.is_some_and(|seconds| seconds <= window + 1.0 / f64::from(SAMPLE_RATE));
        if !clip.segments.is_empty() && !fits {
            let groups = match group(&clip.segments, window) {
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
            let timed = if clip.segments.is_empty() {
                // A part of a longer recording begins and ends with what is said in it.
                let part = seconds.filter(|_| clip.start.is_some() && clip.end.is_some());
                part.map(|end| vec![TimedText { start: 0.0, end, text: clip.text.clone() }])
            } else {
                Some(clip.segments.iter().map(|s| s.later(-begin)).collect())
            };
            let before = division.pieces.last().map(|piece| piece.clip + 1);
            let follows = clips.continues(index) && before == Some(index);
            let text = clip.text.clone();
            division.pieces.push(Piece { clip: index, part: None, text, timed, seconds, follows });
        }
    }
    division
}
