use std::cell::Cell;

/// Size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Number of samples.
    pub samples: usize,
    /// Length of the longest sample: frames of 10 ms for speech, tokens for text.
    pub length: usize,
    /// Whether the samples are speech.
    pub speech: bool,
    /// Number of tokens of the longest target; 0 without targets.
    pub labels: usize,
}

/// Computation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Gradients of a batch.
    TrainingStep(BatchSize),
    /// Predictions for a batch.
    Evaluation(BatchSize),
}

thread_local! {
    static WORKLOAD: Cell<Option<Workload>> = const { Cell::new(None) };
}

/// Notes the computation that this thread begins, for the message if memory runs out: the backend that reports the
/// failure does not know the batch.
pub fn note_workload(workload: Workload) {
    WORKLOAD.set(Some(workload));
}

/// Returns the computation that this thread noted last.
pub(crate) fn noted_workload() -> Option<Workload> {
    WORKLOAD.get()
}

impl BatchSize {
    /// Returns the number of encoder positions.
    pub(crate) fn positions(self) -> usize {
        if self.speech { self.length.div_ceil(2) } else { self.length }
    }
}

impl std::fmt::Display for BatchSize {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let (samples, length) = (self.samples, self.length);
        match self.speech {
            true => write!(f, "{samples} samples of up to {length} frames ({:.1} s)", length as f64 / 100.0)?,
            false => write!(f, "{samples} samples of up to {length} tokens")?,
        }
        if self.labels > 0 { write!(f, " and {} tokens to write", self.labels) } else { Ok(()) }
    }
}
