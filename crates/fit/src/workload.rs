use std::cell::Cell;

/// How large a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Samples.
    pub samples: usize,
    /// Of the longest: frames of 10 ms of speech, tokens of text.
    pub length: usize,
    /// Whether that is speech.
    pub speech: bool,
    /// Tokens of the longest answer; 0 where none is written.
    pub labels: usize,
}

/// What a thread computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Gradients of a batch.
    TrainingStep(BatchSize),
    /// Answers to a batch.
    Evaluation(BatchSize),
}

thread_local! {
    static WORKLOAD: Cell<Option<Workload>> = const { Cell::new(None) };
}

/// Notes what this thread begins to compute, for the message where memory runs out: the backend that says so knows no
/// batches.
pub fn note_workload(workload: Workload) {
    WORKLOAD.set(Some(workload));
}

/// What this thread noted last.
pub(crate) fn noted_workload() -> Option<Workload> {
    WORKLOAD.get()
}

impl BatchSize {
    /// Positions of the encoder.
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
