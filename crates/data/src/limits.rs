//! Upper limits of sizes. The sizes come from configurations and from the headers of files, and most of them are
//! lengths of something that is held in memory. A size above its limit is taken for a typing error or an attack.

/// Maximum length of audio that is read at once, in hours. Decoded audio is held in memory, and this is 1.8 GB of it. A
/// file of a few kilobytes can decode to any length, so a limit is needed.
pub const LONGEST_HOURS: f64 = 8.0;

/// Maximum number of samples that a synthesiser makes in an epoch. The order of an epoch is a list of all of them,
/// which takes 80 MB.
pub const MOST_SAMPLES: usize = 10_000_000;

/// Maximum number of samples in a batch.
pub const MOST_BATCH: usize = 1 << 16;

/// Maximum number of prefetched batches.
pub const MOST_PREFETCHED: usize = 1 << 16;

/// Maximum number of worker threads that load samples.
pub const MOST_WORKERS: usize = 1024;
