//! An experiment as a user writes it.

use super::layers::{YamlFile, check_depth, sentence, set};
use super::{AlignmentConfig, ConfigError, DataConfig, ModelConfig, PhasesConfig, TaskConfig, preset};
use burn::tensor::Device;
use figment::Figment;
use figment::providers::{Env, Serialized};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use undertone_fit::DevicePreset;
use undertone_model::router::RouterConfig;
use undertone_ops::{DeviceError, DeviceSpec, Kernels};
use undertone_train::TrainConfig;
use undertone_train::ranks::launched;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// Fixes everything random: weights, order, synthesis, dropout.
    pub seed: u64,
    /// Where the run's records go.
    pub run: RunConfig,
    /// `auto`, `cpu`, `cuda:N`, `wgpu:N`, `tch:cpu` or `tch:cuda:N`.
    pub device: DeviceSpec,
    /// Whose settings hold where this configuration has none: `none`, `auto` (those of the device), or a card's name.
    pub device_preset: DevicePreset,
    /// What operations are made of on the CPU: `fused` kernels, or `composed` of Burn's own operations, which gives the
    /// same to rounding and is several times slower.
    pub kernels: Kernels,
    /// What is trained.
    pub model: ModelConfig,
    /// What it is trained on.
    pub data: DataConfig,
    /// What is minimised.
    pub loss: LossConfig,
    /// How.
    pub train: TrainConfig,
    /// Tasks, each with an adapter and a head: with any, this is a DYNAMO run, and `data` says only how batches are made.
    pub tasks: Vec<TaskConfig>,
    /// The router over the tasks' adapters.
    pub router: RouterConfig,
    /// How the phases of a DYNAMO run differ from `train`.
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

/// What training is where nothing is said: judged by what is written, as speech recognition is.
fn usual_training() -> TrainConfig {
    let mut train = TrainConfig::default();
    train.evaluate.metrics = vec!["cer".into(), "wer".into()];
    train.checkpoint.metric = "cer".into();
    train
}

/// The keys of [`usual_training`] and of the usual adapter that have other defaults where they come from, as a layer below all
/// others.
fn usual_keys() -> serde_json::Value {
    let TrainConfig { evaluate, checkpoint, .. } = usual_training();
    serde_json::json!({
        "model": {"lora": {"target_modules": ModelConfig::default().lora.target_modules}},
        "train": {"evaluate": {"metrics": evaluate.metrics}, "checkpoint": {"metric": checkpoint.metric}}
    })
}

/// Where a run's records go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The run's name: its directory below `dir`.
    pub name: String,
    /// The directory of all runs.
    pub dir: PathBuf,
    /// Whether a run of that name may be deleted and begun anew.
    pub overwrite: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { name: "run".into(), dir: "runs".into(), overwrite: false }
    }
}

/// What is minimised besides the cross-entropy of the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Share of each target's mass spread over all tokens.
    pub label_smoothing: f64,
    /// Terms on the encoder from the known timing of synthesised samples.
    pub alignment: AlignmentConfig,
    /// Whether a training batch shorter than the window lies anywhere in it instead of at its beginning.
    pub random_position: bool,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.0, alignment: AlignmentConfig::default(), random_position: false }
    }
}

impl Experiment {
    /// Reads defaults < the device's preset < the YAML file < `UNDERTONE_*` variables (`UNDERTONE_TRAIN__MAX_STEPS`) < `key=value` settings,
    /// and checks the result. In a setting's key an element of a list is called by its `name` or its number from 0:
    /// `tasks.copy.train.max_steps=100`.
    ///
    /// # Errors
    /// Names the key and where it was set.
    pub fn load(file: Option<&Path>, settings: &[String]) -> Result<Self, ConfigError> {
        let mut figment = Figment::new();
        if let Some(file) = file {
            if !file.is_file() {
                return Err(ConfigError::NoFile(file.to_owned()));
            }
            check_depth(file)?;
            figment = figment.merge(YamlFile(file));
        }
        figment = figment.merge(Env::prefixed("UNDERTONE_").split("__"));
        for setting in settings {
            let malformed =
                || ConfigError::Value(format!("`--set {setting}` is no `key=value`, like `train.max_steps=100`"));
            let (key, text) = setting.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(malformed)?;
            let value: serde_json::Value = serde_norway::from_str(text).map_err(|_| malformed())?;
            figment = set(figment, key, value)?;
        }
        if let Some(layer) = preset::layer(&figment) {
            tracing::info!("{}", layer.reason);
            figment = figment.join(Serialized::defaults(layer.keys));
        }
        let figment = figment.join(Serialized::defaults(usual_keys()));
        let experiment: Self = figment.extract().map_err(|e| ConfigError::Value(sentence(&e)))?;
        experiment.validate()?;
        Ok(experiment)
    }

    /// The device that this process trains on: of several processes on one machine each takes a card of its own, where `device` is `auto`.
    ///
    /// # Errors
    /// When there is none.
    pub fn open_device(&self) -> Result<Device, DeviceError> {
        self.device.resolve_for(launched().map_or(0, |launched| launched.local))
    }

    /// What is trained: the tasks, or the one that a configuration without `tasks` stands for, which has no name.
    pub fn all_tasks(&self) -> Vec<TaskConfig> {
        match self.tasks.as_slice() {
            [] => vec![TaskConfig::of_whole(&self.data, &self.train)],
            tasks => tasks.to_vec(),
        }
    }

    /// Makes `directory` the run's own, wherever it was moved to.
    pub fn at(&mut self, directory: &Path) {
        // `.` and `..` end in no name.
        let whole = directory.file_name().is_none().then(|| directory.canonicalize().ok()).flatten();
        let directory = whole.as_deref().unwrap_or(directory);
        self.run.dir = directory.parent().map(Path::to_owned).unwrap_or_default();
        self.run.name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    }

    /// The directory of the run.
    pub fn directory(&self) -> PathBuf {
        self.run.dir.join(&self.run.name)
    }

    /// Everything, defaults included, as YAML.
    pub fn to_yaml(&self) -> String {
        serde_norway::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
