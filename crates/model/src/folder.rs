//! Common parts of model folders in the Hugging Face layout: weights in one file or in shards, JSON objects, and small
//! files that are copied along.

use crate::adaptable::{Adaptable, unload};
use burn::module::Module;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use undertone_store::{
    Dtype, HostTensor, StoreError, TensorFile, TensorSource, TorchFile, parameters, replace_directory, write_tensors,
};

/// Reason why a folder is not a model, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder does not exist.
    #[error("`{}` is not a folder: give a local folder in the Hugging Face layout (config.json, model.safetensors, tokenizer.json)", .0.display())]
    NoFolder(PathBuf),
    /// A file of the folder cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Weights that are part of the program cannot be written to the temporary folder, from which they are read.
    #[error("cannot write the weights that come with the program to `{}`: {source}; set TMPDIR to a folder with room for them", path.display())]
    Unpack {
        /// Folder or file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A small file is too large.
    #[error("`{}` has more than {most} bytes, which no such file of a model has: take the one that came with the model", path.display())]
    TooLarge {
        /// File.
        path: PathBuf,
        /// Maximum size in bytes.
        most: u64,
    },
    /// A JSON file is malformed.
    #[error("`{}` is not a JSON object: {reason}", path.display())]
    Json {
        /// File.
        path: PathBuf,
        /// Message of the parser.
        reason: String,
    },
    /// There is no tokenizer.
    #[error("`{}` has no tokenizer: it needs tokenizer.json, or the files that it can be made of (vocab.txt for BERT, vocab.json and merges.txt for RoBERTa and Whisper)", .0.display())]
    NoTokenizer(PathBuf),
    /// The configuration does not describe such a model, or the tokenizer is of another kind.
    #[error("`{}`: {source}", path.display())]
    Content {
        /// File.
        path: PathBuf,
        /// Reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Files of the folder contradict each other.
    #[error("`{}`: {reason}", path.display())]
    Mismatch {
        /// File that contradicts `config.json`.
        path: PathBuf,
        /// Description of the contradiction.
        reason: String,
    },
    /// The configuration gives another size than the weights have.
    #[error(transparent)]
    Size(#[from] Box<WrongSize>),
    /// The weights do not fit the model.
    #[error("`{}`: {source}", path.display())]
    Weights {
        /// Folder.
        path: PathBuf,
        /// Tensor, and reason.
        source: StoreError,
    },
    /// The weights cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A size in a configuration that differs from that of the weights.
#[derive(Debug, thiserror::Error)]
#[error("`{}` says that `{key}` is {value}, and tensor `{tensor}` of the weights beside it has shape {found:?} instead of {expected:?}: take both from the same model", path.display())]
pub struct WrongSize {
    /// Path of the configuration.
    pub path: PathBuf,
    /// Key of the size.
    pub key: &'static str,
    /// Value of the key.
    pub value: usize,
    /// Name of the tensor.
    pub tensor: String,
    /// Shape by the configuration.
    pub expected: Vec<usize>,
    /// Shape in the file.
    pub found: Vec<usize>,
}

impl FolderError {
    /// Creates the error for the content of `path`.
    pub(crate) fn content(path: PathBuf, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Content { path, source: Box::new(source) }
    }
}

/// File of weights that are not sharded.
pub(crate) const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The same as older programs write them, in torch's format.
const TORCH_WEIGHTS: &str = "pytorch_model.bin";
const TORCH_INDEX: &str = "pytorch_model.bin.index.json";

/// Maximum size in bytes of files that hold settings, and of those that may hold a vocabulary. The largest existing
/// ones have some hundred kB and 35 MB.
const SETTINGS: u64 = 4 << 20;
const VOCABULARY: u64 = 128 << 20;

/// Small files of a model, each with its maximum size in bytes. No other file of a folder is read or written back: the
/// folder may also hold your transcripts, for example.
const SMALL_FILES: [(&str, u64); 12] = [
    ("config.json", SETTINGS),
    ("generation_config.json", SETTINGS),
    ("preprocessor_config.json", SETTINGS),
    ("processor_config.json", SETTINGS),
    ("tokenizer.json", VOCABULARY),
    ("tokenizer_config.json", SETTINGS),
    ("special_tokens_map.json", SETTINGS),
    ("added_tokens.json", SETTINGS),
    ("normalizer.json", SETTINGS),
    ("vocab.json", VOCABULARY),
    ("vocab.txt", VOCABULARY),
    ("merges.txt", VOCABULARY),
];

/// Weights of a folder: one file, or shards with an index.
pub(crate) struct Weights {
    files: BTreeMap<String, Box<dyn TensorSource>>,
    /// File of each tensor; empty if there is one file.
    index: BTreeMap<String, String>,
    origin: PathBuf,
}

/// Opens a file of weights: torch's format by its ending, else safetensors.
fn open_weights(path: &Path) -> Result<Box<dyn TensorSource>, StoreError> {
    Ok(match path.extension().is_some_and(|extension| extension == "bin") {
        true => Box::new(TorchFile::open(path)?),
        false => Box::new(TensorFile::open(path)?),
    })
}

impl Weights {
    /// Opens the weights of a folder: safetensors, or torch's format where there are none.
    pub(crate) fn open(dir: &Path) -> Result<Self, FolderError> {
        let there = [WEIGHTS, INDEX, TORCH_WEIGHTS, TORCH_INDEX].map(|name| dir.join(name));
        match there.iter().find(|path| path.exists()) {
            Some(path) if path.extension().is_some_and(|extension| extension == "json") => Self::sharded(dir, path),
            Some(path) => Self::single(path),
            None => Self::single(&there[0]),
        }
    }

    /// Opens the shards that an index lists.
    fn sharded(dir: &Path, index_path: &Path) -> Result<Self, FolderError> {
        let index_path = index_path.to_owned();
        let malformed = |reason: String| FolderError::Json { path: index_path.clone(), reason };
        let json = object(&index_path, &read_at_most(&index_path, VOCABULARY)?)?;
        let map = json.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| malformed("`weight_map` is missing".into()))?;
        let index: BTreeMap<String, String> =
            map.iter().filter_map(|(name, file)| Some((name.clone(), file.as_str()?.to_owned()))).collect();
        let mut files = BTreeMap::new();
        for name in index.values() {
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(malformed(format!("`{name}` is not the name of a file in this folder")));
            }
            if !files.contains_key(name) {
                files.insert(name.clone(), open_weights(&dir.join(name))?);
            }
        }
        Ok(Self { files, index, origin: index_path })
    }

    /// Opens the weights of one file.
    pub(crate) fn single(path: &Path) -> Result<Self, FolderError> {
        let files = BTreeMap::from([(WEIGHTS.to_owned(), open_weights(path)?)]);
        Ok(Self { files, index: BTreeMap::new(), origin: path.to_owned() })
    }

    /// Returns the file in which a tensor should be.
    fn file_of(&self, name: &str) -> Option<&dyn TensorSource> {
        let file = if self.index.is_empty() { WEIGHTS } else { self.index.get(name)? };
        self.files.get(file).map(|file| &**file)
    }
}

impl TensorSource for Weights {
    fn origin(&self) -> &Path {
        &self.origin
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.file_of(name)?.shape(name)
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        self.file_of(name).ok_or_else(|| self.missing(name))?.read(name)
    }
}

/// Reads the tensor that has one of several names; if none exists, the error names the first.
pub(crate) fn first_named(
    names: impl IntoIterator<Item = String>,
    mut read: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<HostTensor, StoreError> {
    let mut names = names.into_iter();
    let first = names.next().unwrap_or_default();
    names.fold(read(&first), |found, name| match found {
        Err(missing @ StoreError::Missing { .. }) => match read(&name) {
            Err(StoreError::Missing { .. }) => Err(missing),
            other => other,
        },
        found => found,
    })
}

/// Returns a model's parameters without those of its adapters.
pub(crate) fn base_parameters<M: Module + Adaptable>(model: &M) -> BTreeMap<String, HostTensor> {
    let mut model = model.valid();
    unload(&mut model);
    parameters(&model)
}

/// Reads the small files of a model that the folder has, such as `config.json` and `tokenizer.json`, by name.
///
/// # Errors
/// When there is no such folder, or a file in it cannot be read.
pub fn read_files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, FolderError> {
    if !dir.is_dir() {
        return Err(FolderError::NoFolder(dir.to_owned()));
    }
    let there = SMALL_FILES.iter().filter(|(name, _)| dir.join(name).is_file());
    there.map(|(name, most)| Ok(((*name).to_owned(), read_at_most(&dir.join(name), *most)?))).collect()
}

pub(crate) fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>, FolderError> {
    let io = |source| FolderError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(io)?;
    match bytes.len() as u64 > most {
        true => Err(FolderError::TooLarge { path: path.to_owned(), most }),
        false => Ok(bytes),
    }
}

/// Removes a file from `files`; an error if it is missing.
pub(crate) fn required(files: &mut BTreeMap<String, Vec<u8>>, dir: &Path, name: &str) -> Result<Vec<u8>, FolderError> {
    files
        .remove(name)
        .ok_or_else(|| FolderError::Io { path: dir.join(name), source: std::io::ErrorKind::NotFound.into() })
}

/// Parses a file as a JSON object.
pub(crate) fn object(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, FolderError> {
    serde_json::from_slice(bytes).map_err(|e| FolderError::Json { path: path.to_owned(), reason: e.to_string() })
}

/// Formats a JSON file with indentation.
pub(crate) fn pretty(json: Map<String, Value>) -> Vec<u8> {
    format!("{:#}\n", Value::Object(json)).into_bytes()
}

/// Writes a folder atomically. In an existing folder the model is replaced, and other files stay. `config.json` states
/// the type of the weights.
pub(crate) fn write(
    dir: &Path,
    config: Map<String, Value>,
    files: BTreeMap<String, Vec<u8>>,
    tensors: &BTreeMap<String, HostTensor>,
    dtype: Dtype,
) -> Result<(), StoreError> {
    write_with(dir, config, files, tensors, dtype, |_| Ok(()))
}

/// Writes a folder as [`write`] does, with what `more` writes into it.
pub(crate) fn write_with(
    dir: &Path,
    mut config: Map<String, Value>,
    mut files: BTreeMap<String, Vec<u8>>,
    tensors: &BTreeMap<String, HostTensor>,
    dtype: Dtype,
    more: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let name = match dtype {
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
    };
    config.remove("dtype");
    config.insert("torch_dtype".into(), name.into());
    files.insert("config.json".into(), pretty(config));
    replace_directory(dir, is_model_file, |dir| {
        for (name, bytes) in files {
            let path = dir.join(name);
            std::fs::write(&path, bytes).map_err(|source| StoreError::Io { action: "write", path, source })?;
        }
        write_tensors(&dir.join(WEIGHTS), tensors, dtype)?;
        more(dir)
    })
}

/// Whether a file of this name in a folder of the Hugging Face layout is part of the model: its weights, whole or in
/// shards, or one of its small files. Other files are neither read nor written.
pub fn is_model_file(name: &str) -> bool {
    let is_shard = |begin: &str, end: &str| name.starts_with(begin) && name.ends_with(end);
    is_shard("model-", ".safetensors")
        || is_shard("pytorch_model-", ".bin")
        || [WEIGHTS, INDEX, TORCH_WEIGHTS, TORCH_INDEX].contains(&name)
        || SMALL_FILES.iter().any(|(small, _)| *small == name)
}
