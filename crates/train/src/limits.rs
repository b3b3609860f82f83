//! Upper limits of a run's length. A larger value is a typing error. Sums and products of these values do not overflow.

/// Maximum number of optimizer steps of a run.
pub const MOST_STEPS: u64 = 1_000_000_000;

/// Maximum number of epochs of a run, or of a stage of a curriculum.
pub const MOST_EPOCHS: u64 = 100_000;

/// Maximum number of batches of an optimizer step.
pub const MOST_ACCUMULATED: usize = 1 << 16;
