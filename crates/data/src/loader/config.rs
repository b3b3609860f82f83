//! The loader's settings.

use std::borrow::Cow;
use std::fmt;
use std::thread::available_parallelism;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{MOST_BATCH, MOST_PREFETCHED, MOST_WORKERS};

/// Settings for batching, order and prefetching of a [`Loader`](super::Loader).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderConfig {
    /// Samples per batch; with a `budget`, the maximum.
    pub batch_size: usize,
    /// Maximum cost of a batch, so that it holds many short samples or few long ones. Needs [`Dataset::length`].
    ///
    /// [`Dataset::length`]: super::Dataset::length
    pub budget: Option<Budget>,
    /// Whether batches are made of samples of similar length, so that there is little padding. Only samples from the
    /// same stretch of about fifty batches of the order are grouped. Needs [`Dataset::length`].
    ///
    /// [`Dataset::length`]: super::Dataset::length
    pub group_by_length: bool,
    /// Number of threads that load samples: `auto`, or a number. It affects the speed alone.
    pub workers: Workers,
    /// Maximum number of batches that are ready or in work ahead of the training loop. At most this many workers are
    /// busy.
    pub prefetch_batches: usize,
    /// Maximum number of bytes that those batches hold. A batch in work counts as much as the largest batch so far, and
    /// until one batch is known only one is made. The batch needed next is always allowed, however large it is.
    pub prefetch_bytes: usize,
    /// Whether each epoch has a new random order. Otherwise every epoch goes through the dataset from first to last.
    pub shuffle: bool,
    /// Whether samples at the end of an epoch's order that do not fill a batch are left out. With a `budget`, a batch
    /// is full when one more sample as long as its longest would exceed it.
    pub drop_last: bool,
    /// Seed of the order of each epoch.
    pub seed: u64,
    /// Behaviour when a sample cannot be loaded.
    pub on_bad_sample: OnBadSample,
    /// With `skip`: maximum share of bad samples in an epoch, from 0 to 1. A higher share is an error, which is
    /// returned with the batch that exceeds it. Until 1000 samples have been seen (all of them if the epoch has fewer)
    /// the share is relative to those 1000. In a resumed epoch the samples before its start count as seen and good.
    pub max_bad_share: f64,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch_size: 16,
            budget: None,
            group_by_length: false,
            workers: Workers::Auto,
            prefetch_batches: 16,
            prefetch_bytes: 512 << 20,
            shuffle: true,
            drop_last: false,
            seed: 42,
            on_bad_sample: OnBadSample::Stop,
            max_bad_share: 0.01,
        }
    }
}

impl LoaderConfig {
    /// Refuses invalid settings.
    pub fn validate(&self) -> Result<(), LoaderConfigError> {
        let counts = [
            ("batch_size", self.batch_size),
            ("prefetch_batches", self.prefetch_batches),
            ("prefetch_bytes", self.prefetch_bytes),
        ];
        if let Some((field, _)) = counts.into_iter().find(|&(_, count)| count == 0) {
            return Err(LoaderConfigError::Zero { field });
        }
        let counts =
            [("batch_size", self.batch_size, MOST_BATCH), ("prefetch_batches", self.prefetch_batches, MOST_PREFETCHED)];
        if let Some((field, count, most)) = counts.into_iter().find(|(_, count, most)| count > most) {
            return Err(LoaderConfigError::TooMany { field, count, most });
        }
        if let Some(budget) = self.budget {
            budget.validate()?;
        }
        if !(0.0..=1.0).contains(&self.max_bad_share) {
            return Err(LoaderConfigError::Share { share: self.max_bad_share });
        }
        match self.workers {
            Workers::Count(count) if !(1..=MOST_WORKERS).contains(&count) => Err(LoaderConfigError::Workers { count }),
            _ => Ok(()),
        }
    }
}

/// Maximum cost of a batch that is padded to its longest sample.
///
/// A sample of length `l` costs `l + quadratic · l²`, and `n` samples of which the longest has length `l` cost
/// `n · (l + quadratic · l²)`. The first term is everything that grows linearly with the length: convolutions,
/// projections, the memory of activations. The second is self-attention, which compares each position with every other:
/// with `quadratic = 1 / L`, self-attention on a sample of length `L` costs as much as everything else. Lengths have
/// the unit of [`Dataset::length`](super::Dataset::length), for example seconds, and so has the cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Maximum cost of a batch. A sample that costs more is a batch of its own.
    pub max: f64,
    /// Weight of the squared length, per unit of length; 0 for models without self-attention.
    pub quadratic: f64,
}

impl Default for Budget {
    /// Sixteen windows of 30 s, with a cost linear in their length.
    fn default() -> Self {
        Self { max: 480.0, quadratic: 0.0 }
    }
}

impl Budget {
    /// Returns the cost of one sample of this length.
    pub fn cost(&self, length: f64) -> f64 {
        length + self.quadratic * length * length
    }

    /// Refuses a maximum or a weight that is out of range.
    pub fn validate(&self) -> Result<(), LoaderConfigError> {
        let Self { max, quadratic } = *self;
        if !(max.is_finite() && max > 0.0) {
            return Err(LoaderConfigError::Budget { max });
        }
        if !(quadratic.is_finite() && quadratic >= 0.0) {
            return Err(LoaderConfigError::Quadratic { quadratic });
        }
        Ok(())
    }
}

/// Behaviour when [`Dataset::get`](super::Dataset::get) returns an error. A panic is always an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBadSample {
    /// Its batch is an error that names the sample.
    #[default]
    Stop,
    /// It is left out of its batch and recorded: see [`Loader::skipped`](super::Loader::skipped). The next epoch tries
    /// it again.
    Skip,
}

/// Error of an invalid [`LoaderConfig`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoaderConfigError {
    /// A size that must be positive is zero.
    #[error("the loader's `{field}` is 0; set it to 1 or more")]
    Zero {
        /// The key.
        field: &'static str,
    },
    /// A size is larger than the limit.
    #[error("the loader's `{field}` is {count}; set it to at most {most}")]
    TooMany {
        /// The key.
        field: &'static str,
        /// Value given.
        count: usize,
        /// Largest value accepted.
        most: usize,
    },
    /// The budget is not positive and finite.
    #[error("the loader's `budget.max` is {max}; set it to a positive number, such as the seconds that fit in memory")]
    Budget {
        /// Value given.
        max: f64,
    },
    /// The cost of attention is negative or not finite.
    #[error("the loader's `budget.quadratic` is {quadratic}; set it to 0 or more, such as 0.03 (1 / 30 s)")]
    Quadratic {
        /// Value given.
        quadratic: f64,
    },
    /// The share is not a number from 0 to 1.
    #[error(
        "the loader's `max_bad_share` is {share}; set it to a number from 0 to 1, such as 0.01 for one in a hundred"
    )]
    Share {
        /// Value given.
        share: f64,
    },
    /// The number of threads is zero or above the limit.
    #[error("the loader's `workers` is {count}; set it to `auto` or to a number from 1 to {MOST_WORKERS}")]
    Workers {
        /// Value given.
        count: usize,
    },
}

/// Number of threads that load samples: in YAML `auto` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// Number of cores less two, which are left to the training loop and the system; at least 1 and at most 8.
    #[default]
    Auto,
    /// Exactly this many.
    Count(usize),
}

impl Workers {
    /// Returns the number of threads on this machine.
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

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0}]})
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
