//! Sources of speech by name: the registry behind a configuration's `synth`, open for your own kinds of source.
//!
//! A kind of source is one type that implements [`SpeechSource`]. You add it with one line, [`register`], before a
//! configuration is opened; it may come from any crate. It opens a [`Dataset`] of utterances like any other.
//!
//! ```
//! use undertone_data::loader::{Dataset, SampleError};
//! use undertone_data::source::{self, SourceRequest, SpeechSource, Utterance, Utterances};
//!
//! /// Beeps of one pitch.
//! struct Beeps {
//!     hz: f32,
//!     samples: usize,
//! }
//!
//! impl Dataset for Beeps {
//!     type Item = Utterance;
//!
//!     fn len(&self) -> usize {
//!         self.samples
//!     }
//!
//!     fn get(&self, index: usize, _epoch: u64) -> Result<Utterance, SampleError> {
//!         let audio = (0..1600 * (index + 1)).map(|n| (n as f32 * self.hz * 6.2832 / 16_000.0).sin()).collect();
//!         Ok(Utterance::new(audio, "BEEP"))
//!     }
//!
//!     fn name(&self, index: usize) -> String {
//!         format!("beep {index}")
//!     }
//! }
//!
//! struct BeepSource;
//!
//! impl SpeechSource for BeepSource {
//!     fn name(&self) -> &str {
//!         "beeps"
//!     }
//!
//!     fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
//!         let hz: f32 = serde_json::from_value(request.config["hz"].clone())?;
//!         Ok(Box::new(Beeps { hz, samples: request.samples }))
//!     }
//! }
//!
//! source::register(BeepSource)?;
//! let request = SourceRequest { config: serde_json::json!({"hz": 440.0}), samples: 3, seed: 42 };
//! let beeps = source::open("beeps", &request)?;
//! assert_eq!((beeps.len(), beeps.get(2, 0)?.text.as_str()), (3, "BEEP"));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
pub use undertone_registry::NameTaken;
use undertone_registry::Registry;

use crate::loader::{Dataset, SampleError};
use crate::options::{Options, OptionsError};
use crate::shared::entry;

/// Audio and its transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Utterance {
    /// Mono samples at 16 kHz, full scale being `[-1, 1]`.
    pub audio: Vec<f32>,
    /// The transcript.
    pub text: String,
    /// Timing of the transcript, if the source knows it: targets of `loss.alignment`.
    pub timing: Option<Timing>,
    /// What else is known about it, by name, such as `snr_db`: results can be grouped by it.
    pub columns: BTreeMap<String, String>,
}

impl Utterance {
    /// Returns an utterance without timing.
    pub fn new(audio: Vec<f32>, text: impl Into<String>) -> Self {
        Self { audio, text: text.into(), ..Self::default() }
    }
}

/// Times of an utterance's characters, and of the elements that these consist of. Where marks overlap, the later one
/// in the list counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timing {
    /// Characters of the transcript.
    pub characters: Vec<Mark<char>>,
    /// Elements by their class, a number below [`SpeechSource::element_classes`]; `None` marks a time without a target.
    /// Times without a mark have class 0.
    pub elements: Vec<Mark<Option<usize>>>,
}

/// A label and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark<L> {
    /// Start, in seconds from the start of the audio.
    pub start: f32,
    /// End, in seconds from the start of the audio.
    pub end: f32,
    /// Label.
    pub label: L,
}

/// Alphabet of a source's transcripts, for the vocabulary of a new model.
#[derive(Debug, Clone, PartialEq)]
pub struct Alphabet {
    /// All characters, each once, in an order that does not change.
    pub characters: String,
    /// Maximum number of characters per second.
    pub most_per_second: f64,
}

/// Dataset that a source opens. [`Dataset::length`] is in seconds; for synthesised samples it is the maximum length.
pub type Utterances = dyn Dataset<Item = Utterance>;

/// Settings that a source is opened with.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRequest {
    /// Configuration keys of the source, as in the YAML. A source refuses unknown keys.
    pub config: Value,
    /// Number of samples per epoch, if samples are synthesised.
    pub samples: usize,
    /// Seed of everything random.
    pub seed: u64,
}

/// A kind of source.
pub trait SpeechSource: Send + Sync {
    /// Returns the name that configurations use.
    fn name(&self) -> &str;

    /// Checks the configuration and opens the source.
    ///
    /// # Errors
    /// Names the key, file or sample that is invalid, and a remedy.
    fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError>;

    /// Checks options and returns them with the defaults of the keys that are left out, when a configuration is read.
    /// By default they stay as they are, and [`open`](Self::open) checks them. See [`options`](crate::options).
    ///
    /// # Errors
    /// Names the invalid key.
    fn complete(&self, options: &Options) -> Result<Options, OptionsError> {
        Ok(options.clone())
    }

    /// Returns the JSON Schema of the options, if there is one.
    fn schema(&self, _: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    /// Returns the alphabet of all transcripts, if it is limited: the vocabulary of a new model whose configuration
    /// gives none. A model that cannot write it is refused.
    fn alphabet(&self) -> Option<Alphabet> {
        None
    }

    /// Returns the name of the [reader](crate::reader) for models that are trained on this source, if it is not speech.
    /// They are saved with it.
    fn reader(&self) -> Option<&str> {
        None
    }

    /// Returns the number of classes of [`Timing::elements`], for a source whose utterances have a timing with these
    /// complete options.
    ///
    /// # Errors
    /// The reason why they have none.
    fn element_classes(&self, _: &Options) -> Result<usize, String> {
        Err(format!("`{}` does not tell it", self.name()))
    }

    /// Returns the number of samples that validation has by default.
    fn validation_samples(&self) -> usize {
        64
    }
}

/// Error of a source that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No kind of source has this name.
    #[error("there is no source called `{name}`: there are {known}; register it before the configuration is opened")]
    Unknown {
        /// Name that was asked for.
        name: String,
        /// Registered names.
        known: String,
    },
    /// The source could not be opened.
    #[error("source `{name}`: {source}")]
    Open {
        /// Name of the source.
        name: String,
        /// Error of the source.
        source: SampleError,
    },
}

static SOURCES: Registry<Entry> = Registry::new("source", Vec::new);

/// Name of the source that configurations without one use.
static DEFAULT: OnceLock<String> = OnceLock::new();

entry!(SpeechSource);

/// Registers a kind of source under its name, for the whole process.
///
/// # Errors
/// If the name is already registered.
pub fn register(source: impl SpeechSource + 'static) -> Result<(), NameTaken> {
    SOURCES.register(Entry(Arc::new(source)))
}

/// As [`register`], for the source of configurations that name none. The first source registered as the default stays
/// it.
///
/// # Errors
/// If the name is already registered.
pub fn register_default(source: impl SpeechSource + 'static) -> Result<(), NameTaken> {
    let name = source.name().to_owned();
    register(source)?;
    DEFAULT.get_or_init(|| name);
    Ok(())
}

/// Returns all kinds of source, in alphabetical order.
pub fn all() -> Vec<Arc<dyn SpeechSource>> {
    let mut all: Vec<Arc<dyn SpeechSource>> = SOURCES.all().into_iter().map(|Entry(source)| source).collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    all
}

/// Returns the names of all kinds of source, in alphabetical order.
pub fn names() -> Vec<String> {
    all().iter().map(|source| source.name().to_owned()).collect()
}

/// Returns the kind of source that configurations without a name use, if one is registered as the default.
pub fn default() -> Option<Arc<dyn SpeechSource>> {
    SOURCES.get(DEFAULT.get()?).ok().map(|Entry(source)| source)
}

/// Returns the kind of source with this name.
///
/// # Errors
/// If there is none.
pub fn get(name: &str) -> Result<Arc<dyn SpeechSource>, SourceError> {
    SOURCES.get(name).map(|Entry(source)| source).map_err(|_| {
        let known = names();
        let known = match known.is_empty() {
            true => "none (`undertone::register()` adds those that come with Undertone)".to_owned(),
            false => known.join(", "),
        };
        SourceError::Unknown { name: name.to_owned(), known }
    })
}

/// Opens a source of this kind.
///
/// # Errors
/// If there is no such kind, or if the source returns an error.
pub fn open(name: &str, request: &SourceRequest) -> Result<Box<Utterances>, SourceError> {
    get(name)?.open(request).map_err(|source| SourceError::Open { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken;

    impl SpeechSource for Broken {
        fn name(&self) -> &str {
            "broken"
        }

        fn open(&self, _: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
            Err("`wpm` is missing: give a number".into())
        }
    }

    #[test]
    fn refusals_name_the_source_and_the_way_out() {
        let request = SourceRequest { config: Value::Null, samples: 1, seed: 1 };
        let said = open("nobody", &request).err().unwrap().to_string();
        assert!(said.starts_with("there is no source called `nobody`"), "{said}");
        register(Broken).unwrap();
        let said = open("broken", &request).err().unwrap().to_string();
        assert_eq!(said, "source `broken`: `wpm` is missing: give a number");
        assert!(names().contains(&"broken".to_owned()));
        let said = register(Broken).unwrap_err().to_string();
        assert_eq!(said, "a source named `broken` is already registered: choose another name");
    }
}
