//! The architectures that `model.backbone` can name: Whisper, BERT, RoBERTa, and what other crates register.
//!
//! An encoder of text of one's own is a module that implements [`Backbone`](undertone_model::backbone::Backbone), a function
//! that reads it from a folder, and one line:
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
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, PoisonError, RwLock};
use undertone_model::FolderError;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::text::{PretrainedText, TextEncoderConfig, TextModelType, TextTokenizer};
use undertone_tasks::{Framer, TextError};
use undertone_train::BoxError;

/// An architecture, by its name: `whisper`, which is for speech, or one for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture(&'static str);

/// An encoder of text with everything that travels with it.
#[derive(Clone)]
pub struct TextBackbone {
    /// The network.
    pub network: BoxedBackbone,
    /// Texts to tokens.
    pub tokenizer: TextTokenizer,
    /// The same in parts, for rows of tokens whose parts are known.
    pub framer: Framer,
    /// The most tokens that it reads at a time, special ones included.
    pub max_tokens: usize,
    /// Its dimensions as BERT's, which the estimate of memory goes by.
    pub dimensions: TextEncoderConfig,
}

/// Reads a backbone from the folder that `model.path` or `model.source.hub` stands for.
pub type LoadText = fn(&Path, &Device) -> Result<TextBackbone, BoxError>;

/// Why an architecture is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is an architecture called `{name}` already: give yours another name")]
pub struct NameTaken {
    /// The name.
    pub name: &'static str,
}

/// Why there is no backbone of text.
#[derive(Debug, thiserror::Error)]
pub enum TextBackboneError {
    /// The folder is no model.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It is another architecture.
    #[error("`{}` holds a model of type `{found}`, and `model.backbone` is `{expected}`: set it to `{found}`", folder.display())]
    Architecture {
        /// The folder.
        folder: PathBuf,
        /// What it holds.
        found: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// Its tokenizer is no text encoder's.
    #[error(transparent)]
    Tokenizer(#[from] TextError),
    /// What a registered architecture said.
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

/// Makes an architecture for text known to YAML: from then on, `model: {backbone: name, path: folder}` is one of these. To
/// register the same again changes nothing.
///
/// # Errors
/// When another architecture has the name.
pub fn register(name: &'static str, load: LoadText) -> Result<(), NameTaken> {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    match registry.entries.iter().find(|entry| entry.name == name) {
        Some(Entry { read: Read::Registered(known), .. }) if std::ptr::fn_addr_eq(*known, load) => Ok(()),
        Some(_) => Err(NameTaken { name }),
        None => {
            registry.entries.push(Entry { name, read: Read::Registered(load) });
            registry.name_all();
            Ok(())
        }
    }
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
    /// When the folder is no such model.
    pub(crate) fn load_text(self, folder: &Path, device: &Device) -> Result<TextBackbone, TextBackboneError> {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let read = registry.entries.iter().find(|entry| entry.name == self.0).map(|entry| entry.read);
        drop(registry);
        match read {
            Some(Read::Registered(load)) => load(folder, device).map_err(|source| TextBackboneError::Registered {
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

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let known = registry.names.iter().find(|known| **known == name);
        known.map(|name| Self(name)).ok_or_else(|| D::Error::unknown_variant(&name, registry.names))
    }
}

impl TextBackbone {
    /// Around a network that reads at most `max_tokens`.
    ///
    /// # Errors
    /// When the tokenizer does not enclose texts in a start and an end token.
    pub fn new(network: BoxedBackbone, tokenizer: TextTokenizer, max_tokens: usize) -> Result<Self, TextError> {
        let [vocab_size, hidden_size] = network.token_embedding().weight.dims();
        let dimensions = TextEncoderConfig {
            vocab_size,
            hidden_size,
            num_hidden_layers: network.block_count(),
            // As BERT has it: heads of 64, and four times the width between the feed-forward layers.
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

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| {
    let built_in = [Architecture::WHISPER, Architecture::BERT, Architecture::ROBERTA];
    let entries = built_in.map(|Architecture(name)| Entry { name, read: Read::BuiltIn }).to_vec();
    let mut registry = Registry { entries, names: &[] };
    registry.name_all();
    RwLock::new(registry)
});

struct Registry {
    entries: Vec<Entry>,
    /// For serde's errors, which name what there is for as long as the program runs.
    names: &'static [&'static str],
}

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

impl Registry {
    /// A few words for each architecture, once.
    fn name_all(&mut self) {
        self.names = Box::leak(self.entries.iter().map(|entry| entry.name).collect::<Vec<_>>().into_boxed_slice());
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
        assert_eq!(register("pigeon", refuse_too), Err(NameTaken { name: "pigeon" }));
        assert_eq!(register("bert", refuse), Err(NameTaken { name: "bert" }));
        let pigeon = read("pigeon").expect("known");
        assert!(pigeon.is_text() && !Architecture::WHISPER.is_text());
        assert_eq!(serde_json::to_value(pigeon).expect("JSON"), "pigeon");
        let refused = pigeon.load_text(Path::new("loft"), &Device::default()).err().expect("refused").to_string();
        assert_eq!(refused, "`loft` cannot be read as a backbone of type `pigeon`: it has no weights");
    }
}
