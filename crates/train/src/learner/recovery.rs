//! Where within an optimizer step training is, for what an error there leaves of it.

use crate::checkpoint::TrainState;
use crate::guard::GuardState;
use crate::loss_scale::LossScale;

/// Where within an optimizer step training is: what an error there leaves of the state.
pub(super) enum RecoveryPoint {
    /// Between two steps: state, parameters and records agree.
    BetweenSteps,
    /// Before the parameters move: all agree once these parts of the state are as they were when the step began.
    BeforeUpdate(StateBeforeStep),
    /// Parameters move, or the step is written down: the state is no longer that of the last step and not yet the next's.
    DuringUpdate,
}

/// What a step changes of the state, as it was before.
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
    /// Of a step that begins with `state`.
    pub fn of(state: &TrainState) -> Self {
        let TrainState { step, samples, epoch, cursor, loss_scale, ref guard, score, .. } = *state;
        Self { step, samples, epoch, cursor, loss_scale, guard: guard.clone(), score }
    }

    /// Makes `state` what it was.
    pub fn restore(self, state: &mut TrainState) {
        let Self { step, samples, epoch, cursor, loss_scale, guard, score } = self;
        *state = TrainState { step, samples, epoch, cursor, loss_scale, guard, score, ..std::mem::take(state) };
    }
}
