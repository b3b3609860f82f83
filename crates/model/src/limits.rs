//! Limits on model sizes: sizes come from files and configurations, and memory is allocated by them.

/// Maximum width, vocabulary size, and so on, of a configuration.
pub const LARGEST_DIMENSION: usize = 1 << 24;

/// Maximum number of positions of an encoder or a decoder: an hour and a half of audio at once, of which Whisper takes
/// 30 s.
pub const MOST_POSITIONS: usize = 1 << 18;

/// Maximum number of blocks of one kind.
pub const MOST_LAYERS: usize = 1024;

/// Maximum number of parameters of a configuration. Sizes of a folder are compared with its weights before anything is
/// allocated; this limit keeps computations with them far from overflow.
pub const MOST_PARAMETERS: u64 = 100_000_000_000;

/// Maximum number of parameters that are initialised rather than read: Whisper's largest model has 1.6 billion; two
/// billion take 8 GB.
pub const MOST_NEW_PARAMETERS: u64 = 2_000_000_000;

/// Maximum rank of an adapter: more than the width of most maps it is for.
pub const MOST_RANK: usize = 4096;

/// Maximum width of a router's hidden layers.
pub const WIDEST_ROUTER: usize = 4096;
/// Maximum number of a router's hidden layers.
pub const MOST_ROUTER_LAYERS: usize = 16;

/// Maximum number of beams per sample.
pub const MOST_BEAMS: usize = 256;
