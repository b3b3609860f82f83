//! What needs no model: the answers that a task's metrics are to be compared with.

use super::batch::{TaskDataset, TaskSamples};
use super::evaluation_result::EvaluationResult;
use super::scoring::Scoring;
use crate::TextNormalizer;
use crate::config::{LOSS, TaskConfig};
use undertone_tasks::TrivialBaseline;
use undertone_train::BoxError;

/// The scores on `judged` of answers that need no model, of the tasks that have such; what those have to know, they count
/// in `train`.
pub(super) fn evaluate_baseline(
    trivial: TrivialBaseline,
    tasks: &[TaskConfig],
    train: &TaskDataset,
    result: &TaskDataset,
) -> Result<EvaluationResult, BoxError> {
    let mut scoring = Scoring::new(tasks, &TextNormalizer::None);
    let mut answered = Vec::new();
    for (task, (train, result)) in train.tasks().iter().zip(result.tasks()).enumerate() {
        let (TaskSamples::Text(train), TaskSamples::Text(result)) = (train, result) else { continue };
        let Some(answer) = tasks[task].head.baseline(trivial, train.samples()) else { continue };
        answered.push(&tasks[task].name);
        for sample in result.samples() {
            scoring.add_text(task, sample, Some(&answer(sample)))?;
        }
    }
    let mut result = scoring.finish()?;
    result.tasks.retain(|name, _| answered.contains(&name));
    // What needs no model gives no probabilities.
    for metrics in result.tasks.values_mut() {
        metrics.remove(LOSS);
    }
    Ok(result)
}
