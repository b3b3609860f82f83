//! How much of anything there may be. Numbers come from configurations and from the headers of files, and most of them
//! are lengths of something that is held in memory; more than these is a typing error, or an attack, and not a wish.

/// The most audio that is read at once, in hours: what is decoded is held in memory, and this is 1.8 GB of it. A file
/// of a few kilobytes can decode to any length, so there has to be an end.
pub const LONGEST_HOURS: f64 = 8.0;

/// The most samples that a synthesiser may make in an epoch: the order of an epoch is a list of all of them, which takes
/// 80 MB.
pub const MOST_SAMPLES: usize = 10_000_000;

/// The most samples in a batch.
pub const MOST_BATCH: usize = 1 << 16;

/// The most batches that are made ahead.
pub const MOST_PREFETCHED: usize = 1 << 16;

/// The most threads that load samples.
pub const MOST_WORKERS: usize = 1024;
