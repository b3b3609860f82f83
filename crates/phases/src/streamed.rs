//! Files on the hub as remote files of data: the crate of the hub knows no data, that of data no hub, and they meet here.

use std::io;
use std::sync::Arc;
use undertone_data::clips::Remote;
use undertone_hub::RemoteFile;

/// Files on the hub as [`Clips::stream`](undertone_data::clips::Clips::stream) takes them.
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
