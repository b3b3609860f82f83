//! The loader's settings.

use std::fmt;
use std::thread::available_parallelism;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// How the [`Loader`](super::Loader) batches, orders and prefetches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderConfig {
    /// Samples per batch.
    pub batch_size: usize,
    /// Threads that load samples: `auto`, or a number. It changes the speed and nothing else.
    pub workers: Workers,
    /// How many batches may be ready or in work ahead of the training loop. No more workers than this are ever busy.
    pub prefetch_batches: usize,
    /// How many bytes those batches may hold. A batch in work counts as much as the largest batch so far, and until
    /// one batch has been seen only one is made. The batch needed next is always allowed, however large it is.
    pub prefetch_bytes: usize,
    /// Draws a new order for each epoch. Otherwise every epoch goes through the dataset from first to last.
    pub shuffle: bool,
    /// Leaves out the last batch of an epoch if it is incomplete.
    pub drop_last: bool,
    /// What the order of each epoch is drawn from.
    pub seed: u64,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch_size: 16,
            workers: Workers::Auto,
            prefetch_batches: 16,
            prefetch_bytes: 512 << 20,
            shuffle: true,
            drop_last: false,
            seed: 42,
        }
    }
}

impl LoaderConfig {
    /// Refuses settings that no loader can work with.
    pub fn validate(&self) -> Result<(), LoaderConfigError> {
        let counts = [
            ("batch_size", self.batch_size),
            ("prefetch_batches", self.prefetch_batches),
            ("prefetch_bytes", self.prefetch_bytes),
        ];
        if let Some((field, _)) = counts.into_iter().find(|&(_, count)| count == 0) {
            return Err(LoaderConfigError::Zero { field });
        }
        match self.workers {
            Workers::Count(count) if !(1..=MAX_WORKERS).contains(&count) => Err(LoaderConfigError::Workers { count }),
            _ => Ok(()),
        }
    }
}

/// More threads than this is a typing error, not a wish.
const MAX_WORKERS: usize = 1024;

/// What is wrong with a [`LoaderConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoaderConfigError {
    /// A size that must be positive is zero.
    #[error("the loader's `{field}` is 0; set it to 1 or more")]
    Zero {
        /// The key.
        field: &'static str,
    },
    /// No threads, or absurdly many.
    #[error("the loader's `workers` is {count}; set it to `auto` or to a number from 1 to {MAX_WORKERS}")]
    Workers {
        /// The number given.
        count: usize,
    },
}

/// How many threads load samples: in YAML `auto` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// The cores less two, which the training loop and the system keep; at least 1 and at most 8.
    #[default]
    Auto,
    /// Exactly this many.
    Count(usize),
}

impl Workers {
    /// The number of threads on this machine.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => available_parallelism().map_or(1, |cores| cores.get().saturating_sub(2).clamp(1, 8)),
            Self::Count(count) => count,
        }
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WorkersVisitor)
    }
}

struct WorkersVisitor;

impl Visitor<'_> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`auto` or a number of threads")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
        match text {
            "auto" => Ok(Workers::Auto),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<Workers, E> {
        usize::try_from(count).map(Workers::Count).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(count), &self))
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<Workers, E> {
        u64::try_from(count)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))
            .and_then(|count| self.visit_u64(count))
    }
}
