use std::fs::File;
use std::io::{Cursor, ErrorKind, Read, Result as IoResult, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use symphonia::core::io::MediaSource;

use super::AudioError;

/// Encoded audio, in a file of its own, a part of a larger file, or memory.
#[derive(Clone)]
pub struct Stored {
    name: PathBuf,
    storage: Storage,
    /// Channel, from 0; the mean of all of them if there is none.
    channel: Option<usize>,
}

#[derive(Clone)]
enum Storage {
    File,
    Part { file: PathBuf, offset: u64, length: u64 },
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Stored {
    /// A file.
    pub fn file(path: &Path) -> Self {
        Self { name: path.into(), storage: Storage::File, channel: None }
    }

    /// `length` bytes of a file from `offset` on. Errors use the name.
    pub fn part(name: PathBuf, file: &Path, offset: u64, length: u64) -> Self {
        Self { name, storage: Storage::Part { file: file.into(), offset, length }, channel: None }
    }

    /// Bytes in memory. Errors use the name.
    pub fn memory(name: PathBuf, bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self { name, storage: Storage::Memory(bytes), channel: None }
    }

    /// One channel of it, from 0, instead of the mean of all; audio with a single channel has that one.
    pub fn with_channel(self, channel: Option<usize>) -> Self {
        Self { channel, ..self }
    }

    /// Returns the channel that is read; `None` if all are.
    pub(super) fn channel(&self) -> Option<usize> {
        self.channel
    }

    /// Returns the name for errors: for a file its path.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the number of bytes, if it can be known.
    pub(super) fn bytes(&self) -> Option<u64> {
        match &self.storage {
            Storage::File => std::fs::metadata(&self.name).ok().map(|metadata| metadata.len()),
            Storage::Part { length, .. } => Some(*length),
            Storage::Memory(bytes) => Some((**bytes).as_ref().len() as u64),
        }
    }

    /// Opens it for reading; it has at least one byte.
    pub(super) fn open(&self) -> Result<Box<dyn MediaSource>, AudioError> {
        let read = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => AudioError::Missing { path: self.name.clone() },
            _ => AudioError::Read { path: self.name.clone(), source },
        };
        let (source, length): (Box<dyn MediaSource>, u64) = match &self.storage {
            Storage::File => {
                let file = File::open(&self.name).map_err(read)?;
                let metadata = file.metadata().map_err(read)?;
                if metadata.is_dir() {
                    return Err(read(ErrorKind::IsADirectory.into()));
                }
                if !metadata.is_file() {
                    let reason =
                        "it is a pipe or a device, which can be read only once: give `-` and put it on standard input";
                    return Err(read(std::io::Error::other(reason)));
                }
                (Box::new(file), metadata.len())
            }
            Storage::Part { file, offset, length } => {
                let mut file = File::open(file).map_err(read)?;
                file.seek(SeekFrom::Start(*offset)).map_err(read)?;
                (Box::new(FileRange { file, offset: *offset, length: *length, position: 0 }), *length)
            }
            Storage::Memory(bytes) => {
                let length = (**bytes).as_ref().len() as u64;
                (Box::new(Cursor::new(Memory(bytes.clone()))), length)
            }
        };
        if length == 0 {
            return Err(AudioError::Empty { path: self.name.clone() });
        }
        Ok(source)
    }
}

struct Memory(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// A part of a file that reads like a whole file.
struct FileRange {
    file: File,
    offset: u64,
    length: u64,
    position: u64,
}

impl Read for FileRange {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let left = self.length.saturating_sub(self.position);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..wanted])?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for FileRange {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(ErrorKind::InvalidInput)?;
        self.file.seek(SeekFrom::Start(self.offset.saturating_add(self.position)))?;
        Ok(self.position)
    }
}

impl MediaSource for FileRange {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.length)
    }
}
