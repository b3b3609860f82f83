use crate::http::{Client, Entity, HttpError};
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};
use ureq::http::Uri;

/// A file on the hub of which parts are read as they are needed.
pub struct RemoteFile {
    client: Client,
    url: Uri,
    name: String,
    entity: Entity,
    /// Where the hub redirected to the last time. It says so for some minutes at least, and limits how often it is asked.
    location: Mutex<Option<Uri>>,
}

impl RemoteFile {
    /// # Errors
    /// When the hub does not have it.
    pub(crate) fn open(client: &Client, url: Uri) -> Result<Self, HttpError> {
        let entity = client.entity(&url)?;
        Ok(Self { client: client.clone(), name: url.to_string(), url, entity, location: Mutex::default() })
    }

    /// Its address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.entity.size
    }

    /// `length` bytes of it from `offset`.
    ///
    /// # Errors
    /// When they cannot be had, after several attempts where the cause may pass.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let known = self.location().clone();
        if let Some(known) = known {
            match self.part(&known, offset, length) {
                Ok((bytes, _)) => return Ok(bytes),
                // It may have expired; the hub has the last word.
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

    /// One attempt; also where it came from.
    fn part(&self, url: &Uri, offset: u64, length: usize) -> Result<(Vec<u8>, Uri), HttpError> {
        let (body, from) = self.client.part(url, &self.entity, offset, Some(offset.saturating_add(length as u64)))?;
        // The length may come from the file, and more than there is: memory is taken as bytes come.
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
