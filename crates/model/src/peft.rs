//! Folders of adapters in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors` (or, of older versions, `adapter_model.bin`).

use crate::adaptable::{Adaptable, adapter_parameters, load_adapter};
use crate::adapters::AdapterConfig;
use crate::folder::{FolderError, object, read_at_most};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_store::{
    Dtype, HostTensor, StoreError, TensorFile, TensorSource, TorchFile, write_directory, write_json, write_tensors,
};

/// Name of the file that describes an adapter.
pub const CONFIG: &str = "adapter_config.json";
/// Name of the file of its tensors.
pub const WEIGHTS: &str = "adapter_model.safetensors";
/// The same as PEFT before 0.6 wrote it, in torch's format.
const TORCH_WEIGHTS: &str = "adapter_model.bin";

/// Prefix of all names of tensors.
const PREFIX: &str = "base_model.model.";

/// Maximum size of the description, in bytes. It may list every layer by name.
const LARGEST_CONFIG: u64 = 4 << 20;

/// LoRA of one model, as PEFT saves it (Hu et al., 2022; rank-stabilised: Kalajdzievski, 2023).
pub struct PeftLora {
    /// Model that it was trained on: a folder, or a name on the hub.
    pub base: String,
    settings: Settings,
    file: Box<dyn TensorSource>,
    /// Names of the tensors in the file.
    names: Vec<String>,
    path: PathBuf,
}

/// Writes one adapter of `model` atomically to a folder that PEFT's `PeftModel.from_pretrained` loads. `config` is that with which
/// it was added, `base` the folder of the model or its name on the hub.
///
/// # Errors
/// When the file system refuses.
///
/// ```
/// use burn::tensor::Device;
/// use undertone_model::adaptable::adapt;
/// use undertone_model::adapters::lora::LoraConfig;
/// use undertone_model::peft::{read_adapter, write_adapter};
/// use undertone_model::whisper::WhisperConfig;
///
/// let device = Device::default();
/// let mut model = WhisperConfig { vocab_size: 60, ..WhisperConfig::new(32, 64, 2, [4, 4]) }.init(&device);
/// let lora = LoraConfig { target_modules: vec!["q_proj".into(), "v_proj".into()], ..Default::default() };
/// adapt(&mut model, std::slice::from_ref(&lora), 0, &device)?;
///
/// // Train it, then:
/// let folder = tempfile::tempdir()?;
/// write_adapter(&mut model, 0, &lora.into(), "openai/whisper-tiny", folder.path())?;
/// read_adapter(&mut model, 0, folder.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_adapter(
    model: &mut (impl Adaptable + ?Sized),
    adapter: usize,
    config: &AdapterConfig,
    base: &str,
    dir: &Path,
) -> Result<(), StoreError> {
    let prefix = model.peft_prefix();
    let maps = adapter_parameters(model, adapter);
    let description = description(config, base, maps.keys().cloned().collect());
    let named = maps.into_iter().flat_map(|(path, tensors)| {
        tensors.into_iter().map(move |(name, value)| (format!("{prefix}{path}.{name}"), value))
    });
    let named: BTreeMap<String, HostTensor> = named.collect();
    write_directory(dir, |dir| {
        write_json(&dir.join(CONFIG), &description)?;
        write_tensors(&dir.join(WEIGHTS), &named, Dtype::F32)
    })
}

/// Replaces the tensors of one adapter of `model` with those of a folder that [`write_adapter`] or PEFT wrote. Its alpha and its
/// targets stay those with which it was added.
///
/// # Errors
/// When the file cannot be read, or lacks a tensor of the adapter or has it with another shape.
pub fn read_adapter(model: &mut (impl Adaptable + ?Sized), adapter: usize, dir: &Path) -> Result<(), StoreError> {
    let file = TensorFile::open(&dir.join(WEIGHTS))?;
    let prefix = model.peft_prefix();
    load_adapter(model, adapter, |path| file.read(&format!("{prefix}{path}")))
}

/// Returns the content of an adapter's `adapter_config.json`. Its targets are full paths, because adapters may be above a tap only,
/// which names like `q_proj` cannot express.
fn description(config: &AdapterConfig, base: &str, targets: Vec<String>) -> Map<String, Value> {
    let mut description = Map::new();
    description.insert("peft_type".into(), config.name().to_uppercase().into());
    description.insert("task_type".into(), Value::Null);
    description.insert("base_model_name_or_path".into(), base.into());
    if let Ok(Value::Object(own)) = serde_json::to_value(config) {
        description.extend(own.into_iter().filter(|(key, _)| !["type", "target_modules"].contains(&key.as_str())));
    }
    description.insert("target_modules".into(), targets.into());
    description.extend(config.peft_keys());
    description.insert("inference_mode".into(), true.into());
    description
}

/// Keys of `adapter_config.json` that decide what an adapter computes.
#[derive(Deserialize)]
struct Settings {
    peft_type: String,
    base_model_name_or_path: Option<String>,
    #[serde(default = "one")]
    lora_alpha: f64,
    /// Alpha of some layers; the first pattern that fits counts, so their order matters.
    #[serde(default)]
    alpha_pattern: Option<Map<String, Value>>,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    ensure_weight_tying: bool,
}

/// Layers that share their weight: Whisper's embedding and its output.
const TIED: [&str; 3] = ["embed_tokens", "embed_tokens.modules_to_save", "proj_out"];

/// Keys that, if they are set, make an adapter compute something else than a low-rank update of linear layers.
const OTHER_KINDS: [&str; 9] = [
    "use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "layer_replication", "alora_invocation_tokens",
    "arrow_config", "lora_bias", "trainable_token_indices",
];

/// Returns the kind of `init_lora_weights` with which PEFT subtracts the initial update from the base's weights whenever it loads
/// the adapter.
fn residual_kind(json: &Map<String, Value>) -> Option<&str> {
    let kind = json.get("init_lora_weights")?.as_str()?;
    let name = kind.to_ascii_lowercase();
    ["pissa", "corda", "olora", "loftq"].iter().any(|residual| name.starts_with(residual)).then_some(kind)
}

fn one() -> f64 {
    1.0
}

impl PeftLora {
    /// Opens an adapter's folder.
    ///
    /// # Errors
    /// When a file is missing or damaged, and when the adapter is of a kind that cannot be merged: the error names it.
    pub fn open(dir: &Path) -> Result<Self, FolderError> {
        let path = dir.join(CONFIG);
        let json = object(&path, &read_at_most(&path, LARGEST_CONFIG)?)?;
        let is_set = |key: &&&str| !matches!(json.get(**key), None | Some(Value::Null | Value::Bool(false)));
        let other = OTHER_KINDS.iter().find(is_set);
        let settings: Settings = serde_json::from_value(Value::Object(json.clone()))
            .map_err(|e| FolderError::Json { path: path.clone(), reason: e.to_string() })?;
        let refuse = |reason: String| FolderError::Mismatch { path: path.clone(), reason };
        if settings.peft_type != "LORA" {
            let kind = &settings.peft_type;
            return Err(refuse(format!("an adapter of type {kind} cannot be merged here: merge it with PEFT first")));
        }
        if let Some(kind) = residual_kind(&json) {
            return Err(refuse(format!(
                "an adapter that began as `{kind}` changes the model that it is for, and cannot be merged here: merge it with PEFT first"
            )));
        }
        if let Some(key) = other {
            return Err(refuse(format!("an adapter with `{key}` cannot be merged here: merge it with PEFT first")));
        }
        let base = settings.base_model_name_or_path.clone();
        let base =
            base.ok_or_else(|| refuse("`base_model_name_or_path` is missing: write the model's folder".into()))?;
        let torch = dir.join(TORCH_WEIGHTS);
        if torch.exists() && !dir.join(WEIGHTS).exists() {
            let file = TorchFile::open(&torch)?;
            return Ok(Self { base, settings, names: file.names(), file: Box::new(file), path: torch });
        }
        let path = dir.join(WEIGHTS);
        let file = TensorFile::open(&path)?;
        Ok(Self { base, settings, names: file.names(), file: Box::new(file), path })
    }

    /// Adds the adapter to the base's parameters, as PEFT's `merge_and_unload` does, and replaces those that were trained
    /// whole (`modules_to_save`, biases). `rename` returns the parameter's name here for its name in the base, or `None`
    /// if there is no such parameter.
    ///
    /// # Errors
    /// When a tensor belongs to no parameter, or has another shape: the adapter was made for another model.
    pub fn merge(
        &self,
        parameters: &mut BTreeMap<String, HostTensor>,
        rename: impl Fn(&str) -> Option<String>,
    ) -> Result<(), FolderError> {
        self.check_tied()?;
        self.check_linear()?;
        for name in &self.names {
            let plain =
                name.strip_prefix(PREFIX).ok_or_else(|| self.refuse(name, "is not a tensor of PEFT's layout"))?;
            // The base's own values of a layer that was trained whole are no part of the result.
            if plain.ends_with(".lora_B.weight") || plain.contains(".original_module.") {
                continue;
            }
            // The same as the embedding, which `check_tied` has made sure of.
            if plain.ends_with("proj_out.weight") {
                continue;
            }
            let (target, lora) = match plain.strip_suffix(".lora_A.weight") {
                Some(layer) => (format!("{layer}.weight"), Some(layer)),
                // PEFT wraps the layers that it adapts or trains whole, and with `bias: all` saves names inside them.
                None => (plain.replace(".base_layer.", ".").replace(".modules_to_save.", "."), None),
            };
            let known = rename(&target).filter(|target| parameters.contains_key(target));
            let known = known.ok_or_else(|| self.refuse(name, "belongs to no parameter of the base"))?;
            let Some(parameter) = parameters.get_mut(&known) else { continue };
            match lora {
                Some(layer) => self.add(layer, parameter)?,
                None => self.replace(name, parameter)?,
            }
        }
        Ok(())
    }

    /// Refuses an embedding that was trained whole: PEFT's copy of it is apart from the output layer, which is the same tensor here, and
    /// keeps the base's values unless the two were tied.
    fn check_tied(&self) -> Result<(), FolderError> {
        let is_tied = |name: &str| TIED.iter().any(|layer| name.ends_with(&format!("{layer}.weight")));
        if let Some(name) =
            self.names.iter().find(|name| is_tied(&name.replace(".lora_A.", ".")) && name.contains(".lora_A."))
        {
            return Err(self.refuse(
                name,
                "adapts the output layer, which is one with the embedding here: merge it with PEFT first",
            ));
        }
        let whole = self.names.iter().find(|name| !name.contains(".original_module.") && is_tied(name));
        match whole.filter(|_| !self.settings.ensure_weight_tying) {
            Some(name) => Err(self.refuse(
                name,
                "was trained apart from the layer that it is tied to, and they are one here: merge it with PEFT first",
            )),
            None => Ok(()),
        }
    }

    /// Adds `scale · B · A` to the weight of a linear layer, `[out, in]`.
    fn add(&self, layer: &str, weight: &mut HostTensor) -> Result<(), FolderError> {
        let read = |part: &str| self.file.read(&format!("{PREFIX}{layer}.lora_{part}.weight"));
        let (a, b) = (read("A")?, read("B")?);
        let fits = match (a.shape.as_slice(), b.shape.as_slice(), weight.shape.as_slice()) {
            ([rank, width], [height, same], [rows, columns]) => rank == same && width == columns && height == rows,
            _ => false,
        };
        if !fits {
            let reason =
                format!("has the shapes {:?} and {:?}, and the base's weight {:?}", a.shape, b.shape, weight.shape);
            return Err(self.refuse(layer, &format!("{reason}: it was made for another model")));
        }
        let (rank, width) = (a.shape[0], a.shape[1]);
        let scale = self.scale(layer, rank)? as f32;
        for (row, factors) in weight.data.chunks_exact_mut(width).zip(b.data.chunks_exact(rank.max(1))) {
            for (factor, values) in factors.iter().zip(a.data.chunks_exact(width)) {
                row.iter_mut().zip(values).for_each(|(weight, value)| *weight += scale * factor * value);
            }
        }
        Ok(())
    }

    fn replace(&self, name: &str, parameter: &mut HostTensor) -> Result<(), FolderError> {
        let value = self.file.read(name)?;
        if value.shape != parameter.shape {
            let reason = format!(
                "has the shape {:?}, and the base's {:?}: it was made for another model",
                value.shape, parameter.shape
            );
            return Err(self.refuse(name, &reason));
        }
        *parameter = value;
        Ok(())
    }

    /// Factor of a layer's update: `α / r`, or `α / √r` if it is rank-stabilised.
    fn scale(&self, layer: &str, rank: usize) -> Result<f64, FolderError> {
        let mut alpha = self.settings.lora_alpha;
        for (pattern, value) in self.settings.alpha_pattern.iter().flatten() {
            // As PEFT does: a pattern stands for the end of a layer's name, from a dot on.
            let whole = Regex::new(&format!("^(.*\\.)?(?:{pattern})$"));
            let whole = whole.map_err(|_| self.refuse(pattern, "in `alpha_pattern` is not a regular expression"))?;
            if whole.is_match(layer) {
                alpha = value.as_f64().ok_or_else(|| self.refuse(pattern, "in `alpha_pattern` has no number"))?;
                break;
            }
        }
        let rank = rank.max(1) as f64;
        Ok(alpha / if self.settings.use_rslora { rank.sqrt() } else { rank })
    }

    /// Refuses an adapter of a layer that is no linear one.
    fn check_linear(&self) -> Result<(), FolderError> {
        let is_other = |name: &&String| {
            let is_of_convolution =
                name.contains(".lora_A.") && self.file.shape(name).is_some_and(|shape| shape.len() != 2);
            name.contains(".lora_embedding_") || is_of_convolution
        };
        match self.names.iter().find(is_other) {
            Some(name) => Err(self.refuse(
                name,
                "adapts an embedding or a convolution, which cannot be merged here: merge it with PEFT first",
            )),
            None => Ok(()),
        }
    }

    fn refuse(&self, name: &str, reason: &str) -> FolderError {
        FolderError::Mismatch { path: self.path.clone(), reason: format!("`{name}` {reason}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_store::{Dtype, write_tensors};

    fn tensor(shape: &[usize], data: &[f32]) -> HostTensor {
        HostTensor { shape: shape.to_vec(), data: data.to_vec() }
    }

    fn folder(config: &str, tensors: &[(&str, HostTensor)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(CONFIG), config).expect("written");
        let tensors = tensors.iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.clone())).collect();
        write_tensors(&dir.path().join(WEIGHTS), &tensors, Dtype::F32).expect("written");
        dir
    }

    /// `x.q.weight` of zeros, `[2, 3]`, and its bias.
    fn base() -> BTreeMap<String, HostTensor> {
        BTreeMap::from([
            ("x.q.weight".to_owned(), tensor(&[2, 3], &[0.0; 6])),
            ("x.q.bias".to_owned(), tensor(&[2], &[0.0; 2])),
        ])
    }

    fn lora() -> [(&'static str, HostTensor); 2] {
        [
            ("model.x.q.lora_A.weight", tensor(&[2, 3], &[1.0, 2.0, 3.0, 0.0, 1.0, 0.0])),
            ("model.x.q.lora_B.weight", tensor(&[2, 2], &[1.0, 0.0, 2.0, -1.0])),
        ]
    }

    fn merged(config: &str, tensors: &[(&str, HostTensor)]) -> Result<BTreeMap<String, HostTensor>, FolderError> {
        let (dir, mut parameters) = (folder(config, tensors), base());
        let own = |name: &str| name.strip_prefix("model.").map(str::to_owned);
        PeftLora::open(dir.path())?.merge(&mut parameters, own).map(|()| parameters)
    }

    const PRODUCT: [f32; 6] = [1.0, 2.0, 3.0, 2.0, 3.0, 6.0];

    #[test]
    fn the_update_is_scaled_by_alpha_rank_and_patterns() {
        let config = |more: &str| {
            format!(r#"{{"peft_type": "LORA", "base_model_name_or_path": "b", "r": 2, "lora_alpha": 4{more}}}"#)
        };
        let cases = [
            ("", 2.0),
            (r#", "use_rslora": true"#, 4.0 / 2f32.sqrt()),
            (r#", "alpha_pattern": {"x.q": 6}"#, 3.0),
            (r#", "alpha_pattern": {"x\\.(q|v)": 6}"#, 3.0),
            (r#", "alpha_pattern": {"k": 6}"#, 2.0),
            (r#", "alpha_pattern": null"#, 2.0),
        ];
        for (more, scale) in cases {
            let found = merged(&config(more), &lora()).expect(more);
            assert_eq!(found["x.q.weight"].data, PRODUCT.map(|value| scale * value), "{more}");
        }
    }

    #[test]
    fn adapters_in_torchs_format_are_read() {
        let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "r": 2, "lora_alpha": 2}"#;
        let (dir, mut parameters) = (folder(config, &[]), base());
        std::fs::remove_file(dir.path().join(WEIGHTS)).expect("removed");
        std::fs::write(dir.path().join(TORCH_WEIGHTS), include_bytes!("fixtures/adapter_model.bin")).expect("written");
        let own = |name: &str| name.strip_prefix("model.").map(str::to_owned);
        PeftLora::open(dir.path()).expect("an adapter").merge(&mut parameters, own).expect("merged");
        assert_eq!(parameters["x.q.weight"].data, PRODUCT);
    }

    #[test]
    fn whole_parameters_are_replaced_and_foreign_ones_refused() {
        let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "lora_alpha": 2, "bias": "all"}"#;
        let bias = |name| [(name, tensor(&[2], &[5.0, 6.0]))];
        let found = merged(config, &bias("model.x.q.base_layer.bias")).expect("merged");
        assert_eq!(found["x.q.bias"].data, [5.0, 6.0]);
        let wrapped =
            [bias("model.x.q.modules_to_save.bias")[0].clone(), bias("model.x.q.original_module.bias")[0].clone()];
        assert_eq!(merged(config, &wrapped[..1]).expect("merged")["x.q.bias"].data, [5.0, 6.0]);
        assert_eq!(merged(config, &wrapped[1..]).expect("merged")["x.q.bias"].data, [0.0, 0.0]);
        let foreign = merged(config, &bias("model.y.q.bias")).expect_err("refused").to_string();
        assert!(foreign.contains("model.y.q.bias") && foreign.contains("no parameter"), "{foreign}");
        let narrow = [("model.x.q.lora_A.weight", tensor(&[2, 2], &[0.0; 4])), lora()[1].clone()];
        let narrow = merged(config, &narrow).expect_err("refused").to_string();
        assert!(narrow.contains("another model"), "{narrow}");
    }

    #[test]
    fn adapters_of_other_layers_are_named() {
        let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "b"}"#;
        for (name, shape) in [("model.conv1.lora_A.weight", &[2, 3, 1][..]), ("model.embed.lora_embedding_A", &[2, 3])]
        {
            let error = merged(config, &[(name, tensor(shape, &[0.0; 6]))]).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains("embedding or a convolution"), "{error}");
        }
    }

    #[test]
    fn an_embedding_apart_from_the_output_layer_is_refused() {
        let dir = |more: &str, name: &str| {
            let config = format!(r#"{{"peft_type": "LORA", "base_model_name_or_path": "b"{more}}}"#);
            folder(&config, &[(name, tensor(&[2, 1], &[5.0, 6.0]))])
        };
        let merge = |more: &str, name: &str| {
            let mut base = BTreeMap::from([("embed_tokens.weight".to_owned(), tensor(&[2, 1], &[0.0, 0.0]))]);
            let known = |name: &str| Some(name.rsplit_once("decoder.").map_or(name, |(_, name)| name).to_owned());
            PeftLora::open(dir(more, name).path())?.merge(&mut base, known).map(|()| base)
        };
        for name in [
            "model.decoder.embed_tokens.weight",
            "model.decoder.embed_tokens.modules_to_save.weight",
            "proj_out.weight",
        ] {
            let error = merge("", name).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains("merge it with PEFT first"), "{error}");
        }
        let tied = merge(r#", "ensure_weight_tying": true"#, "model.decoder.embed_tokens.weight").expect("merged");
        assert_eq!(tied["embed_tokens.weight"].data, [5.0, 6.0]);
    }

    #[test]
    fn kinds_that_cannot_be_merged_are_named() {
        let cases = [
            (r#"{"peft_type": "ADALORA", "base_model_name_or_path": "b"}"#, "ADALORA"),
            (r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "use_dora": true}"#, "use_dora"),
            (r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "lora_bias": true}"#, "lora_bias"),
            (
                r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "init_lora_weights": "pissa_niter_4"}"#,
                "pissa_niter_4",
            ),
            (r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "init_lora_weights": "OLoRA"}"#, "OLoRA"),
            (r#"{"peft_type": "LORA"}"#, "base_model_name_or_path"),
            (r#"{"r": 3}"#, "peft_type"),
            ("[]", "not a JSON object"),
        ];
        for (config, named) in cases {
            let error = merged(config, &lora()).expect_err(config).to_string();
            assert!(error.contains(named), "{config}: {error}");
        }
        // Other beginnings leave the base as it is.
        for init in ["true", "false", r#""gaussian""#, r#""eva""#] {
            let config = format!(
                r#"{{"peft_type": "LORA", "base_model_name_or_path": "b", "r": 2, "init_lora_weights": {init}}}"#
            );
            merged(&config, &lora()).unwrap_or_else(|error| panic!("{init}: {error}"));
        }
    }
}
