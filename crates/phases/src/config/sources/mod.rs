//! Configuration of sources of samples.

mod list;
mod synthesised;
#[cfg(test)]
mod tests;
mod written;

pub use list::Sources;
pub use synthesised::{StageConfig, Synthesised};

use crate::SourceError;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use undertone_data::records::{Column, Format, PartConfig, Paths, RecordsConfig, Share};
use undertone_hub::Hub;

/// Source of samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceConfig {
    /// Origin of the samples.
    pub origin: Origin,
    /// Weight among several sources: number of an epoch's samples from this one, relative to the others' weights.
    /// Without weights each source contributes all its samples.
    pub weight: Option<f64>,
}

/// Origin of samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A synthesiser.
    Synthesised(Synthesised),
    /// Recordings or records in local files.
    Files(Files),
    /// Recordings or records in a dataset on the Hugging Face hub.
    Hub(HubDataset),
    /// A share of the training data, which is held out; for `data.valid`.
    PartOfTrain(PartOfTrain),
}

/// Recordings or records in local files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// A file, a folder, or a list of them.
    pub path: Paths,
    /// Second of two plain text files, read line by line.
    pub target_path: Option<PathBuf>,
    /// Format of the files.
    pub format: Format,
    /// Selection of their records.
    pub selection: Selection,
}

/// Recordings or records in a dataset on the Hugging Face hub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HubDataset {
    /// Dataset, such as `stanfordnlp/sst2`.
    pub dataset: String,
    /// Subset of the dataset; not needed if there is only one.
    pub subset: Option<String>,
    /// Split of the dataset.
    pub split: String,
    /// Branch, tag or commit. Default: the hub's own conversion to Parquet.
    pub revision: Option<String>,
    /// Whether speech is read over the network as it is needed.
    pub stream: bool,
    /// Selection of its records.
    pub selection: Selection,
}

/// Selection of records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Map from each field that the task needs to the column that holds it.
    pub columns: BTreeMap<String, Column>,
    /// Whether the first row of a CSV or TSV file names the columns.
    pub header: Option<bool>,
    /// Maximum number of records.
    pub limit: Option<usize>,
    /// Fixed part of the records.
    pub part: Option<PartConfig>,
    /// Share of the records in a split if another has the rest, computed from `part_of_train`. Not a key of the YAML.
    pub share: Option<Share>,
    /// Columns whose values the samples keep, to group results by. Not a key of the YAML.
    pub keep: Vec<String>,
}

/// Share of the training recordings that is held out for validation.
#[derive(Clone, Debug, PartialEq)]
pub struct PartOfTrain {
    /// The share, above 0 and below 1.
    pub share: f64,
    /// Column whose equal values stay in one split.
    pub group_by: Option<Column>,
}

impl Default for Origin {
    fn default() -> Self {
        Self::Synthesised(Synthesised::default())
    }
}

impl From<Origin> for SourceConfig {
    fn from(origin: Origin) -> Self {
        Self { origin, weight: None }
    }
}

impl Display for SourceConfig {
    /// Writes the origin of its samples, for people.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        match &self.origin {
            Origin::Synthesised(synthesised) => write!(f, "{synthesised}"),
            Origin::Files(files) => write!(f, "{}{}", files.path, files.selection),
            Origin::Hub(hub) => write!(f, "{} {}{}", hub.dataset, hub.split, hub.selection),
            Origin::PartOfTrain(part) => write!(f, "part_of_train: {}", part.share),
        }
    }
}

impl Display for Selection {
    /// Writes which part of the records it selects, if it does not select all of them.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
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
    /// Returns a source of the recordings or records at `path`.
    pub fn files(path: impl Into<Paths>) -> Self {
        Origin::Files(Files { path: path.into(), ..Files::default() }).into()
    }

    /// Whether its samples are recorded rather than synthesised.
    pub fn is_recorded(&self) -> bool {
        self.selection().is_some()
    }

    /// Returns its synthesiser, if it has one.
    pub fn synthesised(&self) -> Option<&Synthesised> {
        match &self.origin {
            Origin::Synthesised(synthesised) => Some(synthesised),
            _ => None,
        }
    }

    /// Returns a source of other samples of a synthesiser, for validation.
    pub(crate) fn others(&self) -> Self {
        match &self.origin {
            Origin::Synthesised(synthesised) => Origin::Synthesised(synthesised.others()).into(),
            origin => origin.clone().into(),
        }
    }

    /// Returns the selection of its records, if they are recorded.
    pub fn selection(&self) -> Option<&Selection> {
        match &self.origin {
            Origin::Files(Files { selection, .. }) | Origin::Hub(HubDataset { selection, .. }) => Some(selection),
            Origin::Synthesised(_) | Origin::PartOfTrain(_) => None,
        }
    }

    /// As [`selection`](Self::selection), to be changed.
    pub(crate) fn selection_mut(&mut self) -> Option<&mut Selection> {
        match &mut self.origin {
            Origin::Files(Files { selection, .. }) | Origin::Hub(HubDataset { selection, .. }) => Some(selection),
            Origin::Synthesised(_) | Origin::PartOfTrain(_) => None,
        }
    }

    /// Returns the share of the training data that it is, if it is one.
    pub(crate) fn part_of_train(&self) -> Option<&PartOfTrain> {
        match &self.origin {
            Origin::PartOfTrain(part) => Some(part),
            _ => None,
        }
    }

    /// Checks it as a source of speech, for training or evaluation. The error is the reason.
    pub(crate) fn validate_speech(&self, training: bool) -> Result<(), String> {
        match &self.origin {
            Origin::Synthesised(synthesised) => synthesised.validate(training),
            Origin::Files(Files { target_path: Some(_), .. }) => {
                Err("`target_path` is for text: a recording and its text come in one row of `path`".into())
            }
            Origin::Files(_) | Origin::Hub(_) => self.validate_records(),
            Origin::PartOfTrain(_) => Ok(()),
        }
    }

    /// Checks it as a source of text. The error is the reason.
    pub(crate) fn validate_text(&self) -> Result<(), String> {
        match &self.origin {
            Origin::Synthesised(Synthesised { synth: Some(_), .. }) => {
                Err("`synth` is for speech: text comes from files as `path`, or from the `hub`".into())
            }
            Origin::Synthesised(_) => {
                Err("there is no data: give a file of records as `path`, or a `hub` dataset".into())
            }
            Origin::Files(Files { format: Format::Tar | Format::Audio | Format::Transcripts, .. }) => {
                Err("`format` is one of speech: text is jsonl, json, csv, tsv, conll, text or parquet".into())
            }
            Origin::Hub(HubDataset { stream: true, .. }) => {
                Err("`stream` is for speech: text is small, so it is fetched as a whole; leave `stream` out".into())
            }
            Origin::Files(_) | Origin::Hub(_) => self.validate_records(),
            Origin::PartOfTrain(_) => Ok(()),
        }
    }

    fn validate_records(&self) -> Result<(), String> {
        // The files of a dataset are known only after the download; they are Parquet.
        self.records_in(PathBuf::from("hub.parquet").into()).validate().map_err(|e| e.to_string())
    }

    /// Returns the configuration of its records or recordings. Downloads those of the hub that are not in the cache.
    pub(crate) fn records(&self) -> Result<RecordsConfig, SourceError> {
        let Origin::Hub(HubDataset { dataset, subset, split, revision, .. }) = &self.origin else {
            return Ok(self.records_in(Paths::default()));
        };
        let shards = Hub::from_env().dataset(dataset, subset.as_deref(), split, revision.as_deref());
        Ok(self.records_in(shards.map_err(SourceError::Dataset)?.into()))
    }

    /// As [`records`](Self::records), with the files at `shards` for a dataset on the hub.
    pub(crate) fn records_in(&self, shards: Paths) -> RecordsConfig {
        let (path, target_path, format) = match &self.origin {
            Origin::Files(files) => (files.path.clone(), files.target_path.clone(), files.format),
            _ => (shards, None, Format::Parquet),
        };
        let Selection { columns, header, limit, part, share, keep } = self.selection().cloned().unwrap_or_default();
        RecordsConfig {
            path,
            target_path,
            format,
            columns,
            header,
            limit,
            part,
            share,
            keep,
            skip: None,
            without_texts: false,
        }
    }
}
