//! How large a model may be: sizes come from files and configurations, and what they ask for is allocated.

/// The largest width, vocabulary or number of positions, and so on, that a configuration may give.
pub const LARGEST_DIMENSION: usize = 1 << 24;

/// The most positions of an encoder or a decoder: an hour and a half of audio at once, of which Whisper hears 30 s.
pub const MOST_POSITIONS: usize = 1 << 18;

/// The most blocks of one kind.
pub const MOST_LAYERS: usize = 1024;

/// The most parameters that a configuration may describe. Those of a folder are compared with its weights before anything
/// is allocated; this keeps what is computed of them far from overflowing.
pub const MOST_PARAMETERS: u64 = 100_000_000_000;

/// The most parameters that are initialised rather than read: Whisper's largest model has 1.6 billion, and these take
/// 8 GB.
pub const MOST_NEW_PARAMETERS: u64 = 2_000_000_000;

/// The highest rank of an adapter: more than the width of most maps it is for.
pub const MOST_RANK: usize = 4096;

/// The widest hidden layer of a router, and the most of them.
pub const WIDEST_ROUTER: usize = 4096;
/// See [`WIDEST_ROUTER`].
pub const MOST_ROUTER_LAYERS: usize = 16;

/// The most hypotheses that a search follows for a sample.
pub const MOST_BEAMS: usize = 256;
