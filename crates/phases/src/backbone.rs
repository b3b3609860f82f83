//! The architectures for `model.backbone`: Whisper, BERT, RoBERTa, and those that other crates register.
//!
//! To add your own text encoder, write a module that implements [`Backbone`](undertone_model::backbone::Backbone) and a
//! function that reads it from a folder, and register it:
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

use burn::tensor::Device;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use undertone_model::FolderError;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::text::{PretrainedText, TextEncoderConfig, TextModelType, TextTokenizer};
pub use undertone_registry::NameTaken;
use undertone_registry::{Kind, Registry};
use undertone_tasks::{Framer, TextError};
use undertone_train::BoxError;

/// Name of an architecture: `whisper`, which is for speech, or one for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture(&'static str);

/// Text encoder with its tokenizer and dimensions.
#[derive(Clone)]
pub struct TextBackbone {
    /// Network.
    pub network: BoxedBackbone,
    /// Tokenizer.
    pub tokenizer: TextTokenizer,
    /// The stages of that tokenizer, for rows of tokens whose parts are known.
    pub framer: Framer,
    /// Maximum number of tokens per input, special tokens included.
    pub max_tokens: usize,
    /// Dimensions in the form of BERT's, for memory estimates.
    pub dimensions: TextEncoderConfig,
}

/// Function that reads a backbone from the folder of `model.path` or `model.source.hub`.
pub type LoadText = fn(&Path, &Device) -> Result<TextBackbone, BoxError>;

/// Reason why a text backbone cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TextBackboneError {
    /// The folder holds no valid model.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder holds another architecture.
    #[error("`{}` holds a model of type `{found}`, and `model.backbone` is `{expected}`: set it to `{found}`", folder.display())]
    Architecture {
        /// The folder.
        folder: PathBuf,
        /// Architecture in the folder.
        found: &'static str,
        /// Expected architecture.
        expected: &'static str,
    },
    /// The tokenizer is not that of a text encoder.
    #[error(transparent)]
    Tokenizer(#[from] TextError),
    /// Error of a registered architecture.
    #[error("`{}` cannot be read as a backbone of type `{architecture}`: {source}", folder.display())]
    Registered {
        /// The folder.
        folder: PathBuf,
        /// The architecture.
        architecture: &'static str,
        /// The reason.
        source: BoxError,
    },
}

/// Registers an architecture for text. From then on, `model: {backbone: name, path: folder}` loads it. Registering the
/// same one again has no effect.
///
/// # Errors
/// When another architecture has the name.
pub fn register(name: &'static str, load: LoadText) -> Result<(), NameTaken> {
    ARCHITECTURES.register(Entry { name, read: Read::Registered(load) })
}

impl Architecture {
    /// Encoder and decoder for speech.
    pub const WHISPER: Self = Self("whisper");
    /// An encoder of text.
    pub const BERT: Self = Self("bert");
    /// An encoder of text whose positions count from its padding token.
    pub const ROBERTA: Self = Self("roberta");

    /// Whether it reads text.
    pub fn is_text(self) -> bool {
        self != Self::WHISPER
    }

    /// Reads a backbone of this architecture from a folder.
    ///
    /// # Errors
    /// When the folder holds no such model.
    pub(crate) fn load_text(self, folder: &Path, device: &Device) -> Result<TextBackbone, TextBackboneError> {
        match ARCHITECTURES.get(self.0).map(|entry| entry.read) {
            Ok(Read::Registered(load)) => load(folder, device).map_err(|source| TextBackboneError::Registered {
                folder: folder.to_owned(),
                architecture: self.0,
                source,
            }),
            _ => self.load_encoder(folder, device),
        }
    }

    fn load_encoder(self, folder: &Path, device: &Device) -> Result<TextBackbone, TextBackboneError> {
        let text = PretrainedText::load(folder, device)?;
        let found = match text.config.model_type {
            TextModelType::Bert => Self::BERT,
            TextModelType::Roberta | TextModelType::XlmRoberta => Self::ROBERTA,
        };
        if found != self {
            let folder = folder.to_owned();
            return Err(TextBackboneError::Architecture { folder, found: found.0, expected: self.0 });
        }
        Ok(TextBackbone::try_from(text)?)
    }
}

impl Default for Architecture {
    fn default() -> Self {
        Self::WHISPER
    }
}

impl Display for Architecture {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl JsonSchema for Architecture {
    fn schema_name() -> Cow<'static, str> {
        "Architecture".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = ARCHITECTURES.all().iter().map(|entry| entry.name).collect();
        json_schema!({"type": "string", "enum": names})
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        ARCHITECTURES.get(&name).map(|entry| Self(entry.name)).map_err(D::Error::custom)
    }
}

impl TextBackbone {
    /// Returns a backbone with a network that reads at most `max_tokens` tokens.
    ///
    /// # Errors
    /// When the tokenizer does not enclose texts in a start and an end token.
    pub fn new(network: BoxedBackbone, tokenizer: TextTokenizer, max_tokens: usize) -> Result<Self, TextError> {
        let [vocab_size, hidden_size] = network.token_embedding().weight.dims();
        let dimensions = TextEncoderConfig {
            vocab_size,
            hidden_size,
            num_hidden_layers: network.block_count(),
            // As in BERT: heads of width 64, and a feed-forward width of four times the hidden size.
            num_attention_heads: hidden_size.div_ceil(64),
            intermediate_size: 4 * hidden_size,
            max_position_embeddings: max_tokens,
            ..Default::default()
        };
        let framer = Framer::new(&tokenizer)?;
        Ok(Self { network, tokenizer, framer, max_tokens, dimensions })
    }
}

impl TryFrom<PretrainedText> for TextBackbone {
    type Error = TextError;

    fn try_from(text: PretrainedText) -> Result<Self, TextError> {
        let PretrainedText { model, config, tokenizer, .. } = text;
        let max_tokens = model.max_tokens();
        Ok(Self { dimensions: config, ..Self::new(BoxedBackbone::new("Text", model), tokenizer, max_tokens)? })
    }
}

static ARCHITECTURES: Registry<Entry> = Registry::new("backbone", || {
    let built_in = [Architecture::WHISPER, Architecture::BERT, Architecture::ROBERTA];
    built_in.map(|Architecture(name)| Entry { name, read: Read::BuiltIn }).to_vec()
});

#[derive(Clone)]
struct Entry {
    name: &'static str,
    read: Read,
}

#[derive(Clone, Copy)]
enum Read {
    BuiltIn,
    Registered(LoadText),
}

impl Kind for Entry {
    fn name(&self) -> &str {
        self.name
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        match (self.read, other.read) {
            (Read::Registered(one), Read::Registered(other)) => std::ptr::fn_addr_eq(one, other),
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
}
