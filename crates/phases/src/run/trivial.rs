//! What needs no model: the answers that a task's metrics are to be compared with.

use super::batch::{TaskDataset, TaskSamples};
use super::judged::Judged;
use super::scoring::Scoring;
use crate::TextNormalizer;
use crate::config::{LOSS, TaskConfig};
use undertone_tasks::Trivial;
use undertone_train::BoxError;

/// The scores on `judged` of answers that need no model, of the tasks that have such; what those have to know, they count
/// in `train`.
pub(super) fn judge_trivial(
    trivial: Trivial,
    tasks: &[TaskConfig],
    train: &TaskDataset,
    judged: &TaskDataset,
) -> Result<Judged, BoxError> {
    let mut scoring = Scoring::new(tasks, &TextNormalizer::None);
    let mut answered = Vec::new();
    for (task, (train, judged)) in train.tasks().iter().zip(judged.tasks()).enumerate() {
        let (TaskSamples::Text(train), TaskSamples::Text(judged)) = (train, judged) else { continue };
        let Some(answer) = tasks[task].head.trivial(trivial, train.samples()) else { continue };
        answered.push(&tasks[task].name);
        for sample in judged.samples() {
            scoring.add_text(task, sample, Some(&answer(sample)))?;
        }
    }
    let mut judged = scoring.finish()?;
    judged.tasks.retain(|name, _| answered.contains(&name));
    // What needs no model gives no probabilities.
    for metrics in judged.tasks.values_mut() {
        metrics.remove(LOSS);
    }
    Ok(judged)
}
