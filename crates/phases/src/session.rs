//! How a session of training begins, ends and is watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undertone_train::{Display, ProcessGroup};

/// What is a matter of one session and no part of the experiment.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Whether it goes on from the newest checkpoint.
    pub resume: bool,
    /// Once asked for, training ends with a checkpoint: after the current step, or at once where it waits for a batch.
    pub interrupt: Interrupt,
    /// What it is watched by.
    pub display: Display,
    /// The processes that train it together, of which all do the same and the first one writes.
    pub process_group: ProcessGroup,
}

/// An interruption: asked for from outside, for example by a handler of Ctrl-C, and heeded by what can end in order.
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
    /// Asks for it; returns whether it had been asked for before.
    pub fn ask(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody has asked for it.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether something runs that ends in order once it is asked for: training, or a model that listens to long
    /// recordings. What a session does before, such as fetching a model, may take long and has nothing to save: a program
    /// that wants to end then should just end.
    pub fn is_heeded(&self) -> bool {
        self.heeding.load(Ordering::Relaxed) > 0
    }

    /// It is heeded for as long as the value lives.
    pub(crate) fn heed(&self) -> Heeding {
        self.heeding.fetch_add(1, Ordering::Relaxed);
        Heeding(self.heeding.clone())
    }

    /// What is set once it is asked for.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.asked.clone()
    }
}

/// Something that heeds an interruption.
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
