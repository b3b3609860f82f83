//! The architectures for `model.backbone`: Whisper for speech, BERT and RoBERTa for text, and those that other crates
//! register.
//!
//! To add your own encoder, write a module that implements [`Backbone`](undertone_model::backbone::Backbone) and a
//! function that reads it from a folder, and register it. An encoder of text comes with its tokenizer
//! ([`TextBackbone`]). An encoder of speech comes with tokenizer and decoder, window and number of mel bins
//! ([`SpeechBackbone`]); the decoder is [`Ctc`], or one of your own.
//!
//! ```no_run
//! use undertone_phases::backbone;
//!
//! backbone::register("conv", |folder, device| {
//!     # let load = |_: &std::path::Path, _: &burn::tensor::Device| -> Result<backbone::TextBackbone, _> { Err("") };
//!     Ok(load(folder, device)?)
//! })?;
//! # Ok::<(), backbone::NameTaken>(())
//! ```

mod ctc;
mod speech;
mod text;
mod whisper;

pub use ctc::Ctc;
pub(crate) use speech::row_ids;
pub use speech::{RowGroup, SpeechBackbone, SpeechDecoder, SpeechStates, SpeechTargets, SpeechTokenizer};
pub use text::TextBackbone;
pub use undertone_registry::NameTaken;

use crate::SourceError;
use burn::tensor::Device;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::{Display, Formatter};
use std::path::Path;
use undertone_model::read_files;
use undertone_model::text::PretrainedText;
use undertone_model::whisper::WhisperConfig;
use undertone_registry::{Kind, Registry};
use undertone_train::BoxError;

/// Name of an architecture, such as `whisper`, which is for speech, or `bert`, which is for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    pub(crate) name: &'static str,
    is_text: bool,
}

/// Function that reads an encoder of text from the folder of `model.path` or `model.source.hub`.
pub type LoadText = fn(&Path, &Device) -> Result<TextBackbone, BoxError>;

/// Function that reads an encoder of speech from the folder of `model.path` or `model.source.hub`.
pub type LoadSpeech = fn(&Path, &Device) -> Result<SpeechBackbone, BoxError>;

/// Registers an architecture for text. From then on, `model: {backbone: name, path: folder}` loads it. Registering the
/// same one again has no effect.
///
/// # Errors
/// When another architecture has the name.
pub fn register(name: &'static str, load: LoadText) -> Result<(), NameTaken> {
    ARCHITECTURES.register(Entry { architecture: Architecture { name, is_text: true }, read: Read::Text(load) })
}

/// Registers an architecture for speech, as [`register`] does one for text. The folder's `config.json`, tokenizer and
/// other small files are saved with the trained weights.
///
/// # Errors
/// When another architecture has the name.
pub fn register_speech(name: &'static str, load: LoadSpeech) -> Result<(), NameTaken> {
    ARCHITECTURES.register(Entry { architecture: Architecture { name, is_text: false }, read: Read::Speech(load) })
}

impl Architecture {
    /// Encoder and decoder for speech.
    pub const WHISPER: Self = Self { name: "whisper", is_text: false };
    /// An encoder of text.
    pub const BERT: Self = Self { name: "bert", is_text: true };
    /// An encoder of text whose positions count from its padding token.
    pub const ROBERTA: Self = Self { name: "roberta", is_text: true };

    /// Whether it reads text.
    pub fn is_text(self) -> bool {
        self.is_text
    }

    /// Returns the architecture that `config.json` in a folder names as `model_type`; `None` if it names none that is
    /// known.
    pub fn of_folder(folder: &Path) -> Option<Self> {
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
        match config.get("model_type")?.as_str()? {
            "xlm-roberta" | "camembert" => Some(Self::ROBERTA),
            "distilbert" => Some(Self::BERT),
            WhisperConfig::COMPACT => Some(Self::WHISPER),
            name => ARCHITECTURES.get(name).ok().map(|entry| entry.architecture),
        }
    }

    /// Returns what is wrong with the `model_type` in the `config.json` of a folder, if it is none that is known.
    pub(crate) fn unknown_type(folder: &Path) -> Option<String> {
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
        let name = config.get("model_type")?.as_str().filter(|_| Self::of_folder(folder).is_none())?;
        let mut known: Vec<&str> = ARCHITECTURES.all().iter().map(|entry| entry.architecture.name).collect();
        known.sort_unstable();
        Some(format!(
            "`{}` is a model of type `{name}`, and those that can be read are {}, distilbert, xlm-roberta and camembert",
            folder.display(),
            known.join(", ")
        ))
    }

    /// Checks that a folder holds no other architecture, as far as it tells.
    pub(crate) fn check(self, folder: &Path) -> Result<(), SourceError> {
        match Self::of_folder(folder).filter(|found| *found != self) {
            Some(Self { name: found, .. }) => {
                Err(SourceError::Architecture { folder: folder.to_owned(), found, expected: self.name })
            }
            None => Ok(()),
        }
    }

    /// Reads a text encoder of this architecture from a folder.
    pub(crate) fn load_text(self, folder: &Path, device: &Device) -> Result<TextBackbone, SourceError> {
        self.check(folder)?;
        match ARCHITECTURES.get(self.name).map(|entry| entry.read) {
            Ok(Read::Text(load)) => load(folder, device).map_err(|source| self.unread(folder, source)),
            _ => Ok(PretrainedText::load(folder, device)?.try_into()?),
        }
    }

    /// Reads a registered speech encoder from a folder, with its small files.
    pub(crate) fn load_speech(self, folder: &Path, device: &Device) -> Result<SpeechBackbone, SourceError> {
        self.check(folder)?;
        let read = match ARCHITECTURES.get(self.name).map(|entry| entry.read) {
            Ok(Read::Speech(load)) => load(folder, device),
            _ => Err("no program has registered how".into()),
        };
        let speech = read.map_err(|source| self.unread(folder, source))?;
        speech.check().map_err(|reason| self.unread(folder, reason.into()))?;
        Ok(SpeechBackbone { files: read_files(folder)?, ..speech })
    }

    fn unread(self, folder: &Path, source: BoxError) -> SourceError {
        SourceError::Registered { folder: folder.to_owned(), architecture: self.name, source }
    }
}

impl Default for Architecture {
    fn default() -> Self {
        Self::WHISPER
    }
}

impl Display for Architecture {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl JsonSchema for Architecture {
    fn schema_name() -> Cow<'static, str> {
        "Architecture".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = ARCHITECTURES.all().iter().map(|entry| entry.architecture.name).collect();
        json_schema!({"type": "string", "enum": names})
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        ARCHITECTURES.get(&name).map(|entry| entry.architecture).map_err(D::Error::custom)
    }
}

static ARCHITECTURES: Registry<Entry> = Registry::new("backbone", || {
    let built_in = [Architecture::WHISPER, Architecture::BERT, Architecture::ROBERTA];
    built_in.map(|architecture| Entry { architecture, read: Read::BuiltIn }).to_vec()
});

#[derive(Clone)]
struct Entry {
    architecture: Architecture,
    read: Read,
}

#[derive(Clone, Copy)]
enum Read {
    BuiltIn,
    Text(LoadText),
    Speech(LoadSpeech),
}

impl Kind for Entry {
    fn name(&self) -> &str {
        self.architecture.name
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        match (self.read, other.read) {
            (Read::Text(one), Read::Text(other)) => std::ptr::fn_addr_eq(one, other),
            (Read::Speech(one), Read::Speech(other)) => std::ptr::fn_addr_eq(one, other),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(_: &Path, _: &Device) -> Result<TextBackbone, BoxError> {
        Err("it has no weights".into())
    }

    fn refuse_too(_: &Path, _: &Device) -> Result<TextBackbone, BoxError> {
        Err("it has no tokenizer".into())
    }

    #[test]
    fn a_registered_architecture_is_known_by_its_name() {
        let read = |name: &str| serde_json::from_value::<Architecture>(name.into());
        let unknown = read("pigeon").expect_err("unknown").to_string();
        assert!(
            unknown.starts_with("unknown variant `pigeon`, expected one of `whisper`, `bert`, `roberta`"),
            "{unknown}"
        );
        register("pigeon", refuse).expect("registered");
        register("pigeon", refuse).expect("the same again");
        assert_eq!(register("pigeon", refuse_too), Err(NameTaken { what: "backbone", name: "pigeon".into() }));
        assert_eq!(register("bert", refuse), Err(NameTaken { what: "backbone", name: "bert".into() }));
        let pigeon = read("pigeon").expect("known");
        assert!(pigeon.is_text() && !Architecture::WHISPER.is_text());
        assert_eq!(serde_json::to_value(pigeon).expect("JSON"), "pigeon");
        let refused = pigeon.load_text(Path::new("loft"), &Device::default()).err().expect("refused").to_string();
        assert_eq!(refused, "`loft` cannot be read as a backbone of type `pigeon`: it has no weights");
    }

    fn deaf(_: &Path, _: &Device) -> Result<SpeechBackbone, BoxError> {
        Err("it has no ears".into())
    }

    #[test]
    fn a_folder_tells_its_architecture_and_no_other_is_read_from_it() {
        register_speech("bat", deaf).expect("registered");
        let dir = tempfile::tempdir().expect("a directory");
        let found = |model_type: &str| {
            let json = serde_json::json!({"model_type": model_type}).to_string();
            std::fs::write(dir.path().join("config.json"), json).expect("written");
            Architecture::of_folder(dir.path())
        };
        assert_eq!([found("whisper"), found("bert")], [Some(Architecture::WHISPER), Some(Architecture::BERT)]);
        assert_eq!(
            [found("xlm-roberta"), found("camembert"), found("moth")],
            [Some(Architecture::ROBERTA), Some(Architecture::ROBERTA), None]
        );
        assert_eq!(found("compact_whisper"), Some(Architecture::WHISPER));
        let bat = found("bat").expect("known");
        assert!(!bat.is_text() && Architecture::of_folder(Path::new("loft")).is_none());
        let refused = bat.load_speech(dir.path(), &Device::default()).err().expect("refused").to_string();
        assert!(refused.ends_with("cannot be read as a backbone of type `bat`: it has no ears"), "{refused}");
        let refused = Architecture::BERT.load_text(dir.path(), &Device::default()).err().expect("refused").to_string();
        let expected = "holds a model of type `bat`, and `model.backbone` is `bert`: set it to `bat`";
        assert!(refused.ends_with(expected), "{refused}");
    }
}
