//! The recordings of a source.

use super::error::SpeechError;
use crate::streamed::streamed;
use crate::{SourceConfig, SourceError};
use undertone_data::clips::Clips;
use undertone_data::records::Paths;
use undertone_hub::Hub;

impl SourceConfig {
    /// Opens the recordings; those on the hub are downloaded or opened there.
    pub(crate) fn clips(&self) -> Result<Clips, SpeechError> {
        let Some(dataset) = self.hub.as_ref().filter(|_| self.stream) else {
            return Ok(Clips::open(&self.records().map_err(Box::new)?)?);
        };
        let split = self.split.as_deref().unwrap_or_default();
        let shards = Hub::from_env().stream(dataset, self.subset.as_deref(), split, self.revision.as_deref());
        let shards = shards.map_err(|error| Box::new(SourceError::Dataset(error)))?;
        Ok(Clips::stream(&self.records_in(Paths::default()), streamed(shards))?)
    }
}
