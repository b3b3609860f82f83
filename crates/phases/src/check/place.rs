//! What is looked at, and how.

use crate::config::TaskConfig;
use crate::{Progress, SourceConfig, Split};

/// How thoroughly data is looked at.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// Whether recordings are decoded: what is silent, clipped or the same shows only then.
    pub audio: bool,
    /// Who watches.
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
        Some(self.task.name.as_str()).filter(|_| !self.task.is_whole())
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        self.task_name().map_or(String::new(), |task| format!("{task}/")) + self.split.name()
    }

    /// Its sources, with what messages call them.
    pub fn named(&self) -> impl Iterator<Item = (String, &SourceConfig)> {
        let single = self.sources.len() == 1;
        let name = move |index| if single { self.name() } else { format!("{}[{index}]", self.name()) };
        self.sources.iter().enumerate().map(move |(index, source)| (name(index), source))
    }
}
