//! Options of a training session: resuming, interruption and display.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undertone_train::{Display, ProcessGroup};

/// Options of one training session that are not part of the experiment.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Whether to resume from the newest checkpoint.
    pub resume: bool,
    /// Interruption: training ends with a checkpoint, after the current step, or at once while it waits for a batch.
    pub interrupt: Interrupt,
    /// Display of progress.
    pub display: Display,
    /// Process group: all processes do the same work, and only the first one writes.
    pub process_group: ProcessGroup,
}

/// Interruption, requested for example by a handler of Ctrl-C. Work that can stop cleanly checks for it.
///
/// ```
/// use undertone_phases::Interrupt;
///
/// let interrupt = Interrupt::default();
/// // Nothing runs that would save something: whoever asks may end the process.
/// assert!(!interrupt.is_heeded());
/// interrupt.ask();
/// assert!(interrupt.is_asked());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    heeding: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Requests the interruption. Returns whether it had been requested before.
    pub fn ask(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }

    /// Whether it has been requested.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether work is running that stops cleanly on request: training, or the transcription of long recordings for
    /// their alignment. Earlier work of a session, such as downloading a model, may take long and has nothing to save.
    /// To end your program then, just exit.
    pub fn is_heeded(&self) -> bool {
        self.heeding.load(Ordering::Relaxed) > 0
    }

    /// Marks that work checks for the interruption as long as the returned value lives.
    pub(crate) fn heed(&self) -> Heeding {
        self.heeding.fetch_add(1, Ordering::Relaxed);
        Heeding(self.heeding.clone())
    }

    /// Returns the flag that is set on request.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.asked.clone()
    }
}

/// Guard of work that checks for an interruption.
pub(crate) struct Heeding(Arc<AtomicUsize>);

impl Drop for Heeding {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_heeded_while_something_lives_that_does() {
        let interrupt = Interrupt::default();
        let (one, two) = (interrupt.heed(), interrupt.clone().heed());
        drop(one);
        assert!(interrupt.is_heeded());
        drop(two);
        assert!(!interrupt.is_heeded());
        assert!(!interrupt.ask() && interrupt.ask());
        assert!(interrupt.clone().is_asked() && interrupt.flag().load(Ordering::Relaxed));
    }
}
