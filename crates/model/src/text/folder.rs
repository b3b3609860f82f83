//! A text encoder in a Hugging Face folder: reading it, and writing one back.

use super::{TextConfigError, TextEncoder, TextEncoderConfig, TextModelType, TextTokenizer, tensor_name};
use crate::folder::{self, FolderError, Weights, base_parameters, first_named, object, required};
use crate::shapes::compare;
use burn::tensor::Device;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_store::{Dtype, load_parameters};

/// A model with everything that travels with it.
#[derive(Clone, Debug)]
pub struct PretrainedText {
    /// The network.
    pub model: TextEncoder,
    /// Its dimensions.
    pub config: TextEncoderConfig,
    /// Its vocabulary.
    pub tokenizer: TextTokenizer,
    /// `config.json` as it was read; keys this crate does not know are written back.
    raw_config: Map<String, Value>,
    /// The folder's other small files (vocabulary, merges, special tokens), written back as they were.
    files: BTreeMap<String, Vec<u8>>,
}

impl PretrainedText {
    /// A freshly initialised model around a tokenizer; the vocabulary's size and padding token are the tokenizer's.
    ///
    /// # Errors
    /// When the configuration describes no model.
    pub fn init(
        mut config: TextEncoderConfig,
        tokenizer: TextTokenizer,
        device: &Device,
    ) -> Result<Self, TextConfigError> {
        config.vocab_size = tokenizer.vocab_size();
        config.pad_token_id = tokenizer.pad();
        config.validate()?;
        config.check_new()?;
        let model = config.init(device);
        Ok(Self { model, config, tokenizer, raw_config: Map::new(), files: BTreeMap::new() })
    }

    /// Reads a folder: `config.json`, `model.safetensors` (or its shards), `tokenizer.json` and the other small files of such
    /// a model; what else lies there is left alone.
    ///
    /// Tensors may have the prefix of a model with a head (`bert.`, `roberta.`). The pooler and the heads themselves are
    /// not read, and so not written back: they were trained on other states than an encoder that is trained here gives.
    ///
    /// # Errors
    /// Names the file or tensor that is missing or does not fit.
    pub fn load(dir: &Path, device: &Device) -> Result<Self, FolderError> {
        let mut files = folder::read_files(dir)?;
        let weights = Weights::open(dir)?;
        let config_path = dir.join("config.json");
        let raw_config = object(&config_path, &required(&mut files, dir, "config.json")?)?;
        let config = TextEncoderConfig::from_hf(&raw_config).map_err(|e| FolderError::content(config_path, e))?;
        let tokenizer = read_tokenizer(dir, &mut files)?;
        check(&tokenizer, &config, dir.join("tokenizer.json"))?;
        compare(dir, &weights, config.tensors(), |path| names(path, config.model_type))?;
        let model = load_parameters(config.init(device), |path| {
            first_named(names(path, config.model_type), |name| weights.read(name))
        })
        .map_err(|source| FolderError::Weights { path: dir.to_owned(), source })?;
        Ok(Self { model, config, tokenizer, raw_config, files })
    }

    /// Writes a folder that transformers loads, whole or not at all; of one that is there the model is replaced. It holds the bare
    /// encoder, without adapters: those are folders of their own.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn save(&self, dir: &Path, dtype: Dtype) -> Result<(), FolderError> {
        let mut config = self.raw_config.clone();
        self.config.write_hf(&mut config);
        let mut files = self.files.clone();
        files.insert("tokenizer.json".into(), self.tokenizer.to_bytes().to_vec());
        let tensors = base_parameters(&self.model).into_iter().map(|(path, t)| (tensor_name(&path), t)).collect();
        Ok(folder::write(dir, config, files, &tensors, dtype)?)
    }
}

fn read_tokenizer(dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<TextTokenizer, FolderError> {
    let bytes = required(files, dir, "tokenizer.json")?;
    let mut declared = Vec::new();
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        if let Some(bytes) = files.get(name) {
            declared.push(object(&dir.join(name), bytes)?);
        }
    }
    TextTokenizer::from_bytes(bytes, &declared).map_err(|e| FolderError::content(dir.join("tokenizer.json"), e))
}

/// Refuses a tokenizer that is another model's.
fn check(tokenizer: &TextTokenizer, config: &TextEncoderConfig, path: PathBuf) -> Result<(), FolderError> {
    let foreign = |what: String| {
        let reason = format!("{what}: take the tokenizer that came with the model");
        Err(FolderError::Mismatch { path, reason })
    };
    if tokenizer.vocab_size() > config.vocab_size {
        return foreign(format!("it has {} ids, the model has {}", tokenizer.vocab_size(), config.vocab_size));
    }
    // What encloses texts has its ids written out, and nothing says that the vocabulary has them.
    let framed = [tokenizer.inner().encode("", true), tokenizer.inner().encode(("", ""), true)];
    let highest = framed.iter().flatten().flat_map(|framed| framed.get_ids()).max();
    if let Some(id) = highest.filter(|id| **id as usize >= config.vocab_size) {
        return foreign(format!("it puts the id {id} around texts, the model has {} ids", config.vocab_size));
    }
    // BERT only ever masks its padding, whatever it is; RoBERTa's positions are counted from it.
    if config.model_type != TextModelType::Bert && tokenizer.pad() != config.pad_token_id {
        return foreign(format!("it pads with {}, the model with {}", tokenizer.pad(), config.pad_token_id));
    }
    Ok(())
}

/// What a file may call the parameter at `path`: the bare encoder's name, that behind a head's prefix, and the names that
/// scale and shift of norms had in the first checkpoints.
fn names(path: &str, model_type: TextModelType) -> Vec<String> {
    let name = tensor_name(path);
    let first = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    [name, first].iter().flat_map(|name| [name.clone(), format!("{}{name}", model_type.prefix())]).collect()
}
