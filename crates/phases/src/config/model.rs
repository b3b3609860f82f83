//! Configuration of the model: its source and its trained part.

use super::ConfigError;
use super::adapter::{adapter_of, key_of, settled};
use super::error::ensure;
use super::model_source::{Initializer, ModelSource};
use crate::backbone::{Architecture, SpeechBackbone, TextBackbone};
use crate::{SourceError, kinds};
use burn::tensor::Device;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use undertone_exchange::Format;
use undertone_hub::Hub;
use undertone_model::adapters::AdapterConfig;
use undertone_model::adapters::lora::LoraConfig;
use undertone_model::backbone::{Backbone, own_path};
use undertone_model::frozen::{FrozenDtype, loaded_in};
use undertone_model::peft::{self, PeftLora};
use undertone_model::whisper::{
    BUNDLED, FolderError, GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer, bundled,
};
use undertone_store::{parameter_infos, set_trainable};

/// Configuration of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "ModelConfig", default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Architecture. Default: the one that `config.json` in a local folder names as `model_type`, otherwise `whisper`.
    pub backbone: Architecture,
    /// Source of its weights. Default: the bundled model.
    pub source: ModelSource,
    /// Vocabulary of a newly initialised model, one with `source.config`. Default: the alphabet of the default synthesiser.
    pub tokenizer: Option<TokenizerConfig>,
    /// Shorthand for `source: {path: …}` that overrides any other source, as in `--set model.path=DIR`.
    pub path: Option<PathBuf>,
    /// Number of blocks of the encoder to keep, spaced evenly from the first to the last one: for a smaller student of the
    /// model. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_layers: Option<usize>,
    /// Number of blocks of the decoder to keep, as `encoder_layers`. Distil-Whisper keeps 2 of 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_layers: Option<usize>,
    /// Part of the model that is trained.
    pub trainable: Trainable,
    /// Number type in which the frozen matrices of the model are held in memory: those of its linear maps and of its token
    /// embedding, rounded once when they are loaded. `bf16` and `f16` take half of f32's bytes; what is trained, and
    /// biases, norms, positions and convolutions stay in f32. With `tasks` the whole backbone is frozen.
    pub frozen_dtype: FrozenDtype,
    /// Adapter with `trainable: lora`, if it is a LoRA: short for `adapter: {type: lora, …}`. By default it adapts `q_proj` and `v_proj`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Adapter with `trainable: lora`, of any registered type. A LoRA is recorded as `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterConfig>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            backbone: Architecture::default(),
            source: ModelSource::default(),
            tokenizer: None,
            path: None,
            encoder_layers: None,
            decoder_layers: None,
            trainable: Trainable::default(),
            frozen_dtype: FrozenDtype::default(),
            lora: Some(usual_lora()),
            adapter: None,
        }
    }
}

/// Implemented by hand because an adapter has two keys, of which one is given.
impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::deserialize(deserializer)?;
        (config.lora, config.adapter) = settled((config.lora, config.adapter), usual_lora).map_err(D::Error::custom)?;
        Ok(config)
    }
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Source of the vocabulary of a newly initialised model: give one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerConfig {
    /// A `tokenizer.json` with Whisper's special tokens, or the folder that it is in.
    pub path: Option<PathBuf>,
    /// Number of tokens of a byte-level byte-pair encoding that is trained on the texts of the training data. Whisper's
    /// special tokens are added to them.
    pub vocab_size: Option<usize>,
}

impl TokenizerConfig {
    fn validate(&self) -> Result<(), String> {
        match (&self.path, self.vocab_size) {
            (Some(_), Some(_)) => Err("`model.tokenizer` has both `path` and `vocab_size`: give one".into()),
            (None, None) => Err("`model.tokenizer` is empty: give `path`, or `vocab_size` to train one".into()),
            (None, Some(size)) if !(256..=MOST_TOKENS).contains(&size) => Err(format!(
                "`model.tokenizer.vocab_size` is {size}: it must be at least 256, one for each byte, and at most {MOST_TOKENS}"
            )),
            _ => Ok(()),
        }
    }

    /// Reads the vocabulary in `path`.
    fn read(path: &Path) -> Result<WhisperTokenizer, SourceError> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let bytes = std::fs::read(&file).map_err(|source| FolderError::Io { path: file.clone(), source })?;
        WhisperTokenizer::from_bytes(bytes).map_err(|source| SourceError::TokenizerFile { path: file, source })
    }
}

/// Maximum number of tokens: several times that of multilingual language models.
const MOST_TOKENS: usize = 1_000_000;

/// Returns the default adapter: on the attention projections that LoRA was proposed for (Hu et al., 2021, section 4.2).
pub(super) fn usual_lora() -> LoraConfig {
    LoraConfig { target_modules: ["q_proj", "v_proj"].map(str::to_owned).to_vec(), ..Default::default() }
}

/// Part of a model that is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = with_alias)]
pub enum Trainable {
    /// Everything except constants such as sinusoidal positions.
    #[default]
    All,
    /// The encoder: parameters whose path begins with `encoder.`.
    Encoder,
    /// The decoder: parameters whose path begins with `decoder.`.
    Decoder,
    /// An adapter on the frozen model: `model.lora`, or `model.adapter` for other types.
    #[serde(alias = "adapter")]
    Lora,
}

/// Adds the other name of `lora` to the schema.
fn with_alias(schema: &mut schemars::Schema) {
    if let Some(values) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        values.push(serde_json::json!({"description": "The same as `lora`.", "type": "string", "const": "adapter"}));
    }
}

impl Trainable {
    /// Whether the parameter with this path in a network is trained. `constants` are the
    /// [paths that never are](Backbone::constants).
    pub fn includes(self, path: &str, constants: &[&str]) -> bool {
        !constants.contains(&path)
            && match self {
                Self::All => true,
                Self::Encoder => path.starts_with("encoder."),
                Self::Decoder => path.starts_with("decoder."),
                Self::Lora => false,
            }
    }
}

impl Display for ModelConfig {
    /// Writes the source in short: a folder, a name on the hub, `random weights`, or the name of a bundled model.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        let source = &self.source;
        match (self.path.as_ref().or(source.path.as_ref()), &source.hub, &source.config) {
            (Some(path), ..) => write!(f, "{}", path.display()),
            (None, Some(hub), _) => f.write_str(hub),
            (None, None, Some(_)) => match &source.grow_from {
                Some(from) => write!(f, "{}, grown", from.display()),
                None => f.write_str("random weights"),
            },
            (None, None, None) => f.write_str(source.bundled.as_deref().unwrap_or(BUNDLED[0])),
        }
    }
}

impl ModelConfig {
    /// Returns the adapter that is trained with `trainable: lora`.
    pub fn adapter(&self) -> AdapterConfig {
        adapter_of(self.lora.as_ref(), self.adapter.as_ref())
    }

    /// Returns the first option of the model that [OpenAI's architecture lacks](WhisperConfig::own_option), as far as the
    /// configuration or a local folder tells.
    pub fn own_option(&self) -> Option<String> {
        let Some(path) = self.path.as_ref().or(self.source.path.as_ref()) else {
            return self.source.config.as_ref()?.own_option();
        };
        let json = std::fs::read(path.join("config.json")).ok()?;
        WhisperConfig::from_hf(&serde_json::from_slice(&json).ok()?).ok()?.own_option()
    }

    /// Returns the configuration of the Whisper `name`: a folder, which may be that of an adapter by itself; a file or folder
    /// of [another program](Format); the directory of a run (for its best model, if that is a complete one); a bundled model; or a model on the hub, like
    /// `openai/whisper-tiny`. An existing folder takes precedence over a bundled model of its name, and over the hub.
    pub fn named(name: &Path) -> Self {
        let best = name.join("best");
        let path = if best.is_dir() && !name.join("config.json").exists() { best } else { name.to_owned() };
        let source = match name.to_str().filter(|_| !path.exists()) {
            Some(name) if BUNDLED.contains(&name) => ModelSource { bundled: Some(name.into()), ..Default::default() },
            Some(name) if is_on_hub(name) => ModelSource { hub: Some(name.into()), ..Default::default() },
            _ => return Self { path: Some(path), ..Self::default() },
        };
        Self { source, ..Self::default() }
    }

    /// # Errors
    /// When a value is invalid or keys contradict each other, such as more than one source, or `revision` without
    /// `hub`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let s = &self.source;
        if self.backbone != Architecture::WHISPER {
            ensure(
                s.bundled.is_none() && s.config.is_none(),
                || "`model.source`: `bundled` and `config` are for `backbone: whisper`; give `path` or `hub`",
            )?;
            ensure(self.path.is_some() || s.path.is_some() || s.hub.is_some(), || self.no_encoder())?;
        }
        s.validate()?;
        if let Some(tokenizer) = &self.tokenizer {
            ensure(
                s.config.is_some() && s.grow_from.is_none(),
                || "`model.tokenizer` is for a fresh model, with `model.source.config` and no `grow_from`: others have one",
            )?;
            tokenizer.validate()?;
        }
        let adapter = self.adapter();
        let key = key_of(&adapter);
        if self.trainable == Trainable::Lora {
            adapter.validate().map_err(|e| format!("`model.{key}`: {e}"))?;
        }
        ensure(self.trainable == Trainable::Lora || adapter == usual_lora().into(), || {
            format!(
                "`model.{key}` is the adapter of `model.trainable: lora`: set that, or leave it out (`--set model.{key}=null`; tasks have a `{key}` each)"
            )
        })?;
        Ok(())
    }

    /// Loads or initialises the model on `device`, with frozen parameters marked. It is in f32: a run holds what it freezes
    /// in [`frozen_dtype`](Self::frozen_dtype).
    ///
    /// # Errors
    /// When the source holds no complete model, and when the vocabulary has to be trained, which needs an
    /// [`Experiment`](crate::Experiment) with its texts.
    pub fn load(&self, device: &Device, seed: u64) -> Result<PretrainedWhisper, SourceError> {
        self.load_with(None, device, seed)
    }

    /// As [`load`](Self::load). `trained` is the vocabulary of a newly initialised model, if it had to be trained.
    pub(crate) fn load_with(
        &self,
        trained: Option<WhisperTokenizer>,
        device: &Device,
        seed: u64,
    ) -> Result<PretrainedWhisper, SourceError> {
        // Before any random numbers are drawn: for new weights, and for the heads that training adds to loaded ones.
        undertone_ops::seed(seed);
        let whisper = self.open(trained, device)?;
        let kept = whisper.with_layers(self.encoder_layers, self.decoder_layers);
        let mut whisper = kept.map_err(SourceError::Layers)?;
        let constants = whisper.model.constants();
        whisper.model = set_trainable(whisper.model, |path| self.trainable.includes(path, constants));
        Ok(whisper)
    }

    /// Loads a text encoder onto `device`.
    ///
    /// # Errors
    /// When the source holds no complete model, or one of another architecture.
    pub fn load_text(&self, device: &Device) -> Result<TextBackbone, SourceError> {
        let folder = self.folder()?.ok_or_else(|| SourceError::NoEncoder(self.no_encoder()))?;
        self.backbone.load_text(&folder, device)
    }

    /// Loads a speech encoder of a registered architecture onto `device`, with frozen parameters marked.
    ///
    /// # Errors
    /// As for [`load_text`](Self::load_text), and when it has no parameters in the part that is trained.
    pub fn load_speech(&self, device: &Device, seed: u64) -> Result<SpeechBackbone, SourceError> {
        let folder = self.folder()?.ok_or_else(|| SourceError::NoEncoder(self.no_encoder()))?;
        undertone_ops::seed(seed);
        let mut speech = self.backbone.load_speech(&folder, device)?;
        let constants = speech.network.constants();
        speech.network = set_trainable(speech.network, |path| self.trainable.includes(own_path(path), constants));
        let parts = [(Trainable::Encoder, "encoder"), (Trainable::Decoder, "decoder")];
        let trains_any = || parameter_infos(&speech.network).iter().any(|parameter| parameter.trainable);
        match parts.into_iter().find(|(part, _)| *part == self.trainable) {
            Some((_, part)) if !trains_any() => Err(SourceError::NoPart { part, backbone: self.backbone.name }),
            _ => Ok(speech),
        }
    }

    fn no_encoder(&self) -> String {
        let kind = if self.backbone.is_text() { "text" } else { "speech" };
        format!("`model` names no {kind} encoder: give its folder as `model.path`, or `model.source.hub`")
    }

    /// Returns the folder that holds the model, downloaded if it is on the hub; `None` if it has no folder.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, SourceError> {
        let source = &self.source;
        match (self.path.as_ref().or(source.path.as_ref()), &source.hub) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Some(model)) => {
                let fetched = Hub::from_env().model(model, source.revision.as_deref());
                Ok(Some(fetched.map_err(SourceError::Model)?))
            }
            (None, None) => Ok(None),
        }
    }

    fn open(&self, trained: Option<WhisperTokenizer>, device: &Device) -> Result<PretrainedWhisper, SourceError> {
        let source = &self.source;
        if let Some(folder) = self.folder()? {
            if is_adapter(&folder) {
                // Both are added in f32.
                return loaded_in(FrozenDtype::F32, || merged_adapter(&folder, device));
            }
            if let Some(format) = Format::of(&folder) {
                return Ok(format.read(&folder, device)?);
            }
            self.backbone.check(&folder)?;
            return PretrainedWhisper::load(&folder, device).map_err(|error| match error {
                FolderError::NoFolder(path) => SourceError::NoWhisper(path),
                error => SourceError::Folder(error),
            });
        }
        if let (Some(config), Some(from)) = (&source.config, &source.grow_from) {
            return loaded_in(FrozenDtype::F32, || grown(config.clone(), from, device));
        }
        if let Some(config) = &source.config {
            let vocabulary = match (&self.tokenizer, trained) {
                (Some(TokenizerConfig { path: Some(path), .. }), _) => Some(TokenizerConfig::read(path)?),
                (Some(_), None) => return Err(SourceError::Untrained),
                (_, trained) => trained,
            };
            return loaded_in(FrozenDtype::F32, || fresh(config.clone(), source.initializer, vocabulary, device));
        }
        let name = source.bundled.as_deref().unwrap_or(BUNDLED[0]);
        let files = bundled(name).ok_or_else(|| SourceError::NotBundled(name.to_owned()))?;
        Ok(PretrainedWhisper::from_files(Path::new(name), files, device)?)
    }
}

/// Whether this can only be the name of a model on the hub, `OWNER/NAME`: no folder here has the name of the owner.
fn is_on_hub(name: &str) -> bool {
    let letters = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.') && letters(part);
    matches!(name.split_once('/'), Some((owner, model)) if is_name(owner) && is_name(model) && !Path::new(owner).exists())
}

/// Description of a folder of adapters and heads.
pub(crate) const DESCRIPTION: &str = "dynamo.json";

/// Whether a folder holds an adapter by itself, as PEFT saves it.
pub(crate) fn is_adapter(folder: &Path) -> bool {
    folder.join(peft::CONFIG).is_file() && !folder.join("config.json").exists()
}

/// Whether an adapter is in the folder of a run's tasks, beside the head that belongs to it.
fn is_of_task(adapter: &Path) -> bool {
    let description = adapter.ancestors().nth(2).map(|around| around.join(DESCRIPTION));
    let text = description.and_then(|path| std::fs::read_to_string(path).ok());
    let heads = text.and_then(|text| Some(serde_json::from_str::<Value>(&text).ok()?["heads"].as_array()?.len()));
    heads.is_some_and(|heads| heads > 0)
}

/// Returns the model that an adapter was trained on, with the adapter merged.
fn merged_adapter(folder: &Path, device: &Device) -> Result<PretrainedWhisper, SourceError> {
    if is_of_task(folder) {
        return Err(SourceError::AdapterOfTask(folder.to_owned()));
    }
    let lora = PeftLora::open(folder)?;
    // PEFT writes a path as it was given, which may have been relative to the folder of the adapter.
    let beside = folder.join(&lora.base);
    let base = if beside.exists() { beside } else { PathBuf::from(&lora.base) };
    if is_adapter(&base) {
        return Err(SourceError::AdapterOfAdapter { folder: folder.to_owned(), base });
    }
    let mut whisper = ModelConfig::named(&base).open(None, device)?;
    whisper.merge_lora(&lora)?;
    Ok(whisper)
}

/// Returns a model that grows from a pretrained one.
fn grown(config: WhisperConfig, from: &Path, device: &Device) -> Result<PretrainedWhisper, SourceError> {
    let pretrained = ModelConfig::named(from).open(None, device)?;
    let heads = pretrained.config.key_value_heads();
    let grown = pretrained.grown(config, device)?;
    if grown.config.key_value_heads() != heads {
        tracing::warn!(
            "the loss does not begin as that of `{}`: each head of keys and values is the mean of several of its heads",
            from.display()
        );
    }
    Ok(grown)
}

/// Returns a newly initialised model with its vocabulary, which includes Whisper's special tokens. Default vocabulary:
/// the alphabet of the default synthesiser.
fn fresh(
    config: WhisperConfig,
    initializer: Initializer,
    vocabulary: Option<WhisperTokenizer>,
    device: &Device,
) -> Result<PretrainedWhisper, SourceError> {
    config.check_new()?;
    let (tokenizer, generation) = match vocabulary {
        Some(tokenizer) => {
            // OpenAI's English-only vocabulary has language tokens, too, but its models have none in their prompts.
            let multilingual = tokenizer.vocab_size() != ENGLISH && !tokenizer.languages().is_empty();
            (tokenizer, GenerationConfig::new(multilingual))
        }
        None => of_alphabet(&config)?,
    };
    let mut whisper = PretrainedWhisper::init(config, tokenizer, generation, device)?;
    if initializer == Initializer::Local {
        whisper.model = whisper.config.init_local(device);
    }
    Ok(whisper)
}

/// Vocabulary size of OpenAI's English-only models.
const ENGLISH: usize = 51864;

/// Returns the vocabulary of the default synthesiser's alphabet, and its generation settings.
fn of_alphabet(config: &WhisperConfig) -> Result<(WhisperTokenizer, GenerationConfig), SourceError> {
    let alphabet = kinds::default().and_then(|kind| kind.alphabet()).ok_or(SourceError::NoVocabulary)?;
    let tokenizer = WhisperTokenizer::of_characters(&alphabet.characters, &["en"])?;
    let mut generation = GenerationConfig::new(true);
    generation.language = Some("en".into());
    generation.task = Some("transcribe".into());
    // A decoder that has lost its place repeats itself up to the limit, which includes the prompt.
    let seconds = config.max_frames() as f64 / 100.0;
    let most = (alphabet.most_per_second * seconds) as usize + 4;
    generation.max_length = Some(most).filter(|n| *n < config.max_target_positions);
    Ok((tokenizer, generation))
}
