//! The keys of a source as they are written in the YAML, next to each other whatever its origin.

use super::synthesised::{SAMPLES, default_options};
use super::{Files, HubDataset, Origin, PartOfTrain, Selection, SourceConfig, StageConfig, Synthesised};
use crate::kinds::{self, REGISTER};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use undertone_data::options::Options;
use undertone_data::records::{Column, Format, PartConfig, Paths};

/// Source of samples: give one of `synth`, `path` and `hub`, or `part_of_train`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct WrittenSource {
    /// Synthesiser of the samples: a source that is registered in [`undertone_data::source`]. One of them is the
    /// default for speech.
    #[schemars(schema_with = "names")]
    synth: Option<String>,
    /// Settings of the synthesiser. Those of the default one are under its own name.
    #[serde(skip_serializing_if = "Options::is_empty")]
    options: Options,
    /// Settings of a synthesiser under its own name.
    #[serde(flatten)]
    #[schemars(skip)]
    named: BTreeMap<String, Value>,
    /// Number of synthesised samples per epoch. Training has new ones every epoch, validation the same ones every time.
    #[serde(default = "usual_samples")]
    samples: usize,
    /// Curriculum: each stage changes settings of the synthesiser for a number of epochs. After the last one the
    /// settings themselves apply.
    stages: Vec<WrittenStage>,
    /// A file, a folder, or a list of them. For speech: a list of recordings (JSONL, CSV, TSV), Parquet or tar shards,
    /// or a folder of audio files (see [`undertone_data::clips`]). For text: records (see [`undertone_data::records`]).
    path: Option<Paths>,
    /// Dataset on the Hugging Face hub, like `stanfordnlp/sst2`. It is downloaded once and then read from the cache.
    hub: Option<String>,
    /// Subset of the dataset (`config` on the hub). Not needed if there is only one.
    subset: Option<String>,
    /// Split of the dataset, such as `train` or `validation`.
    split: Option<String>,
    /// Branch, tag or commit. Default: the hub's own conversion to Parquet.
    revision: Option<String>,
    /// Whether speech from the `hub` is read over the network as it is needed, rather than downloaded before training
    /// starts. Nothing is stored, so every epoch reads all of it again, unless `data.cache` keeps it.
    stream: bool,
    /// Second of two plain text files, read line by line.
    target_path: Option<PathBuf>,
    /// Format of the files. Default: by their extension.
    format: Format,
    /// Map from each field that the task needs to the column that holds it; null leaves an optional field out.
    columns: BTreeMap<String, Column>,
    /// Whether the first row of a CSV or TSV file names the columns.
    header: Option<bool>,
    /// Maximum number of records.
    limit: Option<usize>,
    /// Fixed part of the records.
    part: Option<PartConfig>,
    /// Weight among several sources: number of an epoch's samples from this one, relative to the others' weights.
    /// Without weights each source contributes all its samples.
    weight: Option<f64>,
    /// Share of the training recordings that is held out for validation. For `data.valid` only, without any other key
    /// but `group_by`. The selection is the same in every run. As with `part`, it depends on a hash of the name: of
    /// each recording with all rows that are cut from it, of each passage or text with all records that share it, or of
    /// each group of `part.by`.
    part_of_train: Option<f64>,
    /// With `part_of_train`: column whose equal values stay in one split, such as `speaker`, `recording` or `document`.
    group_by: Option<Column>,
}

/// Returns the number of samples of a source that names none.
fn usual_samples() -> usize {
    SAMPLES
}

/// Stage of a curriculum, with the settings that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WrittenStage {
    /// Number of epochs.
    epochs: u64,
    /// Settings that differ, as `options` or under the synthesiser's own name.
    #[serde(flatten)]
    named: BTreeMap<String, Options>,
}

impl WrittenSource {
    fn selection(&self) -> Selection {
        let Self { columns, header, limit, part, .. } = self.clone();
        Selection { columns, header, limit, part, ..Selection::default() }
    }

    /// Returns the origin. Keys of other origins are ignored.
    fn origin(&self) -> Result<Origin, String> {
        let selection = self.selection();
        if let Some(share) = self.part_of_train {
            return Ok(Origin::PartOfTrain(PartOfTrain { share, group_by: self.group_by.clone() }));
        }
        match (self.path.clone(), self.hub.clone()) {
            (Some(_), Some(_)) => Err("give either `path` or `hub`, not both".into()),
            (Some(path), None) => {
                let (target_path, format) = (self.target_path.clone(), self.format);
                Ok(Origin::Files(Files { path, target_path, format, selection }))
            }
            (None, Some(dataset)) => {
                let Self { subset, split, revision, stream, .. } = self.clone();
                let missing = "`split` is missing: say which split of the `hub` dataset, like `train`";
                let split = split.ok_or(missing)?;
                Ok(Origin::Hub(HubDataset { dataset, subset, split, revision, stream, selection }))
            }
            (None, None) => self.synthesised().map(Origin::Synthesised),
        }
    }

    fn synthesised(&self) -> Result<Synthesised, String> {
        let Self { synth, options, samples, .. } = self.clone();
        let mut made = Synthesised { synth, options, samples, stages: Vec::new() };
        // Without a kind there is nothing to read the options with; whoever opens the source is told so.
        let kind = match &made.synth {
            Some(name) => Some(kinds::named(name).map_err(|error| format!("`synth`: {error}"))?),
            None => kinds::default(),
        };
        let name = kind.as_ref().map_or("options", |kind| kind.name());
        let mut key = "options";
        if let Some(own) = self.named.get(name) {
            if !made.options.is_empty() {
                return Err(format!("`options` and `{name}` are two spellings of the same: give one"));
            }
            made.options = map(name, own)?;
            key = name;
        }
        if let Some(kind) = &kind {
            made.options = kind.complete(&made.options).map_err(|error| error.within(key).to_string())?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            if let Some(other) = stage.named.keys().find(|key| *key != "options" && *key != name) {
                return Err(format!(
                    "`stages[{index}].{other}`: there is no such key; the keys here are epochs, {name}"
                ));
            }
            if stage.named.len() != 1 {
                return Err(format!("`stages[{index}]`: give the settings that differ as `{name}`, once"));
            }
            let options = stage.named.values().next().cloned().unwrap_or_default();
            made.stages.push(StageConfig { epochs: stage.epochs, options });
        }
        Ok(made)
    }

    /// Returns the first key that `other` does not have with the same value.
    fn first_beyond(&self, other: &Self) -> Option<String> {
        let [given, read] = [self, other].map(|source| serde_json::to_value(source).unwrap_or_default());
        let mut given = given.as_object()?.iter();
        given.find(|(key, value)| read.get(key.as_str()) != Some(value)).map(|(key, _)| key.clone())
    }

    /// Checks that every key is known, and replaces what `read` was made of by the form in which it is written.
    fn normalised(mut self, read: &SourceConfig) -> Result<Self, String> {
        for (name, value) in &mut self.named {
            let Ok(kind) = kinds::named(name) else {
                let keys = serde_json::to_value(Self::from(SourceConfig::default())).unwrap_or_default();
                let mut known: Vec<&str> =
                    keys.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
                known.push("options");
                let known = known.join(", ");
                // Runs of earlier versions record the settings of the default synthesiser, whatever they are trained on.
                let more = match kinds::all().is_empty() {
                    true => format!(", and those of registered sources: {REGISTER}"),
                    false => String::new(),
                };
                return Err(format!("`{name}`: there is no such key; the keys here are {known}{more}"));
            };
            let complete = kind.complete(&map(name, value)?);
            *value = Value::Object(complete.map_err(|error| error.within(name).to_string())?);
        }
        let written = Self::from(read.clone());
        if let Some(kind) = read.synthesised().and_then(|made| made.kind().ok()) {
            self.named.remove(kind.name());
            (self.options, self.stages) = (written.options, written.stages);
        }
        // The defaults below a configuration have the default synthesiser's settings, and so do runs of earlier versions, whatever the
        // source is.
        let default = kinds::default().map(|kind| (kind.name().to_owned(), Value::Object(default_options())));
        self.named.retain(|name, value| default.as_ref().is_none_or(|(own, usual)| name != own || value != usual));
        for (name, value) in written.named {
            self.named.entry(name).or_insert(value);
        }
        Ok(self)
    }
}

/// Returns the settings under a synthesiser's name.
fn map(name: &str, value: &Value) -> Result<Options, String> {
    value.as_object().cloned().ok_or_else(|| format!("`{name}`: these are keys and their values, not {value}"))
}

impl TryFrom<WrittenSource> for SourceConfig {
    type Error = String;

    fn try_from(written: WrittenSource) -> Result<Self, String> {
        let origin = written.origin()?;
        let weight = written.weight.filter(|_| !matches!(origin, Origin::PartOfTrain(_)));
        let source = Self { origin, weight };
        let written = written.normalised(&source)?;
        // What the origin has no place for has no effect.
        let Some(key) = written.first_beyond(&source.clone().into()) else { return Ok(source) };
        Err(match &source.origin {
            _ if key == "group_by" => {
                "`group_by` is for `data.valid`, beside `part_of_train`: leave it out, or give `part: {by: …}`".into()
            }
            Origin::PartOfTrain(_) => {
                format!("`part_of_train` takes the training data as it is: leave out that or `{key}`")
            }
            Origin::Files(_) if ["subset", "split", "revision", "stream"].contains(&key.as_str()) => {
                format!("`{key}` is for `hub`, not for `path`")
            }
            Origin::Hub(_) if ["target_path", "format"].contains(&key.as_str()) => {
                "`target_path` and `format` are for `path`: datasets of the `hub` are Parquet".into()
            }
            Origin::Files(_) | Origin::Hub(_) => {
                format!("`{key}` is for samples that are made, and `path` or `hub` are recordings: leave it out")
            }
            Origin::Synthesised(synthesised) if written.named.contains_key(&key) => {
                format!("`{key}` is for `synth: {key}`: the settings of `{synthesised}` are its `options`")
            }
            Origin::Synthesised(synthesised) => {
                format!("`{key}` is for recordings: give their `path` or `hub`, or leave it out for `{synthesised}`")
            }
        })
    }
}

impl From<SourceConfig> for WrittenSource {
    fn from(source: SourceConfig) -> Self {
        let SourceConfig { origin, weight } = source;
        let mut written = Self { weight, samples: SAMPLES, ..Self::default() };
        match origin {
            Origin::Synthesised(made) => {
                let key = made.key();
                let named = |stage: StageConfig| WrittenStage {
                    epochs: stage.epochs,
                    named: BTreeMap::from([(key.clone(), stage.options)]),
                };
                written.stages = made.stages.into_iter().map(named).collect();
                (written.synth, written.samples) = (made.synth, made.samples);
                match key.as_str() {
                    "options" => written.options = made.options,
                    _ => _ = written.named.insert(key, Value::Object(made.options)),
                }
            }
            Origin::Files(files) => {
                (written.path, written.target_path) = (Some(files.path), files.target_path);
                written.format = files.format;
                written = written.with_selection(files.selection);
            }
            Origin::Hub(hub) => {
                (written.hub, written.subset, written.split) = (Some(hub.dataset), hub.subset, Some(hub.split));
                (written.revision, written.stream) = (hub.revision, hub.stream);
                written = written.with_selection(hub.selection);
            }
            Origin::PartOfTrain(part) => {
                (written.part_of_train, written.group_by) = (Some(part.share), part.group_by);
            }
        }
        written
    }
}

impl WrittenSource {
    fn with_selection(self, selection: Selection) -> Self {
        let Selection { columns, header, limit, part, .. } = selection;
        Self { columns, header, limit, part, ..self }
    }
}

impl Serialize for SourceConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenSource::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SourceConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(WrittenSource::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for SourceConfig {
    fn schema_name() -> Cow<'static, str> {
        "SourceConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        with_kinds(WrittenSource::json_schema(generator), generator)
    }
}

impl JsonSchema for WrittenStage {
    fn schema_name() -> Cow<'static, str> {
        "StageConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let stage = json_schema!({
            "description": "Stage of a curriculum, with the settings that differ.",
            "type": "object",
            "properties": {
                "epochs": {"description": "Number of epochs.", "type": "integer", "minimum": 0},
                "options": {"description": "Settings that differ.", "type": "object"}
            },
            "required": ["epochs"]
        });
        with_kinds(stage, generator)
    }
}

/// Adds the names of the synthesisers that have settings of their own as keys.
fn with_kinds(mut schema: Schema, generator: &mut SchemaGenerator) -> Schema {
    let own = kinds::all().into_iter().filter_map(|kind| Some((kind.name().to_owned(), kind.schema(generator)?)));
    let own: Vec<(String, Value)> = own.map(|(name, schema)| (name, schema.to_value())).collect();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(own);
    }
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// Schema of the name of a synthesiser.
fn names(_: &mut SchemaGenerator) -> Schema {
    let mut names: Vec<Value> = kinds::all().iter().map(|kind| Value::from(kind.name())).collect();
    names.push(Value::Null);
    json_schema!({"type": ["string", "null"], "enum": names})
}
