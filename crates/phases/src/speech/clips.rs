//! The recordings of a source.

use super::error::SpeechError;
use crate::config::{HubDataset, Origin};
use crate::streamed::streamed;
use crate::{SourceConfig, SourceError};
use undertone_data::clips::{Clips, ClipsError};
use undertone_data::records::{Paths, RecordsConfig};
use undertone_hub::Hub;

impl SourceConfig {
    /// Opens the recordings; those on the hub are downloaded or opened there.
    pub(crate) fn clips(&self) -> Result<Clips, SpeechError> {
        let Origin::Hub(HubDataset { dataset, subset, split, revision, stream: true, .. }) = &self.origin else {
            return Ok(Clips::open(&self.records().map_err(Box::new)?)?);
        };
        let shards = Hub::from_env().stream(dataset, subset.as_deref(), split, revision.as_deref());
        let shards = shards.map_err(|error| Box::new(SourceError::Dataset(error)))?;
        Ok(Clips::stream(&self.records_in(Paths::default()), streamed(shards))?)
    }

    /// Opens the recordings, and returns the errors of those that cannot be used: rows that are damaged, or whose audio file is
    /// missing. Of a source that is streamed no row may be damaged.
    pub(crate) fn usable_clips(&self) -> Result<(Clips, Vec<ClipsError>), SpeechError> {
        match self.is_streamed() {
            true => self.clips().map(|clips| (clips, Vec::new())),
            false => Ok(Clips::open_usable(&self.records().map_err(Box::new)?)?),
        }
    }

    /// As [`usable_clips`](Self::usable_clips), of recordings that need no text. They keep the columns by which splits are made.
    pub(crate) fn clips_without_texts(&self) -> Result<(Clips, Vec<ClipsError>), SpeechError> {
        if self.is_streamed() {
            return self.usable_clips();
        }
        let mut records = self.records().map_err(Box::new)?;
        let groups: Vec<String> = records.groups().map(ToString::to_string).collect();
        records.keep.extend(groups);
        Ok(Clips::open_usable(&RecordsConfig { without_texts: true, ..records })?)
    }

    /// Whether its recordings are read over the network as they are needed.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.origin, Origin::Hub(HubDataset { stream: true, .. }))
    }
}
