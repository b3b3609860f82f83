//! Trivial baselines: answers without a model, for comparison with a task's metrics.

use super::batch::TaskDataset;
use super::evaluation_result::EvaluationResult;
use super::scoring::Scoring;
use crate::TextNormalizer;
use crate::config::{LOSS, TaskConfig};
use undertone_tasks::TrivialBaseline;
use undertone_train::BoxError;

/// Scores the answers of a trivial baseline on the samples in `result`, for the tasks that have one. Statistics that it
/// needs come from `train`.
pub(super) fn evaluate_baseline(
    trivial: TrivialBaseline,
    tasks: &[TaskConfig],
    train: &TaskDataset,
    result: &TaskDataset,
) -> Result<EvaluationResult, BoxError> {
    let mut scoring = Scoring::new(tasks, &TextNormalizer::None);
    let mut answered = Vec::new();
    for (task, (train, result)) in train.tasks().iter().zip(result.tasks()).enumerate() {
        let (Some(train), Some(result)) = (train.texts(), result.texts()) else { continue };
        let Some(answer) = tasks[task].head.baseline(trivial, train.samples()) else { continue };
        answered.push(&tasks[task].name);
        for sample in result.samples() {
            scoring.add_text(task, sample, Some(&answer(sample)))?;
        }
    }
    let mut result = scoring.finish()?;
    result.tasks.retain(|name, _| answered.contains(&name));
    result.scored.retain(|task| answered.contains(&&task.name));
    // Without a model there are no probabilities, so there is no loss.
    for metrics in result.tasks.values_mut() {
        metrics.remove(LOSS);
    }
    Ok(result)
}
