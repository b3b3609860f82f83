//! The training loop.

mod batch;
mod builder;
mod evaluate;
mod lifecycle;
mod load;
mod loss_terms;
mod ranks;
mod recovery;
mod rescue;
mod resume;
mod session;
mod step;
mod step_batches;
mod step_report;
mod warm_up;
mod workers;

pub use builder::LearnerBuilder;
pub use session::LAST_LOSS;
pub use step_report::{StepOutcome, StepReport};

use crate::checkpoint::TrainState;
use crate::ema::Ema;
use crate::gradient_coverage::GradientCoverage;
use crate::gradients::Overlap;
use crate::objective::{Batches, Objective};
use crate::process_group::ProcessGroup;
use crate::report::Summary;
use crate::saver::Saver;
use crate::stopwatch::Section;
use crate::{Display, Optimizer, Precision, TrainConfig, TrainError};
use burn::tensor::Device;
use recovery::{RecoveryPoint, StateBeforeStep};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use step_batches::StepBatches;
use step_report::PendingStep;
use undertone_store::DirectoryLock;
use workers::Concurrency;

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
    /// Precision that the configuration asks for. `config.compute` is the one that the device has.
    asked: Precision,
    objective: O,
    /// Absent only during the optimizer's update.
    model: Option<O::Model>,
    device: Device,
    optimizer: Optimizer,
    ema: Option<Ema>,
    state: TrainState,
    recovery: RecoveryPoint,
    /// The last step, while the host has not read the device's decision about it.
    pending: Option<PendingStep>,
    /// Parameters that gradients have reached in this session; created in its first step.
    coverage: Option<GradientCoverage>,
    /// Order in which the batches of a step are computed in this session.
    concurrency: Concurrency,
    /// Plan for sending the gradients of this session's steps to other ranks.
    overlap: Overlap,
    /// Step from which this session was resumed.
    resumed: Option<u64>,
    saver: Saver,
    process_group: ProcessGroup,
    dir: PathBuf,
    /// Held from the first read of the directory until training ends.
    lock: Option<Arc<DirectoryLock>>,
    saves_on_error: bool,
    name: String,
    configuration: Option<String>,
    display: Display,
    interrupt: Arc<AtomicBool>,
}

const MODEL: &str = "the learner has its model between optimizer steps";

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
        self.process_group.reset_timeout();
        let trained = self.process_group.all_ok(trained);
        self.lock = None;
        trained
    }

    /// The loop: load → forward → backward → accumulate → unscale → clip → step → log → evaluate → checkpoint.
    fn run<B: Batches<Batch = O::Batch>>(&mut self, data: &B) -> Result<Summary, TrainError> {
        let mut session = self.begin_session(data)?;
        let mut epoch_batches = self.epoch_batches(data);
        while self.state.step < session.steps && !self.has_stalled() && !self.is_interrupted() {
            session.watch.begin(session.logs(self.state.step + 1));
            let mut start = StateBeforeStep::of(&self.state);
            self.recovery = RecoveryPoint::BeforeUpdate(start.clone());

            let Some(StepBatches { mut batches, plan }) = self.load(data, &mut epoch_batches, &session.progress)?
            else {
                break;
            };
            session.watch.lap(Section::DataWait, &self.device);

            // Forward and backward pass of each batch of the step; gradients are accumulated, over all ranks.
            let computed = self.forward_backward_accumulate(&mut batches, plan, &mut session.watch);
            let mut computed = self.share_out(computed)?;
            if let Some(ranks) = computed.ranks.take() {
                session.watch.lap_ranks(ranks, &self.device);
            }
            self.check_coverage(&computed, session.steps)?;
            computed.report.rate = self.config.optimizer.rate(self.state.step, session.steps);

            // While the host waits for the loss of the step before, the device computes this one.
            if !self.finish_step_before(&mut start, &mut session)? {
                // This step began with parameters, or with a loss scale, that are no longer valid.
                epoch_batches = self.epoch_batches(data);
                continue;
            }
            let samples = (computed.report.samples, computed.report.work);
            let decided = self.unscale_clip_step(computed, start, &session.progress)?;
            if !self.count_and_log(decided, samples, &mut session)? {
                continue;
            }
            let last = self.state.step == session.steps;
            let judged = last || due(self.state.step, self.config.evaluate.every);
            let saved = last || due(self.state.step, self.config.checkpoint.every);
            if (judged || saved || session.logs(self.state.step))
                && self.finish_now(&mut session)? == Some(StepOutcome::RolledBack)
            {
                epoch_batches = self.epoch_batches(data);
                continue;
            }
            (self.state.score, self.state.unjudged) = (None, judged);
            self.recovery = RecoveryPoint::BetweenSteps;
            if judged || saved {
                self.process_group.reset_timeout();
            }
            if judged {
                self.evaluate(&mut session)?;
            }
            let stopped = self.has_stalled();
            self.saver.check()?;
            if saved || stopped {
                self.state.seconds = session.seconds();
                self.checkpoint()?;
            }
            if stopped && !last {
                self.say_stalled(&session.progress);
                break;
            }
            if judged || saved {
                self.process_group.all_ok(Ok::<(), TrainError>(()))?;
            }
            // The first step of a session may compile kernels for minutes. By now all ranks have taken it.
            self.process_group.set_timeout(self.config.rank_timeout);
        }
        self.end_session(session)
    }

    /// Whether training ends after this step. Ranks end together, and decide it when they load batches.
    fn is_interrupted(&self) -> bool {
        self.process_group.is_alone() && self.is_asked_to_stop()
    }

    /// Whether this process was interrupted.
    fn is_asked_to_stop(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Number of optimizer steps taken, including earlier sessions.
    pub fn steps(&self) -> u64 {
        self.state.step
    }

    /// The objective.
    pub fn objective(&self) -> &O {
        &self.objective
    }

    /// The current model, with gradients.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect(MODEL)
    }
}

fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
