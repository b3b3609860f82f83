//! Where samples come from.

use super::layers::sentence;
use super::{ConfigError, SourceError};
use figment::Figment;
use figment::providers::Serialized;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use undertone_cw::CwConfig;
use undertone_data::limits::MOST_SAMPLES;
use undertone_data::records::{Column, Format, PartConfig, Paths, RecordsConfig, Share};
use undertone_data::source;
use undertone_hub::Hub;
use undertone_train::limits::MOST_EPOCHS;

/// Where samples come from: give one of `synth`, `path` and `hub`, or `part_of_train`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Who makes them: `cw`, which is the default for speech, or a source that was registered with
    /// [`undertone_data::source::register`] before the configuration is read.
    pub synth: Option<Synth>,
    /// The keys of a registered source; `cw` has its own.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// How it sounds.
    pub cw: CwConfig,
    /// Samples it makes per epoch. Training hears new ones every epoch, validation the same ones every time.
    pub samples: usize,
    /// A curriculum: each stage changes some of `cw` for a number of epochs; after the last, `cw` itself holds.
    pub stages: Vec<StageConfig>,
    /// A file, a folder or a list of such: of speech a list of recordings (JSONL, CSV, TSV), Parquet or tar shards, or a
    /// folder of audio files, as [`undertone_data::clips`] says; of text records, as [`undertone_data::records`] says.
    pub path: Option<Paths>,
    /// A dataset on the Hugging Face hub, like `stanfordnlp/sst2`; fetched once, then read from its cache.
    pub hub: Option<String>,
    /// Which of the dataset's subsets (the hub says `config`); not needed where there is one.
    pub subset: Option<String>,
    /// Which of its splits: `train`, `validation` and the like.
    pub split: Option<String>,
    /// Branch, tag or commit; the hub's own conversion to Parquet if not given.
    pub revision: Option<String>,
    /// Whether speech from the `hub` is read over the network as it is needed, rather than fetched as a whole before
    /// training starts. Nothing is stored, so every epoch reads all of it again, unless `data.cache` keeps it.
    pub stream: bool,
    /// The second of two plain text files, line by line.
    pub target_path: Option<PathBuf>,
    /// How records are written; by the extension if not given.
    pub format: Format,
    /// From a field that the task needs to the column that holds it.
    pub columns: BTreeMap<String, Column>,
    /// Whether the first row of a CSV or TSV file names the columns.
    pub header: Option<bool>,
    /// At most so many records.
    pub limit: Option<usize>,
    /// A fixed share of the records.
    pub part: Option<PartConfig>,
    /// Among several sources: how many of an epoch's samples come from this one, relative to the others' weights. Without
    /// weights every source gives what it has.
    pub weight: Option<f64>,
    /// Of `data.valid` alone, and instead of all others: this share of the recordings that would be trained on is kept from
    /// training and judges the model. Which ones is the same in every run: as with `part`, a hash of its name says of each
    /// recording, with all rows that are cut from it, of each passage or text, with all records that share it, or of each group
    /// of `part.by`, where it belongs.
    pub part_of_train: Option<f64>,
    /// Beside `part_of_train`: the column whose equal values stay on one side, such as `speaker`, `recording` or `document`.
    pub group_by: Option<Column>,
    /// What a split takes of its records, where another takes the rest: what `part_of_train` comes to. No key of the YAML.
    #[serde(skip)]
    pub share: Option<Share>,
}

/// One source, or a list of sources that are mixed: an epoch has as many samples as all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources(pub Vec<SourceConfig>);

impl Default for Sources {
    fn default() -> Self {
        Self(vec![SourceConfig::default()])
    }
}

impl Sources {
    /// Each source, with what a message calls it.
    pub fn named(&self) -> impl Iterator<Item = (String, &SourceConfig)> {
        let single = self.0.len() == 1;
        let name = move |index: usize| if single { String::new() } else { format!("[{index}]") };
        self.0.iter().enumerate().map(move |(index, source)| (name(index), source))
    }

    /// The weights of all sources, if they have any.
    pub fn weights(&self) -> Option<Vec<f64>> {
        self.0.iter().map(|source| source.weight).collect()
    }

    /// Whether the list makes sense; if not, why.
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

/// Who makes samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synth {
    /// Morse code.
    Cw,
    /// The source of this name in [`undertone_data::source`], with what it calls [`options`](SourceConfig::options).
    Registered(String),
}

impl Display for Synth {
    /// As YAML names it.
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

/// A stage of a curriculum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// For how many epochs it holds.
    pub epochs: u64,
    /// The keys of `cw` that differ.
    pub cw: serde_json::Map<String, serde_json::Value>,
}

impl Display for SourceConfig {
    /// Where its samples come from, as a person would say it.
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
    /// Whether its samples are read rather than made.
    pub fn is_recorded(&self) -> bool {
        self.path.is_some() || self.hub.is_some()
    }

    /// The first key that is given besides `part_of_train`.
    pub(crate) fn key_beside_part_of_train(&self) -> Option<String> {
        let keys = |source: &Self| serde_json::to_value(source).unwrap_or_default();
        let (given, usual) =
            (keys(&Self { part_of_train: None, group_by: None, ..self.clone() }), keys(&Self::default()));
        let mut given = given.as_object()?.iter();
        given.find(|(key, value)| usual.get(key.as_str()) != Some(value)).map(|(key, _)| key.clone())
    }

    /// Whether it makes sense as speech, in training or elsewhere; if not, why.
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

    /// Whether it makes sense as text; if not, why.
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

    /// Whether what says where records or recordings are fits together; if not, why.
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
        // A dataset's files are known once they are fetched; they are Parquet.
        let path = self.path.clone().unwrap_or_else(|| PathBuf::from("hub.parquet").into());
        self.records_in(path).validate().map_err(|e| e.to_string())
    }

    /// The first key that means something for a synthesiser alone, and is given.
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

    /// The first key that means nothing for a synthesiser, and is given.
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

    /// Where the records or recordings are; fetched from the hub if they are not there.
    pub(crate) fn records(&self) -> Result<RecordsConfig, SourceError> {
        let Some(dataset) = &self.hub else { return Ok(self.records_in(self.path.clone().unwrap_or_default())) };
        let split = self.split.as_deref().unwrap_or_default();
        let shards = Hub::from_env().dataset(dataset, self.subset.as_deref(), split, self.revision.as_deref());
        Ok(self.records_in(shards.map_err(SourceError::Dataset)?.into()))
    }

    /// As [`records`](Self::records), of files in this place.
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

    /// The synthesiser's configuration in a stage.
    ///
    /// # Errors
    /// Names the key of the stage that does not fit.
    pub fn stage(&self, index: usize) -> Result<CwConfig, ConfigError> {
        let stage = &self.stages[index];
        let merged = Figment::from(Serialized::defaults(&self.cw)).merge(Serialized::defaults(&stage.cw));
        merged.extract().map_err(|e| ConfigError::Value(format!("`stages[{index}].cw`: {}", sentence(&e))))
    }
}
