//! How well a run tells inputs of its tasks from those of none.

use super::batch::SampleInput;
use super::known::pooled;
use super::predict::Predictor;
use crate::{Experiment, RunError, Split};
use std::path::Path;
use undertone_data::audio;
use undertone_data::records::{Origin, Place};
use undertone_model::known_inputs::KnownInputs;
use undertone_tasks::TextSample;
use undertone_transcribe::TranscribeError;

/// Inputs of none of a run's tasks beside those of its tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Others {
    /// Number of inputs of the tasks.
    pub own: usize,
    /// Number of other inputs.
    pub others: usize,
    /// Area under the ROC curve: the probability that another input is less like the tasks than one of theirs. At 0.5
    /// nothing is told.
    pub area: f64,
    /// Shares that some values of `router.reject` take for inputs of none of the tasks.
    pub rejected: Vec<Rejected>,
}

/// Shares of inputs that a value of `router.reject` takes for inputs of none of the tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejected {
    /// Value of the key.
    pub reject: f64,
    /// Share of the tasks' own inputs.
    pub own: f64,
    /// Share of the other inputs.
    pub others: f64,
}

/// Values of `router.reject` that are tried, as far as they can reject something.
const TRIED: [f64; 3] = [0.01, 0.05, 0.1];

/// Compares a split of a run's data with inputs of none of its tasks: a file with a text on each line, a recording, or a
/// folder of recordings.
///
/// # Errors
/// When the run has no router or did not record what its inputs are like, or when data cannot be read.
pub fn tell_others(experiment: &Experiment, split: Split, others: &Path) -> Result<Others, RunError> {
    let predictor = Predictor::load(experiment)?;
    let known = predictor.known()?;
    let batches = predictor.setup.evaluation_batches(&experiment.tasks, split)?;
    let own = pooled(&predictor.model, &batches, usize::MAX, &predictor.setup)?;
    let own: Vec<f32> = own.iter().map(|(input, _)| known.distance(input)).collect();
    let distances = predictor.distances(known, others)?;
    if distances.is_empty() || own.is_empty() {
        return Err(RunError::NoOthers(others.to_owned()));
    }
    let below = |distances: &[f32], limit: f64| {
        let rejected = distances.iter().filter(|distance| known.share_beyond(**distance) < limit);
        rejected.count() as f64 / distances.len() as f64
    };
    let tried = TRIED.into_iter().filter(|reject| *reject > known.least_share());
    let rejected = tried.map(|reject| Rejected { reject, own: below(&own, reject), others: below(&distances, reject) });
    let rejected = rejected.collect();
    Ok(Others { own: own.len(), others: distances.len(), area: area(&distances, own), rejected })
}

/// Returns the probability that one of `low` is below one of `high`; equal ones count half.
fn area(high: &[f32], mut low: Vec<f32>) -> f64 {
    low.sort_by(f32::total_cmp);
    let wins = |high: &f32| low.partition_point(|low| low < high) + low.partition_point(|low| low <= high);
    high.iter().map(wins).sum::<usize>() as f64 / (2 * high.len() * low.len()) as f64
}

impl Predictor {
    fn known(&self) -> Result<&KnownInputs, RunError> {
        let directory = || self.setup.experiment.directory();
        self.known.as_ref().ok_or_else(|| RunError::NotRecorded { key: "--others", stage: directory() })
    }

    /// Returns the distance of each input in a file or folder from the tasks.
    fn distances(&self, known: &KnownInputs, path: &Path) -> Result<Vec<f32>, RunError> {
        let mut distances = Vec::new();
        let mut add = |input: SampleInput| {
            let mut batch = self.batch(vec![input])?;
            let values: Vec<f32> = undertone_ops::read(self.tap(&mut batch)?.pooled());
            distances.push(known.distance(&values));
            Ok::<(), RunError>(())
        };
        match self.setup.pretrained.text() {
            Some(text) => {
                let longest = self.longest_routed(text.max_tokens);
                let lines = std::fs::read_to_string(path).map_err(RunError::of_file("read", path))?;
                let list = path.into();
                for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
                    let name = Origin::new(&list, Place::Line(number)).to_string();
                    let (row, _) = TextSample::plain(name, line, None, longest, &text.framer)?;
                    add(SampleInput::Text(row))?;
                }
            }
            None => {
                for file in audio::audio_files(path).map_err(TranscribeError::from)? {
                    let samples = audio::load(&file).map_err(TranscribeError::from)?;
                    let pieces = self.pieces(&file.display().to_string(), &samples)?;
                    pieces.into_iter().try_for_each(|(_, sample)| add(SampleInput::Speech(sample)))?;
                }
            }
        }
        Ok(distances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_is_the_share_of_pairs_in_order() {
        assert_eq!(area(&[0.5, 0.6], vec![0.1, 0.2, 0.3]), 1.0);
        assert_eq!(area(&[0.1], vec![0.5, 0.6]), 0.0);
        assert_eq!(area(&[0.2, 0.4], vec![0.4, 0.1]), (1.0 + 1.5) / 4.0);
        assert_eq!(area(&[0.3; 5], vec![0.3; 7]), 0.5);
    }
}
