//! Error of a model or a dataset that is not available.

use std::path::PathBuf;
use undertone_exchange::ExchangeError;
use undertone_hub::HubError;
use undertone_model::ConfigError;
use undertone_model::whisper::{BUNDLED, FolderError, GrowthError, TokenizerError};
use undertone_tasks::TextError;
use undertone_train::BoxError;

/// Reason why a model, or a dataset from the hub, is not available.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No bundled model has this name.
    #[error("there is no bundled model `{}`: there is {}", .0, BUNDLED.join(", "))]
    NotBundled(String),
    /// The path of a Whisper is not a folder.
    #[error(
        "`{}` is not a model: give a local folder in the Hugging Face layout (config.json, model.safetensors, tokenizer.json), \
         a file or folder of whisper.cpp, openai-whisper or CTranslate2, or a bundled model ({}; in a configuration as `model.source.bundled`)", .0.display(), BUNDLED.join(", ")
    )]
    NoWhisper(PathBuf),
    /// The folder holds no valid model.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file of another program holds no valid model.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An adapter by itself is half of what was trained for a task.
    #[error(
        "`{}` is the adapter of a task, whose head is beside it and not in it: give the directory of the run or stage, and \
         --task if there are several", .0.display()
    )]
    AdapterOfTask(PathBuf),
    /// The base of an adapter is an adapter, too.
    #[error(
        "`{}` is an adapter for `{}`, which is an adapter, too: merge that one first, with `export --model`", folder.display(),
        base.display()
    )]
    AdapterOfAdapter {
        /// Folder of the adapter.
        folder: PathBuf,
        /// Folder of its base.
        base: PathBuf,
    },
    /// The dimensions describe no valid model.
    #[error("`model.source.config`: {0}")]
    Config(#[from] ConfigError),
    /// The model cannot keep this number of blocks.
    #[error("`model`: {0}")]
    Layers(ConfigError),
    /// The model does not grow from the other one.
    #[error("`model.source.grow_from`: {0}")]
    Growth(#[from] GrowthError),
    /// The vocabulary cannot be created.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The vocabulary file is not one of a Whisper.
    #[error("`{}`: {source}", path.display())]
    TokenizerFile {
        /// File.
        path: PathBuf,
        /// Reason.
        source: TokenizerError,
    },
    /// The vocabulary has to be trained, and there are no texts.
    #[error("`model.tokenizer.vocab_size` is trained on the texts of an experiment: give `path` where there is none")]
    Untrained,
    /// A newly initialised model has no vocabulary.
    #[error(
        "a model with `model.source.config` needs a vocabulary: give `model.tokenizer`, or register a source with an \
         alphabet as the default, as `undertone::register()` does"
    )]
    NoVocabulary,
    /// The texts to train the vocabulary on are not available.
    #[error("`model.tokenizer.vocab_size`: {0}")]
    Corpus(BoxError),
    /// The configuration names no encoder.
    #[error("{0}")]
    NoEncoder(String),
    /// The backbone lacks the part that is to be trained.
    #[error(
        "`model.trainable` is `{part}`, and no parameter of the backbone `{backbone}` has a path that begins with `{part}.`: \
         set it to `all`, or to `lora` for an adapter"
    )]
    NoPart {
        /// Value of `model.trainable`.
        part: &'static str,
        /// Architecture of the backbone.
        backbone: &'static str,
    },
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
    TextTokenizer(#[from] TextError),
    /// A registered architecture cannot be loaded.
    #[error("`{}` cannot be read as a backbone of type `{architecture}`: {source}", folder.display())]
    Registered {
        /// The folder.
        folder: PathBuf,
        /// The architecture.
        architecture: &'static str,
        /// The reason.
        source: BoxError,
    },
    /// The hub did not provide a model.
    #[error("{0} as `model.path`")]
    Model(HubError),
    /// The hub did not provide a dataset.
    #[error(transparent)]
    Dataset(HubError),
}
