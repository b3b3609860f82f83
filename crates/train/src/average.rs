//! Averages of the parameters of several checkpoints of a run.

use crate::checkpoint::{Checkpoint, Checkpoints};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;
use undertone_metrics::Direction;
use undertone_store::{HostTensor, StoreError};

/// Checkpoints that are averaged, written `last:5` or `best:3`.
///
/// The mean of the parameters of the last checkpoints is often a better model than each of them: it lies nearer to the middle
/// of the minimum that training moves around in ([Izmailov et al., 2018](https://arxiv.org/abs/1803.05407)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The newest ones, so many.
    Last(usize),
    /// Those with the best values of the deciding metric, so many.
    Best(usize),
}

/// Reason why checkpoints are not averaged.
#[derive(Debug, thiserror::Error)]
pub enum AverageError {
    /// There are too few.
    #[error(
        "`{average}` needs {count} checkpoints{scored}, and `{dir}` has {found}: ask for fewer, or keep more while you train \
         (`train.checkpoint.keep_{kind}`)",
        count = .average.count(), scored = if .average.is_best() { " that were evaluated" } else { "" },
        kind = if .average.is_best() { "best" } else { "last" }, dir = .dir.display()
    )]
    TooFew {
        /// What was asked for.
        average: Average,
        /// Folder of the checkpoints.
        dir: PathBuf,
        /// Number of those that count.
        found: usize,
    },
    /// The checkpoints are of different models.
    #[error("`{name}` differs in its shape between `{first}` and `{second}`: they are of different models", first = .first.display(), second = .second.display())]
    Different {
        /// Parameter.
        name: String,
        /// A checkpoint.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Mean of the parameters of several checkpoints.
#[derive(Clone, Debug)]
pub struct Averaged {
    /// Trained parameters by path.
    pub parameters: BTreeMap<String, HostTensor>,
    /// Optimizer steps of the checkpoints, in ascending order.
    pub steps: Vec<u64>,
}

impl Average {
    /// Number of checkpoints.
    pub fn count(self) -> usize {
        match self {
            Self::Last(count) | Self::Best(count) => count,
        }
    }

    /// Whether the metric decides.
    fn is_best(self) -> bool {
        matches!(self, Self::Best(_))
    }

    /// Computes the mean over the checkpoints of a run. `direction` is that of its deciding metric.
    ///
    /// # Errors
    /// When there are fewer checkpoints, one is damaged, or they are of different models.
    pub fn of(self, checkpoints: &Checkpoints, direction: Direction) -> Result<Averaged, AverageError> {
        let mut found = checkpoints.scores();
        if self.is_best() {
            found.retain(|(_, score)| score.is_some());
            // Of equal ones the earlier one, as for the run's best model: the sort is stable.
            let cost = |score: &Option<f64>| score.map_or(f64::INFINITY, |score| direction.as_cost(score));
            found.sort_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)));
        } else {
            found.reverse();
        }
        if found.len() < self.count() {
            return Err(AverageError::TooFew { average: self, dir: checkpoints.dir().to_owned(), found: found.len() });
        }
        let opened = found[..self.count()].iter().map(|(path, _)| Checkpoint::open(path));
        mean(&opened.collect::<Result<Vec<_>, _>>()?)
    }
}

/// Returns the mean over at least one checkpoint. One parameter is read at a time.
fn mean(checkpoints: &[Checkpoint]) -> Result<Averaged, AverageError> {
    let first = &checkpoints[0];
    let mut parameters = BTreeMap::new();
    for name in first.model.names() {
        let HostTensor { shape, data } = first.model.read(&name)?;
        let mut sum: Vec<f64> = data.into_iter().map(f64::from).collect();
        for other in &checkpoints[1..] {
            let tensor = other.model.read(&name)?;
            if tensor.shape != shape {
                let (first, second) = (first.path.clone(), other.path.clone());
                return Err(AverageError::Different { name, first, second });
            }
            sum.iter_mut().zip(tensor.data).for_each(|(sum, value)| *sum += f64::from(value));
        }
        let data = sum.into_iter().map(|sum| (sum / checkpoints.len() as f64) as f32).collect();
        parameters.insert(name, HostTensor { shape, data });
    }
    let mut steps: Vec<u64> = checkpoints.iter().map(|checkpoint| checkpoint.state.step).collect();
    steps.sort_unstable();
    Ok(Averaged { parameters, steps })
}

impl Display for Average {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Last(count) => write!(f, "last:{count}"),
            Self::Best(count) => write!(f, "best:{count}"),
        }
    }
}

impl FromStr for Average {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write `last:5` for the mean of the last five checkpoints, or `best:3`".to_owned();
        let (kind, count) = text.split_once(':').ok_or_else(wrong)?;
        let count = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        match kind {
            "last" => Ok(Self::Last(count)),
            "best" => Ok(Self::Best(count)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Contents, TrainState};

    /// Writes checkpoints with a parameter of these values and with these scores.
    fn saved(dir: &std::path::Path, values: &[(f32, Option<f64>)]) -> Checkpoints {
        let checkpoints = Checkpoints::new(dir.join("checkpoints"));
        for (index, (value, score)) in values.iter().enumerate() {
            let weight = HostTensor { shape: vec![2], data: vec![*value, 2.0 * value] };
            let state = TrainState { step: 10 * (index as u64 + 1), score: *score, ..TrainState::default() };
            let contents = Contents { state, model: [("weight".to_owned(), weight)].into(), ..Contents::default() };
            checkpoints.save(&contents).expect("saved");
        }
        checkpoints
    }

    #[test]
    fn the_last_or_the_best_are_averaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let values = [(1.0, Some(0.5)), (2.0, Some(0.1)), (4.0, None), (9.0, Some(0.2))];
        let checkpoints = saved(dir.path(), &values);
        let mean = |average: Average, direction| {
            let found = average.of(&checkpoints, direction).expect("averaged");
            (found.parameters["weight"].data.clone(), found.steps)
        };
        assert_eq!(mean(Average::Last(2), Direction::Lower), (vec![6.5, 13.0], vec![30, 40]));
        assert_eq!(mean(Average::Best(2), Direction::Lower), (vec![5.5, 11.0], vec![20, 40]));
        assert_eq!(mean(Average::Best(1), Direction::Higher), (vec![1.0, 2.0], vec![10]));
        // One that should not be resumed from does not count.
        let doubtful = saved(&dir.path().join("doubtful"), &values);
        doubtful.doubt_after(30).expect("marked");
        assert_eq!(Average::Last(2).of(&doubtful, Direction::Lower).expect("averaged").steps, [20, 30]);
        // Of equal ones the earlier one.
        let tied = saved(&dir.path().join("tied"), &[(1.0, Some(0.5)), (2.0, Some(0.5))]);
        assert_eq!(Average::Best(1).of(&tied, Direction::Lower).expect("averaged").steps, [10]);
        let refused = Average::Best(4).of(&checkpoints, Direction::Lower).expect_err("three have scores").to_string();
        assert!(refused.contains("`best:4` needs 4 checkpoints that were evaluated") && refused.contains("keep_best"));
        let few = Average::Last(5).of(&checkpoints, Direction::Lower).expect_err("there are four").to_string();
        assert!(few.contains("has 4") && few.contains("keep_last"), "{few}");
    }

    #[test]
    fn checkpoints_of_different_models_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = saved(dir.path(), &[(1.0, None)]);
        let weight = HostTensor { shape: vec![1], data: vec![1.0] };
        let state = TrainState { step: 20, ..TrainState::default() };
        let contents = Contents { state, model: [("weight".to_owned(), weight)].into(), ..Contents::default() };
        checkpoints.save(&contents).expect("saved");
        let refused = Average::Last(2).of(&checkpoints, Direction::Lower).expect_err("other shapes").to_string();
        assert!(refused.contains("`weight` differs in its shape"), "{refused}");
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for average in [Average::Last(5), Average::Best(1)] {
            assert_eq!(average.to_string().parse(), Ok(average));
        }
        for wrong in ["last", "last:", "last:0", "worst:2", "best:-1", "5"] {
            assert!(wrong.parse::<Average>().is_err(), "{wrong}");
        }
    }
}
