//! How long a run may be: more than these is a typing error, and sums and products of them do not overflow.

/// The most optimizer steps of a run.
pub const MOST_STEPS: u64 = 1_000_000_000;

/// The most passes over the training data, and the most that a stage of a curriculum lasts.
pub const MOST_EPOCHS: u64 = 100_000;

/// The most batches of an optimizer step.
pub const MOST_ACCUMULATED: usize = 1 << 16;
