//! The configuration of an experiment.

use super::layers::{Layers, YamlFile, sentence};
use super::model::usual_lora;
use super::{
    AlignmentConfig, ConfigError, DataConfig, DistillationConfig, ModelConfig, PhasesConfig, RouterPhase, TaskConfig,
    preset,
};
use crate::backbone::Architecture;
use burn::tensor::Device;
use figment::Figment;
use figment::providers::Serialized;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use undertone_fit::DevicePreset;
use undertone_model::router::RouterConfig;
use undertone_model::whisper::language_code;
use undertone_ops::{DeviceError, DeviceSpec, Kernels};
use undertone_train::TrainConfig;
use undertone_train::ranks::launched;

/// Name of the configuration file of a run.
pub(crate) const CONFIG: &str = "config.yaml";

/// Name of the folder of a backbone that is in the directory of its run.
pub(crate) const BACKBONE: &str = "backbone";

/// Configuration of an experiment: everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// Seed of everything random: initial weights, sample order, synthesis, dropout.
    pub seed: u64,
    /// Name and directory of the run.
    pub run: RunConfig,
    /// Device: `auto`, `cpu`, `cuda:N`, `wgpu:N`, `tch:cpu` or `tch:cuda:N`.
    pub device: DeviceSpec,
    /// Preset for settings that this configuration leaves out: `none`, `auto` (that of the device), or the name of a
    /// card.
    pub device_preset: DevicePreset,
    /// Implementation of operations on the CPU: `fused` kernels, or `composed` of Burn's own operations, which gives
    /// the same results up to rounding and is several times slower.
    pub kernels: Kernels,
    /// The model.
    pub model: ModelConfig,
    /// Training and validation data.
    pub data: DataConfig,
    /// The loss.
    pub loss: LossConfig,
    /// The training loop.
    pub train: TrainConfig,
    /// Tasks, each with an adapter and a head. With tasks this is a DYNAMO run, and `data` only configures the batches.
    pub tasks: Vec<TaskConfig>,
    /// The router over the tasks' adapters.
    pub router: RouterConfig,
    /// Settings of the phases of a DYNAMO run that differ from `train`.
    pub phases: PhasesConfig,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            seed: 42,
            run: RunConfig::default(),
            device: DeviceSpec::Auto,
            device_preset: DevicePreset::None,
            kernels: Kernels::Fused,
            model: ModelConfig::default(),
            data: DataConfig::default(),
            loss: LossConfig::default(),
            train: usual_training(),
            tasks: Vec::new(),
            router: RouterConfig::default(),
            phases: PhasesConfig::default(),
        }
    }
}

/// Default training configuration: evaluated by error rates, as for speech recognition.
fn usual_training() -> TrainConfig {
    let mut train = TrainConfig::default();
    train.evaluate.metrics = vec!["cer".into(), "wer".into()];
    train.checkpoint.metric = "cer".into();
    train
}

/// Returns the keys of [`usual_training`], of the default adapter and of phase 2 that differ from the defaults of their types,
/// as a layer below all others.
fn usual_keys(figment: &Figment) -> serde_json::Value {
    let TrainConfig { evaluate, checkpoint, .. } = usual_training();
    let given: Vec<String> = figment.extract_inner("train.evaluate.metrics").unwrap_or_default();
    let first = given.first().filter(|_| !given.contains(&checkpoint.metric)).cloned();
    let metric = first.unwrap_or(checkpoint.metric);
    let lora = serde_json::json!({"target_modules": usual_lora().target_modules});
    let model = match figment.extract_inner::<String>("model.adapter.type") {
        Ok(name) if name == "lora" => serde_json::json!({"adapter": lora}),
        _ if figment.find_value("model.adapter").is_ok() => serde_json::json!({}),
        _ => serde_json::json!({"lora": lora}),
    };
    serde_json::json!({
        "model": model,
        "train": {"evaluate": {"metrics": evaluate.metrics}, "checkpoint": {"metric": metric}},
        "phases": {"2": {"losses": {"task": RouterPhase::default().losses.task}}}
    })
}

/// Returns an error as a sentence, with the name of the task that has the key.
fn in_task(figment: &Figment, error: &figment::Error) -> String {
    let text = sentence(error);
    let task = match error.path.as_slice() {
        [tasks, index, ..] if tasks == "tasks" => task_name(figment, index),
        _ => None,
    };
    match task {
        Some(task) => text.replacen("`: ", &format!("` (task `{task}`): "), 1),
        None => text,
    }
}

fn task_name(figment: &Figment, index: &str) -> Option<String> {
    let tasks = figment.find_value("tasks").ok()?;
    let task = tasks.as_array()?.get(index.parse::<usize>().ok()?)?;
    Some(task.as_dict()?.get("name")?.as_str()?.to_owned())
}

/// Returns the folder that `model` names, if the configuration does not say which architecture it has.
fn model_folder(figment: &Figment) -> Option<PathBuf> {
    if figment.find_value("model.backbone").is_ok() {
        return None;
    }
    ["model.path", "model.source.path"].iter().find_map(|key| figment.extract_inner(key).ok())
}

/// Returns an error of a configuration whose model's folder does not say what it is, which may be all that is wrong.
fn without_backbone(folder: &Path, error: &ConfigError) -> ConfigError {
    let folder = folder.display();
    format!(
        "{error}. Beside that, there is no `config.json` in `{folder}`, the folder of `model`, so that the backbone is taken for `whisper`: correct the \
         path, or give `model.backbone`"
    )
    .into()
}

/// Name and directory of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the run, and of its directory below `dir`.
    pub name: String,
    /// Directory of all runs.
    pub dir: PathBuf,
    /// Whether an existing run of that name may be deleted and started anew.
    pub overwrite: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { name: "run".into(), dir: "runs".into(), overwrite: false }
    }
}

/// Loss terms besides the cross-entropy of the text, and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Label smoothing: share of each target's probability mass that is spread over all tokens.
    pub label_smoothing: f64,
    /// Weight of the CTC loss of the text on the encoder's last states (Graves et al., 2006), beside the decoder's loss; 0 leaves
    /// it out. A model that begins with random weights learns from it where in a recording its tokens are.
    pub ctc: f64,
    /// Loss terms on the encoder from the known timing of synthesised samples.
    pub alignment: AlignmentConfig,
    /// Loss term by which the model learns from a larger one, in runs without `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distillation: Option<DistillationConfig>,
    /// Whether a training batch shorter than the window is placed at a random position in it, instead of at the start.
    pub random_position: bool,
}

impl Experiment {
    /// Loads and validates a configuration. The layers, each overriding the ones before: defaults, the device's preset,
    /// the YAML file, `UNDERTONE_*` variables (`UNDERTONE_TRAIN__MAX_STEPS`), `key=value` settings. In the key of a
    /// setting, an element of a list is addressed by its `name` or its index from 0: `tasks.copy.train.max_steps=100`.
    ///
    /// # Errors
    /// Names the key and where it was set.
    pub fn load(file: Option<&Path>, settings: &[String]) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        if let Some(file) = file {
            if !file.is_file() {
                return Err(ConfigError::NoFile(file.to_owned()));
            }
            layers.add(YamlFile(file))?;
        }
        for (name, text) in variables() {
            let value: serde_json::Value = serde_norway::from_str(&text)
                .map_err(|error| format!("the environment variable `{name}` is not YAML: {error}"))?;
            let key = name[VARIABLES.len()..].to_lowercase().replace("__", ".");
            layers.set(&key, value, &format!("environment variable `{name}`"))?;
        }
        for setting in settings {
            let malformed = || format!("`--set {setting}` is not `key=value`, like `train.max_steps=100`");
            let (key, text) = setting.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(malformed)?;
            let value: serde_json::Value = serde_norway::from_str(text).map_err(|error| {
                format!(
                    "`--set {setting}`: the value is not YAML: {error}; a text with such characters is written in quotes"
                )
            })?;
            layers.set(key, value, SET)?;
        }
        layers.migrate()?;
        let folder = model_folder(&layers.figment());
        if let Some(folder) = &folder {
            if let Some(reason) = Architecture::unknown_type(folder) {
                return Err(reason.into());
            }
            if let Some(backbone) = Architecture::of_folder(folder) {
                layers.add_below(Serialized::defaults(serde_json::json!({"model": {"backbone": backbone}})))?;
            }
        }
        if let Some(layer) = preset::layer(&layers.figment()) {
            tracing::info!("{}", layer.reason);
            layers.add_below(Serialized::defaults(layer.keys))?;
        }
        let usual = usual_keys(&layers.figment());
        layers.add_below(Serialized::defaults(usual))?;
        let figment = layers.figment();
        let mut experiment: Self = figment.extract().map_err(|e| in_task(&figment, &e))?;
        experiment.data.language = language_code(&experiment.data.language).into_owned();
        let unknown = folder.filter(|folder| !folder.is_file() && !folder.join("config.json").exists());
        experiment.validate().map_err(|error| match unknown {
            Some(folder) => without_backbone(&folder, &error),
            None => error,
        })?;
        Ok(experiment)
    }

    /// Reads a complete configuration that an earlier version wrote. `None` if it is not that either.
    pub(crate) fn of_earlier_version(yaml: &str) -> Option<Self> {
        Layers::of_earlier_version(yaml)?.figment().extract().ok()
    }

    /// Returns the JSON Schema of a configuration file, with the kinds that are registered in this process.
    pub fn schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        // What a configuration has where it names none, in place of the defaults of the crates that the keys come from.
        let TrainConfig { evaluate, checkpoint, .. } = usual_training();
        for (kind, key, usual) in [
            ("EvaluateConfig", "metrics", serde_json::json!(evaluate.metrics)),
            ("CheckpointConfig", "metric", serde_json::json!(checkpoint.metric)),
            ("TrainConfig", "evaluate", serde_json::json!(evaluate)),
        ] {
            schema["$defs"][kind]["properties"][key]["default"] = usual;
        }
        schema
    }

    /// Opens the device that this process trains on. With `device: auto`, each of several processes on one machine uses
    /// its own card.
    ///
    /// # Errors
    /// When the device is not available.
    pub fn open_device(&self) -> Result<Device, DeviceError> {
        self.device.resolve_for(launched().map_or(0, |launched| launched.local))
    }

    /// Returns the tasks. A configuration without `tasks` has one task with an empty name.
    pub fn all_tasks(&self) -> Vec<TaskConfig> {
        match self.tasks.as_slice() {
            [] => vec![TaskConfig::of_whole(&self.data, &self.train)],
            tasks => tasks.to_vec(),
        }
    }

    /// Loads the configuration of the run in a directory, with `key=value` settings.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn of_run(directory: &Path, settings: &[String]) -> Result<Self, ConfigError> {
        let mut experiment = Self::load(Some(&directory.join(CONFIG)), settings)?;
        experiment.at(directory);
        Ok(experiment)
    }

    /// Sets `run.dir` and `run.name` to `directory`, for a run that was moved.
    pub fn at(&mut self, directory: &Path) {
        // Paths that end in `..`, and `.`, have no file name.
        let whole = directory.file_name().is_none().then(|| directory.canonicalize().ok()).flatten();
        let directory = whole.as_deref().unwrap_or(directory);
        self.run.dir = directory.parent().map(Path::to_owned).unwrap_or_default();
        self.run.name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let inside = self.directory().join(BACKBONE);
        if self.model.path.is_none()
            && self.model.source.path.as_deref() == Some(Path::new(BACKBONE))
            && inside.is_dir()
        {
            self.model.source.path = Some(inside);
        }
    }

    /// Returns the name of the backbone in the descriptions of what was trained on it. A backbone in the directory of the
    /// run has no other, so that the directory can be moved.
    pub(crate) fn backbone_name(&self) -> String {
        let own = self.model.source.path.as_ref().filter(|path| **path == self.directory().join(BACKBONE));
        own.map_or_else(|| self.model.to_string(), |_| BACKBONE.to_owned())
    }

    /// Returns the directory of the run.
    pub fn directory(&self) -> PathBuf {
        self.run.dir.join(&self.run.name)
    }

    /// Returns the whole configuration as YAML, defaults included.
    pub fn to_yaml(&self) -> String {
        serde_norway::to_string(self).unwrap_or_default()
    }
}

/// Beginning of the names of environment variables that set keys: `UNDERTONE_TRAIN__MAX_STEPS` is `train.max_steps`.
const VARIABLES: &str = "UNDERTONE_";

/// What messages call values of `--set`.
const SET: &str = "--set";

/// Environment variables that set keys, by name.
fn variables() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).filter(|(name, _)| name.starts_with(VARIABLES)).collect()
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
