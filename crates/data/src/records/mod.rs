//! Records of text tasks: classification, spans, tags and pairs, read from the usual formats of data sets.
//!
//! | format | content |
//! |---|---|
//! | `jsonl` | one JSON object per line; blank lines are skipped |
//! | `json` | one array of objects, alone or as the only array in an object; SQuAD's own layout, a record for each question |
//! | `csv` | cells between commas or semicolons, with or without a header row |
//! | `tsv` | cells between tabs; quotes are text, but for a cell in quotes that has its own doubled |
//! | `conll` | a word and its tag per line, with a tab between; blank lines between sentences; no `-DOCSTART-` |
//! | `text` | two plain files: line n of the first belongs to line n of the second |
//! | `parquet` | as published on Hugging Face, with nested lists and structs |
//!
//! Files of text may be compressed by gzip (`train.jsonl.gz`). If a data set consists of several files, [`RecordsConfig::path`] is their folder or a list of them.
//!
//! A task reads its inputs from named fields, and [`RecordsConfig::columns`] maps them to the columns of a file:
//!
//! | record | fields |
//! |---|---|
//! | [`ClassifyRecord`] | `text`, `label`; `text_pair` if there is one |
//! | [`SpanRecord`] | `question`, `context`, `answers`; `id` if there is one |
//! | [`TagRecord`] | `words`, `tags` |
//! | [`PairRecord`] | `source`, `target` |
//! | [`InputRecord`] | `text`; `context` if there is one |
//! | [`FieldsRecord`] | those that the caller names |
//!
//! A field that is not mapped is looked for under its own name. In files without names it is the column at its place in
//! the list above, from column 0 (in CoNLL files the tags are the last column). Where a text is expected and a list of
//! texts is found, they are joined by spaces; `target.0` takes the first alone.
//!
//! ```
//! use undertone_data::records::{PairRecord, RecordsConfig};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("pairs.jsonl");
//! std::fs::write(&path, r#"{"translation": {"en": "one", "de": "eins"}}"#)?;
//! let columns = [("source", "translation.en"), ("target", "translation.de")];
//! let columns = columns.map(|(field, column)| (field.into(), column.into())).into();
//! let pairs = PairRecord::read(&RecordsConfig { path: path.into(), columns, ..Default::default() })?;
//! assert_eq!(pairs[0].target, "eins");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod classify;
mod column;
mod columnwise;
mod config;
mod error;
pub(crate) mod fields;
mod fields_record;
pub(crate) mod files;
pub(crate) mod find;
mod input;
pub(crate) mod json;
pub(crate) mod lines;
mod pair;
pub(crate) mod parquet;
mod part;
mod paths;
pub(crate) mod row;
mod span;
mod squad;
mod starts;
mod tag;
#[cfg(test)]
mod tests;
pub(crate) mod warnings;

pub use classify::ClassifyRecord;
pub use column::Column;
pub use config::{Format, RecordsConfig};
pub use error::RecordsError;
pub use fields_record::FieldsRecord;
pub use input::InputRecord;
pub use pair::PairRecord;
pub use part::{PartConfig, Share};
pub use paths::Paths;
pub use row::{Origin, Place};
pub use span::{Answer, SpanRecord};
pub use tag::{OUTSIDE, TagRecord, tag_set};
