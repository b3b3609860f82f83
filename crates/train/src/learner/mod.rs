//! The training loop.

mod builder;
mod evaluate;
mod feed;
mod lifecycle;
mod load;
mod options;
mod ranks;
mod recovery;
mod rescue;
mod resume;
mod session;
mod step;
mod warm_up;

pub use builder::LearnerBuilder;
pub use session::LAST_LOSS;

use crate::checkpoint::TrainState;
use crate::objective::{Batches, Objective};
use crate::report::Summary;
use crate::saver::Saver;
use crate::stepper::Stepper;
use crate::stopwatch::Section;
use crate::{TrainConfig, TrainError};
use feed::Feed;
use options::RunOptions;
use recovery::{PendingStep, RecoveryPoint, StateBeforeStep};
use session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use undertone_store::DirectoryLock;

/// Trains a model on an objective, and writes logs and checkpoints to a directory.
///
/// [`train`](Self::train) runs to the end over [`Batches`]. [`step`](Self::step) takes one optimizer step on batches
/// that you supply, for training loops of your own.
///
/// Messages are `tracing` events. The phases of a step are spans of level `debug` with the step's number: `load`,
/// `forward`, `backward`, `optimizer`, `evaluate` and `checkpoint`. A span lasts as long as the host is in it, which on
/// an accelerator is shorter than the work.
pub struct Learner<O: Objective> {
    config: TrainConfig,
    options: RunOptions,
    /// Model, optimizer and ranks: everything that computes a step.
    stepper: Stepper<O>,
    state: TrainState,
    recovery: RecoveryPoint,
    /// The last step, while the host has not read the device's decision about it.
    pending: Option<PendingStep>,
    /// Step from which this session was resumed.
    resumed: Option<u64>,
    saver: Saver,
    /// Held from the first read of the directory until training ends.
    lock: Option<Arc<DirectoryLock>>,
}

impl<O: Objective> Learner<O> {
    /// Trains to the end, or to an interrupt. If it stops with an error, the state before the error is saved if
    /// possible, and [`resume`](Self::resume) continues from there once the cause is mended. If the losses were the
    /// error, it continues from the last checkpoint before that.
    ///
    /// # Errors
    /// When data or files fail, the loss is not finite, a trainable parameter never receives a gradient, or another
    /// process trains in the directory.
    pub fn train<B: Batches<Batch = O::Batch>>(&mut self, data: &B) -> Result<Summary, TrainError> {
        let trained = self.run(data).map_err(|error| self.rescued(error));
        // An error on the first rank alone, which writes, ends the others too. It may have much to save.
        self.stepper.process_group.reset_timeout();
        let trained = self.stepper.process_group.all_ok(trained);
        self.lock = None;
        trained
    }

    /// The loop: load → forward → backward → accumulate → unscale → clip → step → log → evaluate → checkpoint.
    fn run<B: Batches<Batch = O::Batch>>(&mut self, data: &B) -> Result<Summary, TrainError> {
        let mut session = self.begin_session(data)?;
        let mut feed = Feed::new(data);
        while self.state.step < session.steps && !self.has_stalled() && !self.is_interrupted() {
            let step = self.state.step + 1;
            let is_due = |every: u64| step == session.steps || (every > 0 && step.is_multiple_of(every));
            let (evaluates, saves) = (is_due(self.config.evaluate.every), is_due(self.config.checkpoint.every));
            let must_know = evaluates || saves || session.logs(step);

            session.watch.begin(session.logs(step));
            let start = StateBeforeStep::of(&self.state);
            self.recovery = RecoveryPoint::BeforeUpdate(start.clone());
            let Some((mut batches, plan)) = self.load(&mut feed, &session.progress)? else { break };
            session.watch.lap(Section::DataWait, &self.stepper.device);
            self.take_step(&mut batches, plan, start, must_know, &mut session)?;
            if self.state.step < step {
                // It was rolled back, or discarded together with the step before.
                continue;
            }
            (self.state.score, self.state.unjudged) = (None, evaluates);
            self.recovery = RecoveryPoint::BetweenSteps;
            if !self.evaluate_and_save(evaluates, saves, &mut session)? {
                break;
            }
        }
        self.end_session(session)
    }

    /// Does what is due after a step. Returns false if early stopping ends the run.
    fn evaluate_and_save(&mut self, evaluates: bool, saves: bool, session: &mut Session) -> Result<bool, TrainError> {
        if evaluates || saves {
            self.stepper.process_group.reset_timeout();
        }
        if evaluates {
            self.evaluate(session)?;
        }
        let stopped = self.has_stalled();
        self.saver.check()?;
        if saves || stopped {
            self.state.seconds = session.seconds();
            self.checkpoint()?;
        }
        if stopped && self.state.step < session.steps {
            let (step, stalled) = (self.state.step, self.state.stalled);
            session.progress.say(&format!("step {step}  no better for {stalled} evaluations: stopping"));
            return Ok(false);
        }
        let process_group = &self.stepper.process_group;
        if evaluates || saves {
            process_group.all_ok(Ok::<(), TrainError>(()))?;
        }
        // The first step of a session may compile kernels for minutes. By now all ranks have taken it.
        process_group.set_timeout(self.config.rank_timeout);
        Ok(true)
    }

    /// Whether training ends after this step. Ranks end together, and decide it when they load batches.
    fn is_interrupted(&self) -> bool {
        self.stepper.process_group.is_alone() && self.is_asked_to_stop()
    }

    /// Whether this process was interrupted.
    fn is_asked_to_stop(&self) -> bool {
        self.options.interrupt.load(Ordering::Relaxed)
    }

    /// Number of optimizer steps taken, including earlier sessions.
    pub fn steps(&self) -> u64 {
        self.state.step
    }

    /// The objective.
    pub fn objective(&self) -> &O {
        &self.stepper.objective
    }

    /// The current model, with gradients.
    pub fn model(&self) -> &O::Model {
        self.stepper.model()
    }
}
