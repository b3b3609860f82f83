//! The folder of CTranslate2, which faster-whisper loads: `model.bin` with weights, `config.json` with settings for decoding,
//! and a vocabulary.

mod file;
mod names;

use crate::parts::Parts;
use crate::{ExchangeError, vocabulary};
use burn::tensor::Device;
pub(crate) use file::NAME;
use file::Variables;
use serde_json::{Map, Value, json};
use std::path::Path;
use undertone_model::whisper::{GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone_store::{HostTensor, StoreError, TensorSource};

const WEIGHTS: &str = "model.bin";

/// Width of an attention head in all of OpenAI's models, for files that do not say the number of heads.
const HEAD: usize = 64;

/// Whether this is a folder of CTranslate2.
pub(crate) fn matches(path: &Path) -> bool {
    let of_hugging_face = ["model.safetensors", "pytorch_model.bin"];
    let exists = |name: &str| path.join(name).exists() || path.join(format!("{name}.index.json")).exists();
    path.join(WEIGHTS).is_file() && !of_hugging_face.into_iter().any(exists)
}

/// Reads a folder of CTranslate2, its quantised weights expanded to f32.
///
/// # Errors
/// When a file is missing, cut short or damaged, or holds another model than a Whisper.
pub fn read(path: &Path, device: &Device) -> Result<PretrainedWhisper, ExchangeError> {
    let unreadable = |reason: String| ExchangeError::Unreadable { path: path.to_owned(), format: NAME, reason };
    let file = Weights(Variables::open(&path.join(WEIGHTS))?);
    let config = file.config().map_err(unreadable)?;
    file.check_keys().map_err(unreadable)?;
    let tokenizer = tokenizer(path, config.vocab_size).map_err(unreadable)?;
    let generation = generation(path, &tokenizer).map_err(unreadable)?;
    if file.0.is_quantised() {
        tracing::warn!("`{}` has quantised weights, which are expanded to f32", path.display());
    }
    let parts = Parts { config, tokenizer: &tokenizer, generation: &generation, tensors: &file };
    Ok(parts.assembled(path, device)?)
}

/// Weights under Hugging Face's names.
struct Weights(Variables);

impl Weights {
    fn config(&self) -> Result<WhisperConfig, String> {
        let shape = |name: &str, axes: usize| {
            let found = self.0.shape(name).filter(|shape| shape.len() == axes);
            found.ok_or_else(|| format!("it has no `{name}` of {axes} axes"))
        };
        let (tokens, encoder) =
            (shape("decoder/embeddings/weight", 2)?, shape("encoder/position_encodings/encodings", 2)?);
        let (decoder, conv) = (shape("decoder/position_encodings/encodings", 2)?, shape("encoder/conv1/weight", 3)?);
        let width = |side: &str| shape(&format!("{side}/layer_0/ffn/linear_0/weight"), 2).map(|shape| shape[0]);
        let d_model = tokens[1];
        let heads = |side: &str| self.0.integer(&format!("{side}/num_heads")).unwrap_or(d_model / HEAD);
        Ok(WhisperConfig {
            d_model,
            encoder_layers: self.0.layers("encoder"),
            decoder_layers: self.0.layers("decoder"),
            encoder_attention_heads: heads("encoder"),
            decoder_attention_heads: heads("decoder"),
            encoder_ffn_dim: width("encoder")?,
            decoder_ffn_dim: width("decoder")?,
            num_mel_bins: conv[1],
            vocab_size: tokens[0],
            max_source_positions: encoder[0],
            max_target_positions: decoder[0],
            scale_embedding: self.0.integer("decoder/scale_embeddings") == Some(1),
            ..WhisperConfig::default()
        })
    }

    /// Checks that keys have no bias, which a Whisper has no place for. The file has zeros for it, because queries, keys and
    /// values are one projection there.
    fn check_keys(&self) -> Result<(), String> {
        let layers = |side: &'static str| (0..self.0.layers(side)).map(move |layer| format!("{side}.layers.{layer}"));
        for layer in layers("encoder").chain(layers("decoder")) {
            for attention in ["self_attn", "encoder_attn"] {
                let bias = self.read(&format!("{layer}.{attention}.k_proj.bias"));
                if bias.is_ok_and(|bias| bias.data.iter().any(|value| *value != 0.0)) {
                    return Err(format!(
                        "the keys of `{layer}.{attention}` have a bias, and those of a Whisper have none"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl TensorSource for Weights {
    fn origin(&self) -> &Path {
        self.0.path()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let place = names::place(name)?;
        let mut shape = self.0.shape(&place.variable)?.to_vec();
        let rows = shape.first_mut().filter(|rows| rows.is_multiple_of(place.parts))?;
        *rows /= place.parts;
        Some(shape)
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        let (place, shape) = names::place(name).zip(self.shape(name)).ok_or_else(|| self.missing(name))?;
        let data = self.0.read(&place.variable, place.part, place.parts).ok_or_else(|| self.missing(name))?;
        Ok(HostTensor { shape, data })
    }
}

/// Returns the folder's `tokenizer.json`, or the tokenizer that its list of tokens describes.
fn tokenizer(dir: &Path, size: usize) -> Result<WhisperTokenizer, String> {
    let read = |name: &str| std::fs::read(dir.join(name));
    if let Ok(bytes) = read("tokenizer.json") {
        return WhisperTokenizer::from_bytes(bytes).map_err(|e| format!("`tokenizer.json`: {e}"));
    }
    let symbols: Vec<String> = match (read("vocabulary.json"), read("vocabulary.txt")) {
        (Ok(bytes), _) => serde_json::from_slice(&bytes).map_err(|e| format!("`vocabulary.json`: {e}"))?,
        (_, Ok(bytes)) => String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect(),
        _ => return Err("it has no vocabulary: put tokenizer.json or vocabulary.json into the folder".into()),
    };
    let ordinary = vocabulary::layout(size).map_or(symbols.len(), |(ordinary, _)| ordinary);
    let bytes = |symbols: &String| {
        let bytes = WhisperTokenizer::spelled(symbols);
        bytes.ok_or_else(|| format!("`{symbols}` in its vocabulary is not a sequence of bytes"))
    };
    let tokens = symbols.iter().take(ordinary).map(bytes).collect::<Result<Vec<_>, _>>()?;
    vocabulary::of_tokens(&tokens, size)
}

/// Returns the settings for decoding in `config.json`; openai-whisper's if there is no such file.
fn generation(dir: &Path, tokenizer: &WhisperTokenizer) -> Result<GenerationConfig, String> {
    let Ok(bytes) = std::fs::read(dir.join("config.json")) else { return Ok(vocabulary::generation(tokenizer)) };
    let read: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|e| format!("`config.json` is not a JSON object: {e}"))?;
    // By its size where it is a vocabulary of OpenAI's: the converter lists languages of English models, too, whose vocabulary has
    // them, and none of models that transformers 5 has loaded.
    let (size, languages) = (tokenizer.vocab_size(), read.get("lang_ids").and_then(Value::as_array));
    let multilingual = match (vocabulary::layout(size), languages) {
        (None, Some(languages)) => !languages.is_empty(),
        _ => vocabulary::is_multilingual(size),
    };
    let mut json = Map::from_iter([("is_multilingual".to_owned(), json!(multilingual))]);
    let keys = [
        ("alignment_heads", "alignment_heads"),
        ("suppress_ids", "suppress_tokens"),
        ("suppress_ids_begin", "begin_suppress_tokens"),
    ];
    for (key, name) in keys {
        if let Some(list) = read.get(key).filter(|value| value.is_array()) {
            json.insert(name.into(), list.clone());
        }
    }
    Ok(GenerationConfig::from_json(json))
}
