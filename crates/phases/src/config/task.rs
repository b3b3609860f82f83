//! A task as a configuration says it.

use super::splits::Splits;
use super::{DataConfig, SourceConfig, Sources};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone_model::lora::LoraConfig;
use undertone_ops::seeds;
use undertone_tasks::{GenerationSettings, HeadConfig};
use undertone_train::TrainConfig;

/// One task: what it is called, what it is trained on, and what is trained for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Its name in logs, folders and tables.
    pub name: String,
    /// What its answers are made by.
    pub head: HeadConfig,
    /// Its samples.
    pub data: TaskData,
    /// Its adapter.
    pub lora: LoraConfig,
    /// What it is judged by, of what its head has metrics for; the first decides. The head's first two, if none is named.
    pub metrics: Vec<String>,
    /// How much its loss counts beside those of other tasks.
    pub weight: f64,
    /// The keys of `phases.1.train` that differ while its adapter is trained alone.
    pub train: Map<String, Value>,
    /// How its answers are decoded.
    pub generation: GenerationSettings,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            head: HeadConfig::default(),
            data: TaskData::default(),
            lora: LoraConfig::default(),
            metrics: Vec::new(),
            weight: 1.0,
            train: Map::new(),
            generation: GenerationSettings::default(),
        }
    }
}

impl TaskConfig {
    /// The one task of a run without `tasks`, which the configuration describes as a whole. It has no name.
    pub(crate) fn of_whole(data: &DataConfig, train: &TrainConfig) -> Self {
        let DataConfig { train: sources, valid, test, .. } = data;
        let data = TaskData { train: sources.clone(), valid: valid.clone(), test: test.clone() };
        Self { data, metrics: train.evaluate.metrics.clone(), ..Self::default() }
    }

    /// Whether it is the one task of a run without `tasks`: no other is without a name.
    pub fn is_whole(&self) -> bool {
        self.name.is_empty()
    }

    /// What its samples are drawn from, where the experiment's seed is `seed`.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        if self.is_whole() { seed } else { seeds::of_name(seed, &self.name) }
    }

    /// What it is judged by.
    pub fn metrics(&self) -> Vec<String> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        self.head.metrics().iter().take(2).map(|metric| metric.name.to_owned()).collect()
    }
}

/// A task's samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskData {
    /// What it is trained on: a source, or a list of sources to be mixed.
    pub train: Sources,
    /// What it is judged by in training: a source of its own, or `{part_of_train: 0.05}`, which keeps that share of the
    /// records from training. If nothing is said: 64 other samples of the synthesiser; for records it must be said.
    pub valid: Option<SourceConfig>,
    /// What it is judged by afterwards; like `valid`, but with other samples where they are synthesised, if not given.
    pub test: Option<SourceConfig>,
}

impl TaskData {
    /// What is trained on and judged by.
    pub(crate) fn splits(&self) -> Splits<'_> {
        Splits { train: &self.train.0, valid: self.valid.as_ref(), test: self.test.as_ref() }
    }
}
