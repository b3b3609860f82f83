//! Options of the check, and the splits that it examines.

use super::found::Found;
use super::report::{ProblemKind, Severity};
use crate::config::TaskConfig;
use crate::{Experiment, Progress, SourceConfig, Split};

/// Options of the check.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// Whether recordings are decoded: only then silent, clipped and duplicate audio is found.
    pub audio: bool,
    /// Receiver of progress.
    pub progress: &'a dyn Progress,
}

/// A split of the experiment, or of one of its tasks.
pub(crate) struct Place<'a> {
    pub task: &'a TaskConfig,
    pub split: Split,
    pub sources: Vec<SourceConfig>,
    pub seed: u64,
}

impl Place<'_> {
    pub fn training(&self) -> bool {
        self.split == Split::Train
    }

    pub fn task_name(&self) -> Option<&str> {
        self.task.label()
    }

    /// Returns the name in messages.
    pub fn name(&self) -> String {
        self.task.part(self.split.name())
    }

    /// Returns its sources, with their names in messages.
    pub fn named(&self) -> impl Iterator<Item = (String, &SourceConfig)> {
        let single = self.sources.len() == 1;
        let name = move |index| if single { self.name() } else { format!("{}[{index}]", self.name()) };
        self.sources.iter().enumerate().map(move |(index, source)| (name(index), source))
    }
}

/// Returns every split that training or evaluation of the tasks reads.
pub(crate) fn places<'a>(experiment: &Experiment, tasks: &'a [TaskConfig]) -> Vec<Place<'a>> {
    let places = tasks.iter().flat_map(|task| {
        let (splits, seed) = (task.data.splits(), task.seed(experiment.seed));
        splits.all().filter_map(move |split| {
            Some(Place { task, split, sources: splits.sources(split)?, seed: split.seed(seed) })
        })
    });
    places.collect()
}

/// A source that is examined.
pub(super) struct Look<'a> {
    /// Its split.
    pub place: &'a Place<'a>,
    /// Its name in messages.
    pub at: &'a str,
    /// Problems found so far.
    pub found: &'a mut Found,
}

impl Look<'_> {
    /// Adds a problem: see [`Found::add`].
    pub fn add(&mut self, severity: Severity, kind: ProblemKind, of: usize, samples: impl IntoIterator<Item = String>) {
        self.found.add(severity, kind, self.at, of, samples);
    }
}
