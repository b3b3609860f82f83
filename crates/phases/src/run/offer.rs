//! What a trained run can answer, without loading its model.

use super::choice::Choice;
use super::newest::newest_routed;
use crate::backbone::Architecture;
use crate::{Experiment, RunError};
use std::path::Path;

/// What a run can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether its input is text instead of audio.
    pub reads_text: bool,
    /// Whether [`load_whisper`](super::load_whisper) loads its model, for transcripts with times.
    pub is_whisper: bool,
    /// Names of the tasks with a trained model; none in a run without tasks.
    pub tasks: Vec<String>,
    /// Whether its router can choose the task.
    pub has_router: bool,
}

impl Offer {
    /// Returns what the run in `directory` can answer; `None` if it has no trained model yet.
    ///
    /// # Errors
    /// If there is no run, or its configuration cannot be read.
    pub fn of(directory: &Path) -> Result<Option<Self>, RunError> {
        let experiment = Experiment::of_run(directory, &[])?;
        let is_trained = |task: Option<&str>| Choice::of(directory, task, &[]).is_ok();
        let names = experiment.tasks.iter().map(|task| task.name.clone());
        let offer = Self {
            reads_text: experiment.model.backbone.is_text(),
            is_whisper: experiment.model.backbone == Architecture::WHISPER,
            tasks: names.filter(|task| is_trained(Some(task))).collect(),
            has_router: experiment.tasks.len() > 1 && newest_routed(&experiment).is_some(),
        };
        let answers = !offer.tasks.is_empty() || offer.has_router || experiment.tasks.is_empty() && is_trained(None);
        Ok(answers.then_some(offer))
    }
}
