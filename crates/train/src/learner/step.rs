//! One optimizer step: its batches, its gradients, and what becomes of it.

use super::rescue::{StepStart, Within};
use super::{Learner, MODEL, Session};
use crate::checkpoint::TrainState;
use crate::error::io;
use crate::guard::{Trouble, Verdict};
use crate::objective::{BatchStream, Batches, BoxError, LossTerm, Objective};
use crate::stopwatch::{Part, Stopwatch};
use crate::tally::StepTerm;
use crate::{GradientSum, Progress, TrainError, Work};
use burn::tensor::Tensor;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use undertone_ops::{StepControl, StepNumbers, StepReading, StepRules, read, runs_ahead};
use undertone_store::parameter_infos;

/// After this many steps a trainable parameter without a gradient is a mistake, not a rare branch.
const GRADIENT_PATIENCE: u64 = 20;

/// An epoch may be without a batch where batches are cut by length and incomplete ones left out, but not so many in a row.
const EMPTY_EPOCHS: usize = 100;

/// What an optimizer step found.
#[derive(Default)]
pub(super) struct StepReport {
    /// The step, from 1.
    pub step: u64,
    pub terms: Vec<StepTerm>,
    pub gauges: Vec<(&'static str, f64)>,
    pub loss: f64,
    pub norm: f64,
    pub rate: f64,
    pub samples: usize,
    pub work: Work,
    /// What a person calls its samples.
    pub names: Vec<String>,
}

/// The loss of a step where it was computed.
#[derive(Default)]
pub(super) struct StepLoss {
    /// Of each term its mean over the step, `[1]`, without autodiff.
    means: Vec<Tensor<1>>,
    /// The same times the weight that each batch gave it.
    weighted: Vec<Tensor<1>>,
}

/// A step whose numbers the host has not seen. Whether its parameters moved was decided on the device.
pub(super) struct Unsettled {
    pub report: StepReport,
    pub reading: StepReading,
    /// What the step changed of the state before they moved.
    pub start: StepStart,
}

/// What became of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken,
    Skipped,
    RolledBack,
}

impl<O: Objective> Learner<O> {
    /// The batches of one optimizer step; at the end of an epoch what is left of it, then the next epoch begins. None where
    /// they fail at an interruption: the step is then still to be taken, from its first batch on.
    pub(super) fn load<'a, B: Batches<Batch = O::Batch>>(
        &mut self,
        batches: &'a B,
        stream: &mut BatchStream<'a, O::Batch>,
        progress: &Progress,
    ) -> Result<Option<Vec<O::Batch>>, TrainError> {
        let begin = (self.state.epoch, self.state.cursor);
        let (mut window, mut empty) = (Vec::new(), 0);
        while window.len() < self.config.accumulation {
            match stream.next() {
                Some(Ok((next, batch))) => {
                    window.push(batch);
                    self.state.cursor = next;
                }
                Some(Err(error)) => {
                    self.gives_up(error, progress)?;
                    (self.state.epoch, self.state.cursor) = begin;
                    return Ok(None);
                }
                None => {
                    self.state.epoch += 1;
                    self.state.cursor = 0;
                    *stream = batches.epoch(self.state.epoch, 0);
                    if !window.is_empty() {
                        break;
                    }
                    empty += 1;
                    if empty > EMPTY_EPOCHS {
                        return Err(TrainError::NoData);
                    }
                }
            }
        }
        Ok(Some(window))
    }

    /// At an interruption, leaves it to the next session what this error of data is.
    pub(super) fn gives_up(&self, error: BoxError, progress: &Progress) -> Result<(), TrainError> {
        if !self.interrupt.load(Ordering::Relaxed) {
            return Err(TrainError::Data(error));
        }
        progress.say(&format!("step {}  interrupted: {error}", self.state.step));
        Ok(())
    }

    /// Gradients of the window's mean loss: each term's sum over the window by its count over the window. The loss itself is
    /// still to be read.
    pub(super) fn forward_backward(
        &self,
        window: &mut [O::Batch],
        watch: &mut Stopwatch,
    ) -> Result<(GradientSum, StepLoss, StepReport), TrainError> {
        let mut totals: Vec<f64> = Vec::new();
        for batch in window.iter() {
            let counts = self.objective.counts(batch);
            if totals.is_empty() {
                totals.resize(counts.len(), 0.0);
            }
            if totals.len() != counts.len() {
                return Err(TrainError::Terms(totals.len(), counts.len()));
            }
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        let scale = self.state.loss_scale.map_or(1.0, |scale| scale.scale);
        let mut gradients = GradientSum::of_scaled_loss(scale);
        let names = window.iter().flat_map(|batch| self.objective.names(batch)).collect();
        let mut report = StepReport { step: self.state.step + 1, names, ..StepReport::default() };
        let mut found = StepLoss::default();
        for batch in window.iter_mut() {
            let input = self.objective.upload(batch, &self.device).map_err(TrainError::Data)?;
            watch.lap(Part::Transfer, &self.device);
            let terms = self.objective.losses(self.model(), batch, input, &self.device).map_err(TrainError::Data)?;
            check_terms(&terms, &totals, &report.terms)?;
            if report.terms.is_empty() {
                let term = |(term, count): (&LossTerm, &f64)| StepTerm {
                    name: term.name.clone(),
                    mean: 0.0,
                    weighted: 0.0,
                    count: *count,
                };
                report.terms = terms.iter().zip(&totals).map(term).collect();
            }
            let mut loss: Option<Tensor<1>> = None;
            let mut means = Vec::with_capacity(terms.len());
            for (LossTerm { weight, sum, .. }, count) in terms.into_iter().zip(&totals) {
                let mean = sum.div_scalar(count.max(1.0));
                means.push((weight, mean.clone().inner()));
                let share = mean.mul_scalar(weight * scale);
                loss = Some(loss.map_or(share.clone(), |loss| loss + share));
            }
            watch.lap(Part::Forward, &self.device);
            if let Some(loss) = loss {
                gradients.add(self.model(), loss.backward());
            }
            if self.decides_ahead() {
                found.add(means);
            } else {
                report.add(means);
            }
            watch.lap(Part::Backward, &self.device);
            report.samples += self.objective.samples(batch);
            report.work += self.objective.work(self.model(), batch);
        }
        report.gauges = window.last().map(|batch| self.objective.gauges(batch)).unwrap_or_default();
        Ok((gradients, found, report))
    }

    /// Whether the device itself decides if parameters move, so that it need not wait for the host to have seen the loss.
    pub(super) fn decides_ahead(&self) -> bool {
        runs_ahead(&self.device)
    }

    /// Moves the parameters, if the numbers of the step allow it. What was found and decided is known at once where the host
    /// decides; else the step is [`unsettled`](Learner::unsettled).
    pub(super) fn step(
        &mut self,
        mut gradients: GradientSum,
        found: StepLoss,
        mut report: StepReport,
        start: StepStart,
        progress: &Progress,
    ) -> Result<Option<(Outcome, StepReport)>, TrainError> {
        if self.decides_ahead() {
            self.step_ahead(gradients, found, report, start);
            return Ok(None);
        }
        report.norm = gradients.clip(self.config.optimizer.clip_norm);
        let outcome = self.decide(&report, progress)?;
        self.within = Within::Moving;
        if outcome == Outcome::Taken {
            self.move_parameters(&mut gradients, report.rate, None);
        }
        Ok(Some((outcome, report)))
    }

    /// Moves the parameters if the device finds that the numbers of the step allow it.
    fn step_ahead(&mut self, mut gradients: GradientSum, found: StepLoss, report: StepReport, start: StepStart) {
        let rules = StepRules {
            gradient_scale: gradients.scale(),
            clip_norm: self.config.optimizer.clip_norm,
            highest_loss: self.config.guard.highest(&self.state.guard),
        };
        let squares = gradients.squares().unwrap_or_else(|| Tensor::zeros([1], &self.device.clone().inner()));
        let control = found.control(squares, rules);
        // Before the parameters move, so that it is not behind them.
        let reading = control.read_behind();
        self.within = Within::Moving;
        self.move_parameters(&mut gradients, report.rate, Some(&control));
        self.unsettled = Some(Unsettled { report, reading, start });
    }

    /// Takes the optimizer's step, and that of the averages.
    fn move_parameters(&mut self, gradients: &mut GradientSum, rate: f64, control: Option<&StepControl>) {
        // Moved, not cloned: a parameter that nothing else holds is changed where it lies.
        let model = self.model.take().expect(MODEL);
        self.model = Some(self.optimizer.controlled_step(model, gradients, rate, control));
        if let Some(ema) = &mut self.ema {
            ema.update(self.model.as_ref().expect(MODEL), self.state.step + 1, control);
        }
    }

    /// Hears of a step that the device has decided on, `now` with nothing else for it to do meanwhile; does what is to be done
    /// about it, and writes it down. After an error the state is that before the step.
    pub(super) fn settle(
        &mut self,
        Unsettled { mut report, reading, start }: Unsettled,
        now: bool,
        session: &mut Session,
    ) -> Result<Outcome, TrainError> {
        // Where the device fails here, it is not known whether the parameters are those before the step or after it.
        self.within = Within::Moving;
        let numbers = if now { reading.finish_now() } else { reading.finish() };
        report.fill(&numbers);
        if !numbers.taken {
            self.forget_step(report.step);
        }
        self.within = Within::Begun(start);
        let outcome = self.decide(&report, &session.progress)?;
        self.within = Within::Moving;
        if outcome == Outcome::RolledBack {
            session.log.rewind(self.state.step + 1).map_err(io(&self.dir))?;
        } else {
            self.log(session, &report)?;
        }
        self.within = Within::Nothing;
        Ok(outcome)
    }

    /// Takes back what the last step counted, in which no parameter moved.
    pub(super) fn forget_step(&mut self, step: u64) {
        self.optimizer.take_back();
        if let Some(ema) = &mut self.ema {
            ema.take_back(step);
        }
    }

    /// Whether a step may move the parameters, and what is done if not.
    pub(super) fn decide(&mut self, report: &StepReport, progress: &Progress) -> Result<Outcome, TrainError> {
        let StepReport { step, loss, norm, .. } = *report;
        if let Some(scale) = &mut self.state.loss_scale {
            if loss.is_finite() && norm.is_finite() {
                scale.good(&self.config.loss_scale);
            } else if scale.overflow() {
                return Ok(Outcome::Skipped);
            }
        }
        let (verdict, usual) = self.config.guard.judge(&mut self.state.guard, loss, norm);
        if verdict == Verdict::Go {
            return Ok(Outcome::Taken);
        }
        let trouble = Trouble { step, loss, norm, usual, samples: report.names.clone() };
        match verdict {
            Verdict::Go => Ok(Outcome::Taken),
            Verdict::Warn => {
                progress.say(&trouble.to_string());
                Ok(Outcome::Taken)
            }
            Verdict::Skip => {
                progress.say(&format!("{trouble}: the step is skipped"));
                Ok(Outcome::Skipped)
            }
            Verdict::Rollback => self.roll_back(&trouble, progress),
            Verdict::Stop => Err(TrainError::Guard { trouble, incidents: self.state.guard.incidents }),
        }
    }

    /// Goes back to the last checkpoint and leaves out the data up to here. Without a checkpoint the step is skipped.
    pub(super) fn roll_back(&mut self, trouble: &Trouble, progress: &Progress) -> Result<Outcome, TrainError> {
        self.saver.wait()?;
        self.within = Within::Moving;
        let Some(checkpoint) = self.checkpoints().newest().0 else {
            progress.say(&format!("{trouble}: there is no checkpoint to go back to, so the step is skipped"));
            return Ok(Outcome::Skipped);
        };
        let here = self.state.clone();
        self.restore(checkpoint)?;
        progress.say(&format!("{trouble}: back to step {}, and on with the data after this", self.state.step));
        let TrainState { epoch, cursor, loss_scale, .. } = here;
        let incidents = here.guard.incidents;
        self.state = TrainState { epoch, cursor, loss_scale, ..self.state.clone() };
        self.state.guard.incidents = incidents;
        Ok(Outcome::RolledBack)
    }

    pub(super) fn check_gradients(&self, without: &BTreeSet<String>, steps: u64) -> Result<(), TrainError> {
        let taken = self.state.step + 1;
        if without.is_empty() || taken < GRADIENT_PATIENCE.min(steps) {
            return Ok(());
        }
        let mut names: Vec<String> = without.iter().take(5).map(|name| format!("`{name}`")).collect();
        if without.len() > names.len() {
            names.push(format!("and {} more", without.len() - names.len()));
        }
        Err(TrainError::NoGradient { steps: taken, names: names.join(", ") })
    }

    /// Trainable parameters that no gradient has reached; those with optimizer state had one in an earlier session.
    pub(super) fn without_gradient(&self) -> BTreeSet<String> {
        let trainable = parameter_infos(self.model()).into_iter().filter(|p| p.trainable).map(|p| p.name);
        trainable.filter(|name| !self.optimizer.has_state(name)).collect()
    }
}

impl StepReport {
    /// Adds what the terms of one batch were, by their weights.
    fn add(&mut self, means: Vec<(f64, Tensor<1>)>) {
        for ((weight, mean), term) in means.into_iter().zip(&mut self.terms) {
            let mean = f64::from(read(mean)[0]);
            term.mean += mean;
            term.weighted += weight * mean;
            self.loss += weight * mean;
        }
    }

    /// Takes over what the device found.
    pub(super) fn fill(&mut self, numbers: &StepNumbers) {
        (self.loss, self.norm) = (numbers.loss, numbers.norm);
        let (means, weighted) = numbers.terms.split_at(self.terms.len());
        for ((term, mean), weighted) in self.terms.iter_mut().zip(means).zip(weighted) {
            (term.mean, term.weighted) = (*mean, *weighted);
        }
    }
}

impl StepLoss {
    fn add(&mut self, means: Vec<(f64, Tensor<1>)>) {
        let (weights, means): (Vec<f64>, Vec<Tensor<1>>) = means.into_iter().unzip();
        let weighted = means.iter().zip(weights).map(|(mean, weight)| mean.clone().mul_scalar(weight));
        self.weighted = sums(std::mem::take(&mut self.weighted), weighted.collect());
        self.means = sums(std::mem::take(&mut self.means), means);
    }

    /// Of means and weighted means, the latter of which make the loss.
    fn control(self, squares: Tensor<1>, rules: StepRules) -> StepControl {
        let weights: Vec<f64> = self.means.iter().map(|_| 0.0).chain(self.weighted.iter().map(|_| 1.0)).collect();
        StepControl::new(self.means.into_iter().chain(self.weighted).collect(), &weights, squares, rules)
    }
}

fn sums(sums: Vec<Tensor<1>>, more: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    if sums.is_empty() { more } else { sums.into_iter().zip(more).map(|(sum, x)| sum + x).collect() }
}

/// Each loss term has a count and a name of its own, and the same ones in every batch of a step.
fn check_terms(terms: &[LossTerm], counts: &[f64], before: &[StepTerm]) -> Result<(), TrainError> {
    let names =
        |names: &mut dyn Iterator<Item = &str>| names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let all = || names(&mut terms.iter().map(|term| &*term.name));
    if terms.len() > counts.len() {
        let uncounted = names(&mut terms[counts.len()..].iter().map(|term| &*term.name));
        return Err(TrainError::Uncounted { counts: counts.len(), terms: all(), uncounted });
    }
    if terms.len() < counts.len() {
        return Err(TrainError::Unheard { counts: counts.len(), terms: all(), number: terms.len() });
    }
    let twice = (1..terms.len()).find(|i| terms[..*i].iter().any(|term| term.name == terms[*i].name));
    if let Some(twice) = twice {
        return Err(TrainError::SameName(terms[twice].name.to_string()));
    }
    if !before.is_empty() && before.iter().zip(terms).any(|(before, term)| before.name != term.name) {
        return Err(TrainError::Renamed(names(&mut before.iter().map(|term| &*term.name)), all()));
    }
    Ok(())
}
