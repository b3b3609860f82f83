//! Text encoders in Hugging Face folders.

use super::{TextEncoder, TextEncoderConfig, TextHead, TextModelType, TextTokenizer, tensor_name, vocabulary};
use crate::config_error::ConfigError;
use crate::folder::{self, FolderError, Weights, base_parameters, first_named, object, required};
use crate::peft;
use crate::shapes::compare;
use burn::tensor::Device;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_ops::undrawn;
use undertone_store::{Dtype, HostTensor, TensorSource, load_parameters};

/// A text encoder with all files of its folder.
#[derive(Clone, Debug)]
pub struct PretrainedText {
    /// Network.
    pub model: TextEncoder,
    /// Dimensions.
    pub config: TextEncoderConfig,
    /// Tokenizer.
    pub tokenizer: TextTokenizer,
    /// `config.json` as it was read; keys this crate does not know are written back.
    raw_config: Map<String, Value>,
    /// The folder's other small files (vocabulary, merges, special tokens), written back as they were.
    files: BTreeMap<String, Vec<u8>>,
}

impl PretrainedText {
    /// Creates a model around a tokenizer; vocabulary size and padding token are the tokenizer's.
    ///
    /// # Errors
    /// When the configuration does not describe a model.
    pub fn init(mut config: TextEncoderConfig, tokenizer: TextTokenizer, device: &Device) -> Result<Self, ConfigError> {
        config.vocab_size = tokenizer.vocab_size();
        config.pad_token_id = tokenizer.pad();
        config.validate()?;
        config.check_new()?;
        let model = config.init(device);
        Ok(Self { model, config, tokenizer, raw_config: Map::new(), files: BTreeMap::new() })
    }

    /// Reads a folder: `config.json`, `model.safetensors` (or its shards), `tokenizer.json` (or the vocabulary's parts) and the other small files
    /// of such a model. Other files in it are ignored.
    ///
    /// Tensors may have the prefix of a model with a head (`bert.`, `roberta.`). The pooler and the heads themselves
    /// are not read, and so not written back: they were trained on other states than those of an encoder trained here.
    ///
    /// # Errors
    /// Names the file or tensor that is missing or does not fit.
    pub fn load(dir: &Path, device: &Device) -> Result<Self, FolderError> {
        let mut files = folder::read_files(dir)?;
        if !files.contains_key("config.json") && dir.join(peft::CONFIG).exists() {
            let reason = "it is an adapter without its model: merge it with PEFT's `merge_and_unload`, and give the folder of the result";
            return Err(FolderError::Mismatch { path: dir.to_owned(), reason: reason.into() });
        }
        let weights = Weights::open(dir)?;
        let config_path = dir.join("config.json");
        let raw_config = object(&config_path, &required(&mut files, dir, "config.json")?)?;
        let config = TextEncoderConfig::from_hf(&raw_config).map_err(|e| FolderError::content(config_path, e))?;
        let tokenizer = read_tokenizer(dir, &mut files, config.model_type)?;
        check(&tokenizer, &config, dir.join("tokenizer.json"))?;
        compare(dir, &weights, config.tensors(), |path| names(path, config.model_type))?;
        let model = load_parameters(undrawn(|| config.init(device)), |path| {
            first_named(names(path, config.model_type), |name| weights.read(name))
        })
        .map_err(|source| FolderError::Weights { path: dir.to_owned(), source })?;
        Ok(Self { model, config, tokenizer, raw_config, files })
    }

    /// Writes a folder that transformers loads, atomically; in an existing folder the model is replaced. It holds the
    /// bare encoder without adapters, which have folders of their own.
    ///
    /// # Errors
    /// When the file system reports an error.
    pub fn save(&self, dir: &Path, dtype: Dtype) -> Result<(), FolderError> {
        let mut config = self.raw_config.clone();
        self.config.write_hf(&mut config);
        Ok(folder::write(dir, config, self.small_files(), &self.tensors(""), dtype)?)
    }

    /// Writes the encoder with a head atomically, as transformers or sentence-transformers loads it. They cut texts to
    /// `max_tokens` tokens, if they cut them.
    ///
    /// # Errors
    /// When the file system reports an error.
    pub fn save_with_head(
        &self,
        head: &TextHead,
        max_tokens: usize,
        dir: &Path,
        dtype: Dtype,
    ) -> Result<(), FolderError> {
        let model_type = self.config.model_type;
        let (mut config, mut files) = (self.raw_config.clone(), self.small_files());
        self.config.write_hf(&mut config);
        bound(&mut files, self.config.max_tokens());
        if let Some(modules) = head.modules(model_type, max_tokens) {
            return Ok(folder::write_with(dir, config, files, &self.tensors(""), dtype, |dir| modules.write(dir))?);
        }
        head.write_hf(&mut config, model_type);
        if matches!(head, TextHead::Tag { .. }) && model_type == TextModelType::Roberta {
            separate_words(&mut files);
        }
        let mut tensors = self.tensors(model_type.prefix());
        tensors.extend(head.tensors(model_type));
        Ok(folder::write(dir, config, files, &tensors, dtype)?)
    }

    fn small_files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files.clone();
        files.insert("tokenizer.json".into(), self.tokenizer.to_bytes().to_vec());
        files
    }

    /// Parameters under Hugging Face's names behind a prefix.
    fn tensors(&self, prefix: &str) -> BTreeMap<String, HostTensor> {
        let named = |(path, tensor): (String, HostTensor)| {
            (format!("{prefix}{}", tensor_name(&path, self.config.model_type)), tensor)
        };
        base_parameters(&self.model).into_iter().map(named).collect()
    }
}

/// Lets a byte-level tokenizer put a space before every word, as words are tagged here: without it the first has other tokens than
/// in a text, and given words have other tokens throughout.
fn separate_words(files: &mut BTreeMap<String, Vec<u8>>) {
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let Some(Ok(mut json)) = files.get(name).map(|bytes| serde_json::from_slice::<Value>(bytes)) else { continue };
        prefix_words(&mut json);
        if let (Value::Object(config), "tokenizer_config.json") = (&mut json, name) {
            config.insert("add_prefix_space".into(), true.into());
        }
        files.insert(name.into(), json.to_string().into_bytes());
    }
}

/// Sets every `add_prefix_space` in the parts of a tokenizer.
fn prefix_words(json: &mut Value) {
    match json {
        Value::Object(parts) => parts.iter_mut().for_each(|(key, part)| match key.as_str() {
            "add_prefix_space" => *part = true.into(),
            // Its tokens are no settings.
            "vocab" | "merges" => {}
            _ => prefix_words(part),
        }),
        Value::Array(parts) => parts.iter_mut().for_each(prefix_words),
        _ => {}
    }
}

/// Reads the tokenizer, and makes it of the vocabulary's parts where there is no `tokenizer.json`.
fn read_tokenizer(
    dir: &Path,
    files: &mut BTreeMap<String, Vec<u8>>,
    model_type: TextModelType,
) -> Result<TextTokenizer, FolderError> {
    let mut declared = Vec::new();
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        if let Some(bytes) = files.get(name) {
            declared.push(object(&dir.join(name), bytes)?);
        }
    }
    let (name, bytes) = match files.remove("tokenizer.json") {
        Some(bytes) => ("tokenizer.json", bytes),
        None => {
            let parts = vocabulary::of_files(files, &declared, model_type);
            let parts = parts.ok_or_else(|| FolderError::NoTokenizer(dir.to_owned()))?;
            let name = if model_type.is_bert() { "vocab.txt" } else { "vocab.json" };
            (name, parts.map_err(|reason| FolderError::Mismatch { path: dir.to_owned(), reason })?)
        }
    };
    TextTokenizer::from_bytes(bytes, &declared).map_err(|e| FolderError::content(dir.join(name), e))
}

/// Rejects a tokenizer of another model.
fn check(tokenizer: &TextTokenizer, config: &TextEncoderConfig, path: PathBuf) -> Result<(), FolderError> {
    let foreign = |what: String| {
        let reason = format!("{what}: take the tokenizer that came with the model");
        Err(FolderError::Mismatch { path, reason })
    };
    if tokenizer.vocab_size() > config.vocab_size {
        return foreign(format!("it has {} ids, the model has {}", tokenizer.vocab_size(), config.vocab_size));
    }
    // The post-processor contains ids literally, and they need not be in the vocabulary.
    let framed = [tokenizer.inner().encode("", true), tokenizer.inner().encode(("", ""), true)];
    let highest = framed.iter().flatten().flat_map(|framed| framed.get_ids()).max();
    if let Some(id) = highest.filter(|id| **id as usize >= config.vocab_size) {
        return foreign(format!("it puts the id {id} around texts, the model has {} ids", config.vocab_size));
    }
    let types = framed.iter().flatten().flat_map(|framed| framed.get_type_ids()).max();
    if let Some(id) =
        types.filter(|id| config.model_type == TextModelType::Bert && **id as usize >= config.type_vocab_size)
    {
        return foreign(format!(
            "it marks a second text by the type {id}, the model has {} types",
            config.type_vocab_size
        ));
    }
    // BERT only masks its padding, whatever token it is; RoBERTa's positions are counted from the padding token.
    if !config.model_type.is_bert() && tokenizer.pad() != config.pad_token_id {
        return foreign(format!("it pads with {}, the model with {}", tokenizer.pad(), config.pad_token_id));
    }
    Ok(())
}

/// Names that a file may use for the parameter at `path`: the bare encoder's name, the name behind a head's prefix, and
/// the names of a norm's scale and shift in the first checkpoints.
fn names(path: &str, model_type: TextModelType) -> Vec<String> {
    let name = tensor_name(path, model_type);
    let first = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    [name, first].iter().flat_map(|name| [name.clone(), format!("{}{name}", model_type.prefix())]).collect()
}

/// Number of tokens above which a `model_max_length` is none.
const UNBOUNDED: f64 = 1e9;

/// Gives a tokenizer the maximum number of tokens, if its configuration has none, or the number beyond any that transformers writes for
/// that: a program would not know that the encoder has an end.
fn bound(files: &mut BTreeMap<String, Vec<u8>>, max_tokens: usize) {
    const KEY: &str = "model_max_length";
    let file = files.entry("tokenizer_config.json".into()).or_insert_with(|| b"{}".to_vec());
    let Ok(mut config) = serde_json::from_slice::<Map<String, Value>>(file) else { return };
    if config.get(KEY).and_then(Value::as_f64).is_some_and(|length| length < UNBOUNDED) {
        return;
    }
    config.insert(KEY.into(), max_tokens.into());
    if let Ok(text) = serde_json::to_vec_pretty(&config) {
        *file = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_without_a_maximum_gets_one() {
        let bounded = |own: Option<&str>| {
            let own = own.map(|own| ("tokenizer_config.json".to_owned(), own.as_bytes().to_vec()));
            let mut files: BTreeMap<_, _> = own.into_iter().collect();
            bound(&mut files, 512);
            String::from_utf8(files.remove("tokenizer_config.json").expect("a file")).expect("text")
        };
        let maximum = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["model_max_length"].clone();
        assert_eq!(maximum(&bounded(None)), 512);
        let unbounded =
            bounded(Some(r#"{"do_lower_case": true, "model_max_length": 1000000000000000019884624838656}"#));
        assert!(maximum(&unbounded) == 512 && unbounded.contains("do_lower_case"), "{unbounded}");
        let own = r#"{"model_max_length": 128}"#;
        assert_eq!(bounded(Some(own)), own);
    }
}
