//! Options of the check, and the splits that it examines.

use crate::config::TaskConfig;
use crate::{Progress, SourceConfig, Split};

/// Options of the check.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// Whether recordings are decoded: only then silent, clipped and duplicate audio is found.
    pub audio: bool,
    /// Receiver of progress.
    pub progress: &'a dyn Progress,
}

/// A split of the experiment, or of one of its tasks.
pub(super) struct Place<'a> {
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
