//! One source, or several.

use super::super::error::ensure;
use super::SourceConfig;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use undertone_data::limits::MOST_SAMPLES;

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
        ensure(!self.0.is_empty(), || "the list is empty: name at least one source")?;
        let weights: Vec<f64> = self.0.iter().filter_map(|source| source.weight).collect();
        ensure(
            self.0.len() > 1 || weights.is_empty(),
            || "`weight` is for several sources: leave it out where there is one",
        )?;
        let made = self.0.iter().filter_map(SourceConfig::synthesised).map(|synthesised| synthesised.samples);
        let made = made.fold(0, usize::saturating_add);
        ensure(made <= MOST_SAMPLES, || {
            format!("`samples` are {made} in all: a synthesiser makes at most {MOST_SAMPLES} per epoch")
        })?;
        ensure(
            weights.is_empty() || weights.len() == self.0.len(),
            || "some sources have a `weight` and others have none: give all of them one, or none",
        )?;
        match weights.into_iter().find(|weight| !(weight.is_finite() && *weight > 0.0)) {
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
