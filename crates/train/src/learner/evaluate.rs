//! Evaluation, and export of the best model.

use super::Learner;
use super::recovery::RecoveryPoint;
use super::session::Session;
use crate::checkpoint::TrainState;
use crate::config::Directions;
use crate::exported::{BEST, BEST_EMA, Exported};
use crate::objective::{Evaluation, Objective};
use crate::{Progress, TrainError};
use burn::module::Module;
use std::collections::BTreeMap;
use undertone_metrics::{Direction, Interval};
use undertone_store::write_directory;

/// Confidence intervals by metric.
type Intervals = BTreeMap<String, Interval>;

impl<O: Objective> Learner<O> {
    /// Evaluates the model and the average of its weights, logs the metrics, and exports the model if it is the best so
    /// far. If the data fails after an interrupt, it records only that this evaluation is still to be done.
    pub(super) fn evaluate(&mut self, session: &mut Session) -> Result<(), TrainError> {
        let _span = tracing::debug_span!("evaluate", step = self.state.step).entered();
        let (model, step) = (self.model().valid(), self.state.step);
        let judge = |model: &O::Model| self.stepper.objective.evaluate(model, &self.config.evaluate.metrics);
        let evaluated = judge(&model).and_then(|found| {
            // Before the first step there is no average.
            let averaged = self.stepper.ema.as_ref().filter(|_| step > 0).map(|ema| ema.of(model.clone()));
            let of_average = averaged.as_ref().map(judge).transpose()?;
            Ok((found, averaged.zip(of_average)))
        });
        self.state.unjudged = true;
        let own = (evaluated.as_ref().err().map(ToString::to_string), self.is_asked_to_stop());
        let received = self.stepper.process_group.all_gather(own)?;
        let interrupted = received.iter().any(|(_, interrupted)| *interrupted);
        let failed = received.into_iter().enumerate().find_map(|(rank, (message, _))| Some((rank, message?)));
        let (evaluation, average) = match (evaluated, failed) {
            (Ok(evaluated), None) => evaluated,
            (Err(error), _) => return self.gives_up(error, interrupted, &session.progress),
            (Ok(_), Some((rank, message))) => {
                let error = TrainError::Rank { rank: self.stepper.process_group.name(rank), message };
                return self.gives_up(error.into(), interrupted, &session.progress);
            }
        };
        let watched = self.watched(&evaluation)?;
        let score = self.score(&evaluation);
        if score.is_none() && step == 0 {
            let metric = &self.config.checkpoint.metric;
            session.progress.warn(&format!(
                "the validation data gives no `{metric}`, by which the best model is chosen: if that stays so, the model of the \
                 last step is exported; see that it has what `{metric}` is measured by, or set another `checkpoint.metric`"
            ));
        }
        let best = self.export_if_best(&model, BEST, self.state.best, &evaluation)?;
        let mut best_ema = self.state.best_ema;
        if let Some((model, evaluation)) = &average {
            best_ema = self.export_if_best(model, BEST_EMA, best_ema, evaluation)?;
        }
        self.recovery = RecoveryPoint::DuringUpdate;
        session.record(step, "valid", &evaluation)?;
        if let Some((_, evaluation)) = &average {
            session.record(step, "valid_ema", evaluation)?;
        }
        let TrainState { reference, stalled, .. } = &mut self.state;
        self.config.observe(watched, reference, stalled);
        self.state = TrainState {
            score,
            best,
            best_ema,
            latest: Some(finite(evaluation)),
            unjudged: false,
            ..std::mem::take(&mut self.state)
        };
        self.recovery = RecoveryPoint::BetweenSteps;
        Ok(())
    }

    /// Returns the metric that early stopping watches, with the sign that makes lower better, if it is finite.
    pub(super) fn watched(&self, evaluation: &Evaluation) -> Result<Option<f64>, TrainError> {
        let metric = self.config.watched();
        if self.config.early_stopping.is_some() && !evaluation.metrics.contains_key(metric) {
            let found: Vec<String> = evaluation.metrics.keys().map(|name| format!("`{name}`")).collect();
            return Err(TrainError::NoMetric { metric: metric.to_owned(), found: found.join(", ") });
        }
        let direction = self.directions()?.watched;
        let cost = direction.and_then(|direction| Some(direction.as_cost(*evaluation.metrics.get(metric)?)));
        Ok(cost.filter(|cost| cost.is_finite()))
    }

    /// Exports a model to a folder of the run if it scored better than the best one there, or the same as long as none is better than
    /// before the first step: a metric that does not move tells nothing, and a trained model is what the run is for. Returns the best
    /// score and its step.
    pub(super) fn export_if_best(
        &self,
        model: &O::Model,
        folder: &str,
        best: Option<(f64, u64)>,
        evaluation: &Evaluation,
    ) -> Result<Option<(f64, u64)>, TrainError> {
        let deciding = self.directions()?.deciding;
        let untrained = self.state.before.as_ref().and_then(|before| self.score(before));
        let is_best = |score: &f64| {
            best.is_none_or(|(best, _)| deciding.is_better(*score, best) || *score == best && untrained == Some(best))
        };
        let Some(value) = self.score(evaluation).filter(is_best) else { return Ok(best) };
        if !self.stepper.process_group.is_main_process() {
            return Ok(Some((value, self.state.step)));
        }
        self.export(model, folder, Some(value), &evaluation.intervals)?;
        Ok(Some((value, self.state.step)))
    }

    /// Exports the model of the last step if no evaluation could determine the best, so that a finished run has a
    /// model.
    pub(super) fn export_if_none_is_best(&self, progress: &Progress) -> Result<(), TrainError> {
        if !self.stepper.process_group.is_main_process() {
            return Ok(());
        }
        let model = self.model().valid();
        if self.state.best.is_none() {
            let metric = &self.config.checkpoint.metric;
            progress
                .warn(&format!("no evaluation found a `{metric}`: the model of the last step is exported as the best"));
            self.export(&model, BEST, None, &Intervals::new())?;
        }
        match &self.stepper.ema {
            Some(ema) if self.state.best_ema.is_none() => {
                self.export(&ema.of(model), BEST_EMA, None, &Intervals::new())
            }
            _ => Ok(()),
        }
    }

    fn export(
        &self,
        model: &O::Model,
        folder: &str,
        value: Option<f64>,
        intervals: &Intervals,
    ) -> Result<(), TrainError> {
        self.check_in_place()?;
        let (metric, step) = (self.config.checkpoint.metric.clone(), self.state.step);
        let exported = Exported { metric, value, step, intervals: intervals.clone(), files: Vec::new() };
        write_directory(&self.options.dir.join(folder), |folder| {
            self.stepper.objective.export(model, folder).map_err(TrainError::Export)?;
            Ok(exported.write(folder)?)
        })
    }

    /// Returns the deciding metric, if it is finite.
    pub(super) fn score(&self, evaluation: &Evaluation) -> Option<f64> {
        evaluation.metrics.get(&self.config.checkpoint.metric).copied().filter(|score| score.is_finite())
    }

    /// Directions of the deciding metrics.
    pub(super) fn directions(&self) -> Result<Directions, TrainError> {
        Ok(self.config.directions(|metric| self.stepper.objective.direction(metric))?)
    }

    /// Directions of the metrics of an evaluation, as far as the objective knows them.
    pub(super) fn directions_of(&self, evaluation: &Evaluation) -> BTreeMap<String, Direction> {
        let names = evaluation.metrics.keys();
        names.filter_map(|name| Some((name.clone(), self.stepper.objective.direction(name)?))).collect()
    }
}

/// Removes metrics that are not finite: JSON has no value for a rate without references.
fn finite(mut evaluation: Evaluation) -> Evaluation {
    evaluation.metrics.retain(|_, value| value.is_finite());
    evaluation
}
