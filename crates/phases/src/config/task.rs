//! Configuration of a task.

use super::adapter::{adapter_of, settled};
use super::splits::Splits;
use super::{DataConfig, SourceConfig, Sources};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use undertone_model::adapters::AdapterConfig;
use undertone_model::adapters::lora::LoraConfig;
use undertone_ops::seeds;
use undertone_tasks::{GenerationSettings, HeadConfig};
use undertone_train::TrainConfig;

/// Configuration of one task: its name, its data, and the head and adapter that are trained for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "TaskConfig", default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Name of the task in logs, folders and tables.
    pub name: String,
    /// Head that computes its answers.
    pub head: HeadConfig,
    /// Its samples.
    pub data: TaskData,
    /// Its adapter, if that is a LoRA: short for `adapter: {type: lora, …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Its adapter, of any registered type. A LoRA is recorded as `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterConfig>,
    /// Metrics of the task, out of those of its head. The first one selects the best checkpoint. By default the head's
    /// first two.
    pub metrics: Vec<String>,
    /// Weight of its loss relative to those of other tasks.
    pub weight: f64,
    /// Keys of `phases.1.train` that differ in the stage that trains its adapter alone.
    pub train: Map<String, Value>,
    /// Decoding of its answers.
    pub generation: GenerationSettings,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            head: HeadConfig::default(),
            data: TaskData::default(),
            lora: Some(LoraConfig::default()),
            adapter: None,
            metrics: Vec::new(),
            weight: 1.0,
            train: Map::new(),
            generation: GenerationSettings::default(),
        }
    }
}

/// Implemented by hand because an adapter has two keys, of which one is given.
impl<'de> Deserialize<'de> for TaskConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::deserialize(deserializer)?;
        (config.lora, config.adapter) =
            settled((config.lora, config.adapter), LoraConfig::default).map_err(D::Error::custom)?;
        Ok(config)
    }
}

impl Serialize for TaskConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl TaskConfig {
    /// Returns its adapter.
    pub fn adapter(&self) -> AdapterConfig {
        adapter_of(self.lora.as_ref(), self.adapter.as_ref())
    }

    /// Returns the single task of a run without `tasks`, which the configuration as a whole describes. Its name is
    /// empty.
    pub(crate) fn of_whole(data: &DataConfig, train: &TrainConfig) -> Self {
        let DataConfig { train: sources, valid, test, .. } = data;
        let data = TaskData { train: sources.clone(), valid: valid.clone(), test: test.clone() };
        Self { data, metrics: train.evaluate.metrics.clone(), ..Self::default() }
    }

    /// Returns its name; `None` for the single task of a run without `tasks`.
    pub fn label(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the name of a part of it in messages: `TASK/part`.
    pub(crate) fn part(&self, part: &str) -> String {
        self.label().map_or_else(|| part.to_owned(), |task| format!("{task}/{part}"))
    }

    /// Returns the seed of its samples, given the `seed` of the experiment.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        self.label().map_or(seed, |name| seeds::of_name(seed, name))
    }

    /// Returns its metrics.
    pub fn metrics(&self) -> Vec<String> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        self.head.metrics().iter().take(2).map(|metric| metric.name.to_owned()).collect()
    }
}

/// Data of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskData {
    /// Training data: a source, or a list of sources to be mixed.
    pub train: Sources,
    /// Validation data: a source of its own, or `{part_of_train: 0.05}`, which holds out that share of the training
    /// records. Default: 64 other samples of the synthesiser. Recorded training data has no default.
    pub valid: Option<SourceConfig>,
    /// Test data, for evaluation after training. Default: like `valid` with other samples, if those are synthesised.
    pub test: Option<SourceConfig>,
}

impl TaskData {
    /// Returns the splits.
    pub(crate) fn splits(&self) -> Splits<'_> {
        Splits { train: &self.train.0, valid: self.valid.as_ref(), test: self.test.as_ref() }
    }
}
