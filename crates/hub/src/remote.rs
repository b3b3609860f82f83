use crate::http::{Client, Entity, HttpError};
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};
use ureq::http::Uri;

/// A file on the Hub, of which parts are read as needed.
pub struct RemoteFile {
    client: Client,
    url: Uri,
    name: String,
    entity: Entity,
    /// Target of the Hub's last redirect. It is valid for some minutes at least, and the Hub limits the number of
    /// requests.
    location: Mutex<Option<Uri>>,
}

impl RemoteFile {
    pub(crate) fn open(client: &Client, url: Uri) -> Result<Self, HttpError> {
        let entity = client.entity(&url)?;
        Ok(Self { client: client.clone(), name: url.to_string(), url, entity, location: Mutex::default() })
    }

    /// Returns the address of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.entity.size
    }

    /// Returns `length` bytes of the file from `offset` on.
    ///
    /// # Errors
    /// If they cannot be read, after several attempts if the failure may be temporary.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let known = self.location().clone();
        if let Some(known) = known {
            match self.part(&known, offset, length) {
                Ok((bytes, _)) => return Ok(bytes),
                // The target may have expired; the Hub is asked again.
                Err(_) => *self.location() = None,
            }
        }
        let read = self.client.retried(|| {
            let (bytes, from) = self.part(&self.url, offset, length)?;
            *self.location() = Some(from).filter(|from| *from != self.url);
            Ok(bytes)
        });
        read.map_err(|error| match error {
            HttpError::Disk(error) => error,
            error => io::Error::other(error.to_string()),
        })
    }

    /// Makes one attempt; returns the bytes and the address that they came from.
    fn part(&self, url: &Uri, offset: u64, length: usize) -> Result<(Vec<u8>, Uri), HttpError> {
        let (body, from) = self.client.part(url, &self.entity, offset, Some(offset.saturating_add(length as u64)))?;
        // The length may come from the file, and exceed it: memory is allocated as bytes arrive.
        let mut bytes = Vec::new();
        body.take(length as u64).read_to_end(&mut bytes).map_err(HttpError::Broken)?;
        match bytes.len() == length {
            true => Ok((bytes, from)),
            false => Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn location(&self) -> std::sync::MutexGuard<'_, Option<Uri>> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
