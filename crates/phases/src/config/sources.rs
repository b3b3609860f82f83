//! Configuration of sources of samples.

use super::layers::sentence;
use super::{ConfigError, SourceError};
use figment::Figment;
use figment::providers::Serialized;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use undertone_cw::CwConfig;
use undertone_data::limits::MOST_SAMPLES;
use undertone_data::records::{Column, Format, PartConfig, Paths, RecordsConfig, Share};
use undertone_data::source;
use undertone_hub::Hub;
use undertone_train::limits::MOST_EPOCHS;

/// Source of samples: give one of `synth`, `path` and `hub`, or `part_of_train`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Synthesiser of the samples: `cw`, which is the default for speech, or a source that was registered with
    /// [`undertone_data::source::register`] before the configuration is read.
    pub synth: Option<Synth>,
    /// Settings of a registered source. Those of `cw` are under `cw`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Settings of synthesised Morse.
    pub cw: CwConfig,
    /// Number of synthesised samples per epoch. Training has new ones every epoch, validation the same ones every time.
    pub samples: usize,
    /// Curriculum: each stage changes keys of `cw` for a number of epochs. After the last one `cw` itself applies.
    pub stages: Vec<StageConfig>,
    /// A file, a folder, or a list of them. For speech: a list of recordings (JSONL, CSV, TSV), Parquet or tar shards,
    /// or a folder of audio files (see [`undertone_data::clips`]). For text: records (see [`undertone_data::records`]).
    pub path: Option<Paths>,
    /// Dataset on the Hugging Face hub, like `stanfordnlp/sst2`. It is downloaded once and then read from the cache.
    pub hub: Option<String>,
    /// Subset of the dataset (`config` on the hub). Not needed if there is only one.
    pub subset: Option<String>,
    /// Split of the dataset, such as `train` or `validation`.
    pub split: Option<String>,
    /// Branch, tag or commit. Default: the hub's own conversion to Parquet.
    pub revision: Option<String>,
    /// Whether speech from the `hub` is read over the network as it is needed, rather than downloaded before training
    /// starts. Nothing is stored, so every epoch reads all of it again, unless `data.cache` keeps it.
    pub stream: bool,
    /// Second of two plain text files, read line by line.
    pub target_path: Option<PathBuf>,
    /// Format of the files. Default: by their extension.
    pub format: Format,
    /// Map from each field that the task needs to the column that holds it.
    pub columns: BTreeMap<String, Column>,
    /// Whether the first row of a CSV or TSV file names the columns.
    pub header: Option<bool>,
    /// Maximum number of records.
    pub limit: Option<usize>,
    /// Fixed part of the records.
    pub part: Option<PartConfig>,
    /// Weight among several sources: number of an epoch's samples from this one, relative to the others' weights.
    /// Without weights each source contributes all its samples.
    pub weight: Option<f64>,
    /// Share of the training recordings that is held out for validation. For `data.valid` only, without any other key
    /// but `group_by`. The selection is the same in every run. As with `part`, it depends on a hash of the name: of
    /// each recording with all rows that are cut from it, of each passage or text with all records that share it, or of
    /// each group of `part.by`.
    pub part_of_train: Option<f64>,
    /// With `part_of_train`: column whose equal values stay in one split, such as `speaker`, `recording` or `document`.
    pub group_by: Option<Column>,
    /// Share of the records in a split if another has the rest, computed from `part_of_train`. Not a key of the YAML.
    #[serde(skip)]
    pub share: Option<Share>,
}

/// One source, or a list of sources that are mixed. An epoch has as many samples as all sources together.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources(pub Vec<SourceConfig>);

impl Default for Sources {
    fn default() -> Self {
        Self(vec![SourceConfig::default()])
    }
}

impl Sources {
    /// Returns each source with its suffix in messages: empty for a single source, otherwise its index in brackets.
    pub fn named(&self) -> impl Iterator<Item = (String, &SourceConfig)> {
        let single = self.0.len() == 1;
        let name = move |index: usize| if single { String::new() } else { format!("[{index}]") };
        self.0.iter().enumerate().map(move |(index, source)| (name(index), source))
    }

    /// Returns the weights of all sources, if all have one.
    pub fn weights(&self) -> Option<Vec<f64>> {
        self.0.iter().map(|source| source.weight).collect()
    }

    /// Checks the list. The error is the reason.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.0.is_empty() {
            return Err("the list is empty: name at least one source".into());
        }
        if self.0.len() == 1 && self.0[0].weight.is_some() {
            return Err("`weight` is for several sources: leave it out where there is one".into());
        }
        let made = self.0.iter().filter(|source| !source.is_recorded()).map(|source| source.samples);
        let made = made.fold(0, usize::saturating_add);
        if made > MOST_SAMPLES {
            return Err(format!("`samples` are {made} in all: a synthesiser makes at most {MOST_SAMPLES} per epoch"));
        }
        let weighted = self.0.iter().filter(|source| source.weight.is_some()).count();
        if weighted > 0 && weighted < self.0.len() {
            return Err("some sources have a `weight` and others have none: give all of them one, or none".into());
        }
        match self.0.iter().filter_map(|source| source.weight).find(|w| !(w.is_finite() && *w > 0.0)) {
            Some(weight) => Err(format!("`weight` is {weight}: it must be above 0")),
            None => Ok(()),
        }
    }
}

impl Serialize for Sources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [source] => source.serialize(serializer),
            sources => sources.serialize(serializer),
        }
    }
}

impl JsonSchema for Sources {
    fn schema_name() -> Cow<'static, str> {
        "Sources".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let source = generator.subschema_for::<SourceConfig>();
        json_schema!({"anyOf": [source, {"type": "array", "items": source}]})
    }
}

impl<'de> Deserialize<'de> for Sources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourcesVisitor)
    }
}

struct SourcesVisitor;

impl<'de> Visitor<'de> for SourcesVisitor {
    type Value = Sources;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a source of samples, or a list of sources")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sources, A::Error> {
        Ok(Sources(vec![SourceConfig::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Sources, A::Error> {
        Ok(Sources(Vec::deserialize(SeqAccessDeserializer::new(sequence))?))
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            synth: None,
            options: Map::new(),
            cw: CwConfig::default(),
            samples: 1000,
            stages: Vec::new(),
            path: None,
            hub: None,
            subset: None,
            split: None,
            revision: None,
            stream: false,
            target_path: None,
            format: Format::default(),
            columns: BTreeMap::new(),
            header: None,
            limit: None,
            part: None,
            weight: None,
            part_of_train: None,
            group_by: None,
            share: None,
        }
    }
}

/// Synthesiser of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synth {
    /// Morse code.
    Cw,
    /// The source of this name in [`undertone_data::source`], with its settings in [`options`](SourceConfig::options).
    Registered(String),
}

impl Display for Synth {
    /// Writes its name in YAML.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cw => "cw",
            Self::Registered(name) => name,
        })
    }
}

impl Serialize for Synth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Synth {
    fn schema_name() -> Cow<'static, str> {
        "Synth".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<String> = std::iter::once("cw".to_owned()).chain(source::names()).collect();
        json_schema!({"type": "string", "enum": names})
    }
}

impl<'de> Deserialize<'de> for Synth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match name.as_str() {
            "cw" => Ok(Self::Cw),
            _ if source::names().contains(&name) => Ok(Self::Registered(name)),
            _ => Err(Error::unknown_variant(&name, &["cw"])),
        }
    }
}

/// Stage of a curriculum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Number of epochs.
    pub epochs: u64,
    /// Keys of `cw` that differ.
    pub cw: serde_json::Map<String, serde_json::Value>,
}

impl Display for SourceConfig {
    /// Writes the origin of its samples, for people.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        match (&self.path, &self.hub) {
            (Some(path), _) => write!(f, "{path}")?,
            (None, Some(dataset)) => write!(f, "{dataset} {}", self.split.as_deref().unwrap_or_default())?,
            (None, None) => write!(f, "synth: {}", self.synth.as_ref().unwrap_or(&Synth::Cw))?,
        }
        if let Some(part) = &self.part {
            write!(f, " ({} to {})", part.from, part.to)?;
        }
        match &self.share {
            Some(share) => write!(f, " ({share} of it)"),
            None => Ok(()),
        }
    }
}

impl SourceConfig {
    /// Whether its samples are recorded rather than synthesised.
    pub fn is_recorded(&self) -> bool {
        self.path.is_some() || self.hub.is_some()
    }

    /// Returns the first key that is set besides `part_of_train` and `group_by`.
    pub(crate) fn key_beside_part_of_train(&self) -> Option<String> {
        let keys = |source: &Self| serde_json::to_value(source).unwrap_or_default();
        let (given, usual) =
            (keys(&Self { part_of_train: None, group_by: None, ..self.clone() }), keys(&Self::default()));
        let mut given = given.as_object()?.iter();
        given.find(|(key, value)| usual.get(key.as_str()) != Some(value)).map(|(key, _)| key.clone())
    }

    /// Checks it as a source of speech, for training or evaluation. The error is the reason.
    pub(crate) fn validate_speech(&self, training: bool) -> Result<(), String> {
        let defaults = Self::default();
        if self.target_path.is_some() {
            return Err("`target_path` is for text: a recording and its text come in one row of `path`".into());
        }
        if self.is_recorded() {
            if let Some(key) = self.made_only(&defaults) {
                return Err(format!(
                    "`{key}` is for samples that are made, and `path` or `hub` are recordings: leave it out"
                ));
            }
            return self.validate_recorded();
        }
        if let Some(key) = self.recorded_only(&defaults) {
            return Err(format!(
                "`{key}` is for recordings: give their `path` or `hub`, or leave it out for `synth: cw`"
            ));
        }
        if let Some(Synth::Registered(name)) = &self.synth {
            let of_cw = [("cw", self.cw != defaults.cw), ("stages", !self.stages.is_empty())];
            if let Some((key, _)) = of_cw.into_iter().find(|(_, given)| *given) {
                return Err(format!("`{key}` is for `synth: cw`: what `{name}` is told are its `options`"));
            }
        } else if !self.options.is_empty() {
            return Err("`options` are for a registered source, and `synth` names none: leave them out".into());
        }
        if self.samples == 0 {
            return Err("`samples` is 0: a synthesiser makes at least 1 per epoch".into());
        }
        if self.samples > MOST_SAMPLES {
            let samples = self.samples;
            return Err(format!("`samples` is {samples}: a synthesiser makes at most {MOST_SAMPLES} per epoch"));
        }
        if !training && !self.stages.is_empty() {
            return Err("`stages` are for training: other data is the same every time".into());
        }
        let lasts = |stage: &StageConfig| (1..=MOST_EPOCHS).contains(&stage.epochs);
        if let Some((index, stage)) = self.stages.iter().enumerate().find(|(_, stage)| !lasts(stage)) {
            let epochs = stage.epochs;
            return Err(format!(
                "`stages[{index}].epochs` is {epochs}: it must be at least 1 and at most {MOST_EPOCHS}"
            ));
        }
        self.cw.validate().map_err(|e| e.to_string())?;
        for index in 0..self.stages.len() {
            let cw = self.stage(index).map_err(|e| e.to_string())?;
            cw.validate().map_err(|e| format!("`stages[{index}].cw`: {e}"))?;
        }
        Ok(())
    }

    /// Checks it as a source of text. The error is the reason.
    pub(crate) fn validate_text(&self) -> Result<(), String> {
        if self.path.is_none() && self.hub.is_none() && self.synth.is_none() {
            return Err("there is no data: give a file of records as `path`, or a `hub` dataset".into());
        }
        let defaults = Self::default();
        if let Some(key) = self.made_only(&defaults) {
            return Err(format!("`{key}` is for speech: text comes from files as `path`, or from the `hub`"));
        }
        if matches!(self.format, Format::Tar | Format::Audio) {
            return Err("`format` is one of speech: text is jsonl, json, csv, tsv, conll, text or parquet".into());
        }
        if self.stream {
            return Err("`stream` is for speech: text is small, so it is fetched as a whole; leave `stream` out".into());
        }
        self.validate_recorded()
    }

    /// Checks that the keys for records or recordings fit together. The error is the reason.
    fn validate_recorded(&self) -> Result<(), String> {
        let defaults = Self::default();
        match (&self.path, &self.hub) {
            (Some(_), Some(_)) => return Err("give either `path` or `hub`, not both".into()),
            (None, Some(_)) if self.split.is_none() => {
                return Err("`split` is missing: say which split of the `hub` dataset, like `train`".into());
            }
            (None, Some(_)) if self.target_path.is_some() || self.format != defaults.format => {
                return Err("`target_path` and `format` are for `path`: datasets of the `hub` are Parquet".into());
            }
            (Some(_), None) => {
                let hub = [("subset", &self.subset), ("split", &self.split), ("revision", &self.revision)];
                let given = hub.iter().find(|(_, value)| value.is_some()).map(|(key, _)| *key);
                if let Some(key) = given.or(self.stream.then_some("stream")) {
                    return Err(format!("`{key}` is for `hub`, not for `path`"));
                }
            }
            (None, _) => {}
        }
        // The files of a dataset are known only after the download; they are Parquet.
        let path = self.path.clone().unwrap_or_else(|| PathBuf::from("hub.parquet").into());
        self.records_in(path).validate().map_err(|e| e.to_string())
    }

    /// Returns the first key that is set and applies to a synthesiser only.
    fn made_only(&self, defaults: &Self) -> Option<&'static str> {
        let keys = [
            ("synth", self.synth.is_some()),
            ("options", !self.options.is_empty()),
            ("cw", self.cw != defaults.cw),
            ("samples", self.samples != defaults.samples),
            ("stages", !self.stages.is_empty()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    /// Returns the first key that is set and does not apply to a synthesiser.
    fn recorded_only(&self, defaults: &Self) -> Option<&'static str> {
        let keys = [
            ("subset", self.subset.is_some()),
            ("split", self.split.is_some()),
            ("revision", self.revision.is_some()),
            ("stream", self.stream),
            ("format", self.format != defaults.format),
            ("columns", !self.columns.is_empty()),
            ("header", self.header.is_some()),
            ("limit", self.limit.is_some()),
            ("part", self.part.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    /// Returns the configuration of its records or recordings. Downloads those of the hub that are not in the cache.
    pub(crate) fn records(&self) -> Result<RecordsConfig, SourceError> {
        let Some(dataset) = &self.hub else { return Ok(self.records_in(self.path.clone().unwrap_or_default())) };
        let split = self.split.as_deref().unwrap_or_default();
        let shards = Hub::from_env().dataset(dataset, self.subset.as_deref(), split, self.revision.as_deref());
        Ok(self.records_in(shards.map_err(SourceError::Dataset)?.into()))
    }

    /// As [`records`](Self::records), for the files at `path`.
    pub(crate) fn records_in(&self, path: Paths) -> RecordsConfig {
        RecordsConfig {
            path,
            target_path: self.target_path.clone(),
            format: if self.hub.is_some() { Format::Parquet } else { self.format },
            columns: self.columns.clone(),
            header: self.header,
            limit: self.limit,
            part: self.part.clone(),
            share: self.share.clone(),
        }
    }

    /// Returns the configuration of the synthesiser in a stage.
    ///
    /// # Errors
    /// Names the invalid key of the stage.
    pub fn stage(&self, index: usize) -> Result<CwConfig, ConfigError> {
        let stage = &self.stages[index];
        let merged = Figment::from(Serialized::defaults(&self.cw)).merge(Serialized::defaults(&stage.cw));
        merged.extract().map_err(|e| ConfigError::Value(format!("`stages[{index}].cw`: {}", sentence(&e))))
    }
}
