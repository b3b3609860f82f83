//! Adapter from files on the hub to remote files of `undertone-data`. Neither of the two crates depends on the other.

use std::io;
use std::sync::Arc;
use undertone_data::clips::Remote;
use undertone_hub::RemoteFile;

/// Converts files on the hub to the type that [`Clips::stream`](undertone_data::clips::Clips::stream) takes.
pub fn streamed(files: Vec<RemoteFile>) -> Vec<Arc<dyn Remote>> {
    files.into_iter().map(|file| Arc::new(Streamed(file)) as Arc<dyn Remote>).collect()
}

struct Streamed(RemoteFile);

impl Remote for Streamed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.0.read(offset, length)
    }
}
