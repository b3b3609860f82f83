//! Whisper models in Hugging Face folders.

use super::companions::{alignment_heads, companions, generation_json};
use super::generation_config::TASKS;
use super::{GenerateOptions, GenerationConfig, Whisper, WhisperConfig, WhisperTokenizer, vocabulary};
use crate::config_error::ConfigError;
use crate::folder::{self, FolderError, WEIGHTS, Weights, base_parameters, first_named, object, pretty, required};
use crate::limits::MOST_BEAMS;
use crate::peft::PeftLora;
use crate::shapes::compare;
use burn::tensor::Device;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use undertone_ops::undrawn;
use undertone_store::{Dtype, HostTensor, StoreError, TensorSource, load_parameters};

/// A Whisper model with all files of its folder.
#[derive(Clone, Debug)]
pub struct PretrainedWhisper {
    /// Network.
    pub model: Whisper,
    /// Dimensions.
    pub config: WhisperConfig,
    /// Tokenizer.
    pub tokenizer: WhisperTokenizer,
    /// Decoding settings.
    pub generation: GenerationConfig,
    /// `config.json` as it was read; keys this crate does not know are written back.
    pub(super) raw_config: Map<String, Value>,
    /// The folder's other small files (preprocessor, vocabulary, merges), written back as they were.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// Token that ends a text in OpenAI's English-only models.
const ENGLISH_END: u32 = 50256;

impl PretrainedWhisper {
    /// Name of the file of [`spellings`](Self::spellings).
    pub const SPELLINGS: &str = "normalizer.json";

    /// Creates a model around a tokenizer; the token ids in `config` are replaced by the tokenizer's.
    ///
    /// # Errors
    /// When the configuration does not describe a model, or describes one of more than
    /// [`MOST_NEW_PARAMETERS`](crate::limits::MOST_NEW_PARAMETERS).
    pub fn init(
        mut config: WhisperConfig,
        tokenizer: WhisperTokenizer,
        generation: GenerationConfig,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        config.vocab_size = tokenizer.vocab_size();
        config.decoder_start_token_id = tokenizer.start();
        config.eos_token_id = tokenizer.end();
        config.pad_token_id = tokenizer.end();
        config.validate()?;
        config.check_new()?;
        let files = BTreeMap::new();
        Ok(Self { model: config.init(device), config, tokenizer, generation, raw_config: Map::new(), files })
    }

    /// Reads a folder: `config.json`, `model.safetensors` (or its shards), `tokenizer.json` and the other small files
    /// of such a model. Other files in it are ignored.
    ///
    /// # Errors
    /// Names the file or tensor that is missing or does not fit.
    pub fn load(dir: &Path, device: &Device) -> Result<Self, FolderError> {
        let files = folder::read_files(dir)?;
        let weights = Weights::open(dir)?;
        Self::of_tensors(dir, files, &weights, device)
    }

    /// Builds a model from the files of a folder held in memory, weights included.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn from_files(
        origin: &Path,
        mut files: BTreeMap<String, Vec<u8>>,
        device: &Device,
    ) -> Result<Self, FolderError> {
        let weights = files.remove(WEIGHTS).unwrap_or_default();
        // The reader maps files into memory, so bytes that are part of the binary are written to a temporary folder.
        let dir = tempfile::tempdir().map_err(|source| FolderError::Unpack { path: std::env::temp_dir(), source })?;
        let path = dir.path().join(WEIGHTS);
        std::fs::write(&path, weights).map_err(|source| FolderError::Unpack { path: path.clone(), source })?;
        let weights = Weights::single(&path)?;
        Self::of_tensors(origin, files, &weights, device)
    }

    /// Builds a model from the small files of a folder and weights under Hugging Face's names, which may come from a file of
    /// another format. `dir` is their place in errors.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn of_tensors(
        dir: &Path,
        mut files: BTreeMap<String, Vec<u8>>,
        weights: &dyn TensorSource,
        device: &Device,
    ) -> Result<Self, FolderError> {
        let config_path = dir.join("config.json");
        let raw_config = object(&config_path, &required(&mut files, dir, "config.json")?)?;
        let config = WhisperConfig::from_hf(&raw_config).map_err(|e| FolderError::content(config_path, e))?;

        let (name, bytes) = tokenizer_file(dir, &mut files)?;
        let tokenizer_path = dir.join(name);
        let tokenizer =
            WhisperTokenizer::from_bytes(bytes).map_err(|e| FolderError::content(tokenizer_path.clone(), e))?;
        if tokenizer.vocab_size() > config.vocab_size || tokenizer.start() != config.decoder_start_token_id {
            let reason = format!(
                "it has {} tokens and starts with {}, the model has {} and starts with {}: take the tokenizer that came with the model",
                tokenizer.vocab_size(),
                tokenizer.start(),
                config.vocab_size,
                config.decoder_start_token_id,
            );
            return Err(FolderError::Mismatch { path: tokenizer_path, reason });
        }
        let mut settings = match files.remove("generation_config.json") {
            Some(bytes) => object(&dir.join("generation_config.json"), &bytes)?,
            // As transformers does.
            None => of_model(&raw_config),
        };
        // The vocabulary of OpenAI's English-only models contains languages all the same, and ends its text with token 50256, one before
        // the others. Files from before these settings existed do not say it.
        let is_multilingual = tokenizer.end() != ENGLISH_END && tokenizer.special_token("<|transcribe|>").is_some();
        settings.entry("is_multilingual").or_insert(is_multilingual.into());
        let mut generation = GenerationConfig::from_json(settings);
        let task = |task: &str| Some((tokenizer.special_token(&format!("<|{task}|>"))?, task.to_owned()));
        let languages = tokenizer.languages().into_iter().map(|(token, id)| (id, token));
        generation.take_forced(&languages.chain(TASKS.into_iter().filter_map(task)).collect());
        // transformers 5 has the settings of the features within those of the processor.
        for (name, section) in
            [("preprocessor_config.json", None), ("processor_config.json", Some("feature_extractor"))]
        {
            let Some(bytes) = files.get(name) else { continue };
            let path = dir.join(name);
            let settings = Value::Object(object(&path, bytes)?);
            let features = section.map_or(&settings, |section| &settings[section]);
            let bins = features["feature_size"].as_u64();
            if let Some(bins) = bins.filter(|bins| *bins != config.num_mel_bins as u64) {
                let reason = format!("`feature_size` is {bins}, the model's `num_mel_bins` is {}", config.num_mel_bins);
                return Err(FolderError::Mismatch { path, reason });
            }
        }
        // Tensors of a `WhisperModel` saved without its head have no prefix.
        let names = |name: &str| vec![format!("model.{name}"), name.to_owned()];
        compare(dir, weights, config.tensors(), names)?;
        check_output_layer(dir, &raw_config, weights)?;
        let model = load_parameters(undrawn(|| config.init(device)), |name| {
            first_named(names(name), |name| weights.read(name))
        })
        .map_err(|source| FolderError::Weights { path: dir.to_owned(), source })?;
        Ok(Self { model, config, tokenizer, generation, raw_config, files })
    }

    /// Language of a model that knows one alone, if that is known: English of OpenAI's English-only models.
    pub fn only_language(&self) -> Option<&str> {
        let english = (self.tokenizer.end() == ENGLISH_END).then_some("en");
        self.generation.language.as_deref().or(english).filter(|_| !self.generation.is_multilingual)
    }

    /// Merges a LoRA that PEFT saved for this model.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn merge_lora(&mut self, lora: &PeftLora) -> Result<(), FolderError> {
        let mut parameters = base_parameters(&self.model);
        lora.merge(&mut parameters, |name| Some(name.strip_prefix("model.").unwrap_or(name).to_owned()))?;
        let missing = |name: &str| StoreError::Missing { name: name.to_owned(), origin: "the merged model".into() };
        self.model = load_parameters(self.model.clone(), |name| parameters.remove(name).ok_or_else(|| missing(name)))?;
        Ok(())
    }

    /// Writes a folder that transformers and CTranslate2's converter load, atomically; in an existing folder the model is
    /// replaced. Small files that the model came without are added.
    ///
    /// # Errors
    /// When the file system reports an error.
    pub fn save(&self, dir: &Path, dtype: Dtype) -> Result<(), FolderError> {
        let mut config = self.raw_config.clone();
        self.config.write_hf(&mut config);
        config.remove("forced_decoder_ids");
        let mut files = companions(&self.config, &self.tokenizer);
        files.extend(self.files.clone());
        let generation = generation_json(&self.generation, &self.config, &self.tokenizer);
        files.insert("generation_config.json".into(), pretty(generation));
        files.insert("tokenizer.json".into(), self.tokenizer.to_bytes().to_vec());
        let tensors = self.tensors().into_iter().map(|(name, t)| (format!("model.{name}"), t)).collect();
        Ok(folder::write(dir, config, files, &tensors, dtype)?)
    }

    /// Returns the network's tensors by path, without those of adapters.
    pub fn tensors(&self) -> BTreeMap<String, HostTensor> {
        base_parameters(&self.model)
    }

    /// Returns the content of `normalizer.json`, if the folder has one: British spellings and their American
    /// equivalents, for comparisons of English texts. It is written back unchanged.
    pub fn spellings(&self) -> Option<&[u8]> {
        self.files.get(Self::SPELLINGS).map(Vec::as_slice)
    }

    /// Replaces the content of `normalizer.json`.
    pub fn set_spellings(&mut self, json: Vec<u8>) {
        self.files.insert(Self::SPELLINGS.to_owned(), json);
    }

    /// Returns the keys of `config.json` by which transformers would mask features or leave out layers in training, and which this
    /// crate does not read.
    pub fn unread_regularisation(&self) -> Vec<&'static str> {
        let is_set = |key: &&str| match self.raw_config.get(*key) {
            Some(Value::Bool(on)) => *on,
            Some(Value::Number(share)) => share.as_f64().is_some_and(|share| share > 0.0),
            _ => false,
        };
        ["apply_spec_augment", "encoder_layerdrop", "decoder_layerdrop"].into_iter().filter(|key| is_set(key)).collect()
    }

    /// Returns the decoder's attention heads that follow the audio, as layer and head: those of `generation_config.json`, and
    /// else those that are usual for a model of these sizes.
    pub fn alignment_heads(&self) -> Vec<(usize, usize)> {
        let exists = |(layer, head): &(usize, usize)| {
            *layer < self.config.decoder_layers && *head < self.config.decoder_attention_heads
        };
        let named: Vec<_> = self.generation.alignment_heads().into_iter().filter(exists).collect();
        if !named.is_empty() {
            return named;
        }
        alignment_heads(&self.config).into_iter().map(|[layer, head]| (layer, head)).collect()
    }

    /// Returns options of [`Whisper::generate`] for plain text.
    pub fn generate_options(&self) -> GenerateOptions {
        let mut suppress = self.generation.suppress_tokens.clone();
        suppress.extend(self.tokenizer.control_tokens());
        let max_length = self.generation.max_length.unwrap_or(usize::MAX).min(self.config.max_target_positions);
        let usual = GenerateOptions::new(self.tokenizer.end(), max_length);
        GenerateOptions {
            suppress,
            begin_suppress: self.generation.begin_suppress_tokens.clone(),
            beams: self.generation.num_beams.unwrap_or(usual.beams).min(MOST_BEAMS),
            length_penalty: self.generation.length_penalty.unwrap_or(usual.length_penalty),
            no_repeat_ngram: self.generation.no_repeat_ngram_size.unwrap_or(usual.no_repeat_ngram),
            ..usual
        }
    }
}

/// Returns the content of `tokenizer.json`, and the name of the file that it comes from. Where there is none, it is made
/// of the vocabulary's parts.
fn tokenizer_file(dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(&'static str, Vec<u8>), FolderError> {
    if let Some(bytes) = files.remove("tokenizer.json") {
        return Ok(("tokenizer.json", bytes));
    }
    let parts = vocabulary::of_files(files).ok_or_else(|| FolderError::NoTokenizer(dir.to_owned()))?;
    let bytes = parts.map_err(|reason| FolderError::Mismatch { path: dir.to_owned(), reason })?;
    Ok(("vocab.json", bytes))
}

/// Refuses a model whose output layer is not its token embedding, as all of OpenAI's are.
fn check_output_layer(dir: &Path, config: &Map<String, Value>, weights: &dyn TensorSource) -> Result<(), FolderError> {
    if config.get("tie_word_embeddings") != Some(&Value::Bool(false)) {
        return Ok(());
    }
    let read = |names: &[&str]| names.iter().find_map(|name| weights.read(name).ok());
    let output = read(&["proj_out.weight"]);
    let embedding = read(&["model.decoder.embed_tokens.weight", "decoder.embed_tokens.weight"]);
    if output.is_none_or(|output| embedding.is_some_and(|embedding| embedding.data == output.data)) {
        return Ok(());
    }
    let reason = "`tie_word_embeddings` is false, and the output layer (`proj_out.weight`) is not the token embedding: such a model \
                  cannot be read here, tie the two and train on";
    Err(FolderError::Mismatch { path: dir.join("config.json"), reason: reason.into() })
}

/// Returns the settings of generation in a `config.json`.
fn of_model(config: &Map<String, Value>) -> Map<String, Value> {
    let keys = ["suppress_tokens", "begin_suppress_tokens", "max_length"];
    let given = |key: &str| Some((key.to_owned(), config.get(key).filter(|value| !value.is_null())?.clone()));
    keys.into_iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_store::{TensorFile, write_tensors};

    #[test]
    fn what_regularises_training_in_transformers_alone_is_named() {
        let device = Device::default();
        let mut files = crate::whisper::bundled("whisper-nano-cw").expect("a bundled model");
        let load = |files: BTreeMap<String, Vec<u8>>| {
            PretrainedWhisper::from_files(Path::new("bundled"), files, &device).expect("loaded").unread_regularisation()
        };
        assert!(load(files.clone()).is_empty());
        let mut config: Map<String, Value> = serde_json::from_slice(&files["config.json"]).expect("JSON");
        config.extend([("apply_spec_augment".into(), true.into()), ("encoder_layerdrop".into(), 0.into())]);
        config.insert("decoder_layerdrop".into(), 0.1.into());
        files.insert("config.json".into(), serde_json::to_vec(&config).expect("JSON"));
        assert_eq!(load(files), ["apply_spec_augment", "decoder_layerdrop"]);
    }

    #[test]
    fn an_output_layer_that_is_not_the_embedding_is_refused() {
        let device = Device::default();
        let files = crate::whisper::bundled("whisper-nano-cw").expect("a bundled model");
        let whisper = PretrainedWhisper::from_files(Path::new("bundled"), files, &device).expect("loaded");
        let folder = tempfile::tempdir().expect("a folder");
        whisper.save(folder.path(), Dtype::F32).expect("written");
        let config = folder.path().join("config.json");
        let untied = std::fs::read_to_string(&config).expect("read");
        let untied = untied.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        std::fs::write(&config, untied).expect("written");
        let weights = folder.path().join(WEIGHTS);
        let read = |name: &str| TensorFile::open(&weights).and_then(|file| file.read(name)).expect("a tensor");
        let names = TensorFile::open(&weights).expect("a file").names();
        let mut tensors: BTreeMap<String, HostTensor> = names.iter().map(|name| (name.clone(), read(name))).collect();
        let mut output = tensors["model.decoder.embed_tokens.weight"].clone();
        tensors.insert("proj_out.weight".into(), output.clone());
        write_tensors(&weights, &tensors, Dtype::F32).expect("written");
        PretrainedWhisper::load(folder.path(), &device).expect("equal weights are as good as tied ones");
        output.data[0] += 1.0;
        tensors.insert("proj_out.weight".into(), output);
        write_tensors(&weights, &tensors, Dtype::F32).expect("written");
        let error = PretrainedWhisper::load(folder.path(), &device).expect_err("refused").to_string();
        assert!(error.contains("tie_word_embeddings") && error.contains("config.json"), "{error}");
    }
}
