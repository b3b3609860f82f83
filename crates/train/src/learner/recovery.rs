//! Position of training within an optimizer step, which determines what is left of the state after an error.

use crate::checkpoint::TrainState;
use crate::guard::GuardState;
use crate::loss_scale::LossScale;
use crate::stepper::StepReport;
use undertone_ops::StepReading;

/// Position of training within an optimizer step, which determines what is left of the state after an error.
pub(super) enum RecoveryPoint {
    /// Between two steps: state, parameters and logs agree.
    BetweenSteps,
    /// Before the update: they agree once these parts of the state are reset to their values at the beginning of the
    /// step.
    BeforeUpdate(StateBeforeStep),
    /// During the update or logging: the state is between that of the last step and that of the next.
    DuringUpdate,
}

/// A step whose loss the host has not read. The device has decided whether the parameters were updated.
pub(super) struct PendingStep {
    pub report: StepReport,
    pub reading: StepReading,
    /// The state before the step.
    pub start: StateBeforeStep,
}

/// The parts of the state that a step changes, before the step.
#[derive(Clone)]
pub(super) struct StateBeforeStep {
    step: u64,
    samples: u64,
    epoch: u64,
    cursor: usize,
    loss_scale: Option<LossScale>,
    guard: GuardState,
    score: Option<f64>,
}

impl StateBeforeStep {
    /// Copies them from `state`, at the beginning of a step.
    pub fn of(state: &TrainState) -> Self {
        let TrainState { step, samples, epoch, cursor, loss_scale, ref guard, score, .. } = *state;
        Self { step, samples, epoch, cursor, loss_scale, guard: guard.clone(), score }
    }

    /// Resets `state` to them.
    pub fn restore(self, state: &mut TrainState) {
        let Self { step, samples, epoch, cursor, loss_scale, guard, score } = self;
        *state = TrainState { step, samples, epoch, cursor, loss_scale, guard, score, ..std::mem::take(state) };
    }
}
