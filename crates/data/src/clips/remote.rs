use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// A remote file, of which parts can be read: on a server, for example.
pub trait Remote: Send + Sync {
    /// Returns the name for messages and cache keys: an address whose content never changes.
    fn name(&self) -> &str;

    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Returns exactly `length` bytes from `offset` on; any number of threads may read at the same time.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// Number of bytes that are read from the end of a remote file at first: most footers fit, and so need one request.
const TAIL: u64 = 64 << 10;

/// Number of bytes that are read for a page's header; it has about 30, or twice 64 more if it contains the minimum and
/// maximum.
const HEADER: usize = 1 << 10;

/// Number of spans that are fetched at the same time, and their total size in bytes; otherwise opening would wait for
/// each request.
const AT_ONCE: usize = 8;
const BYTES_AT_ONCE: u64 = 8 << 20;

/// Spans are fetched together if at most this number of bytes is between them, up to a total size in bytes.
const GAP: u64 = 16 << 10;
const LONGEST_SPAN: u64 = 4 << 20;

/// A Parquet file, local or remote. Its readers are independent of each other, so that many threads may have one.
#[derive(Clone)]
pub(super) enum ParquetFile {
    File(Arc<Path>),
    Remote(Arc<dyn Remote>),
    /// A remote file with parts that will be needed.
    Ahead(Arc<Ahead>),
}

impl ParquetFile {
    /// Returns the same file, ready to read its end or, once that is known, the `wanted` parts in their order.
    ///
    /// # Errors
    /// If the end cannot be read.
    pub fn ahead(&self, wanted: Vec<Range<u64>>) -> io::Result<Self> {
        Ok(match self {
            Self::File(_) => self.clone(),
            Self::Remote(remote) => {
                let start = remote.size().saturating_sub(TAIL);
                let tail = remote.read(start, (remote.size() - start) as usize)?;
                Self::Ahead(Arc::new(Ahead::new(remote.clone(), (start, tail.into()), wanted)))
            }
            Self::Ahead(ahead) => Self::Ahead(Arc::new(Ahead::new(ahead.remote.clone(), ahead.tail.clone(), wanted))),
        })
    }
}

impl Length for ParquetFile {
    fn len(&self) -> u64 {
        match self {
            Self::File(path) => std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
            Self::Remote(remote) => remote.size(),
            Self::Ahead(ahead) => ahead.remote.size(),
        }
    }
}

impl ChunkReader for ParquetFile {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(match self {
            Self::File(path) => Box::new(BufReader::new(opened(path, start)?)),
            Self::Remote(remote) => Box::new(Headers { remote: remote.clone(), at: start, read: Bytes::new() }),
            Self::Ahead(ahead) => match ahead.held(start)? {
                Some(bytes) => Box::new(bytes.reader()),
                None => return Self::Remote(ahead.remote.clone()).get_read(start),
            },
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match self {
            Self::File(path) => {
                // A damaged footer may request more than the file contains.
                let left = self.len().saturating_sub(start);
                let mut bytes = Vec::with_capacity(length.min(usize::try_from(left).unwrap_or(usize::MAX)));
                opened(path, start)?.take(length as u64).read_to_end(&mut bytes)?;
                match bytes.len() == length {
                    true => Ok(bytes.into()),
                    false => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                }
            }
            Self::Remote(remote) => Ok(read(&**remote, start, length)?.into()),
            Self::Ahead(ahead) => match ahead.held(start)? {
                Some(bytes) if bytes.len() >= length => Ok(bytes.slice(..length)),
                _ => Ok(read(&*ahead.remote, start, length)?.into()),
            },
        }
    }
}

fn opened(path: &Path, start: u64) -> io::Result<File> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    Ok(file)
}

/// Reads a part of a remote file; a damaged footer may request one that the file does not contain.
fn read(remote: &dyn Remote, start: u64, length: usize) -> io::Result<Vec<u8>> {
    match start.checked_add(length as u64) {
        Some(end) if end <= remote.size() => remote.read(start, length),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Reader for a page's header, which is short; it reads more if necessary.
struct Headers {
    remote: Arc<dyn Remote>,
    at: u64,
    read: Bytes,
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read.is_empty() {
            let left = self.remote.size().saturating_sub(self.at);
            let length = HEADER.max(buffer.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.read = read(&*self.remote, self.at, length)?.into();
            self.at += length as u64;
        }
        let count = buffer.len().min(self.read.len());
        self.read.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Parts of a remote file that are read one after the other, and prefetched.
pub(super) struct Ahead {
    remote: Arc<dyn Remote>,
    /// In order and without overlap.
    spans: Vec<Range<u64>>,
    /// End of the file.
    tail: (u64, Bytes),
    /// Spans that were fetched last, and their offsets.
    held: Mutex<Vec<(u64, Bytes)>>,
}

impl Ahead {
    fn new(remote: Arc<dyn Remote>, tail: (u64, Bytes), wanted: Vec<Range<u64>>) -> Self {
        let mut spans = spans(wanted);
        spans.retain(|span| span.start < tail.0);
        Self { remote, spans, tail, held: Mutex::default() }
    }

    /// Returns the data in memory from `start` on, fetched if a span begins or continues there.
    fn held(&self, start: u64) -> io::Result<Option<Bytes>> {
        let from = |(begin, bytes): &(u64, Bytes)| {
            let skipped = usize::try_from(start.checked_sub(*begin)?).ok()?;
            (skipped < bytes.len()).then(|| bytes.slice(skipped..))
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = std::iter::once(&self.tail).chain(&*held).find_map(from) {
            return Ok(Some(bytes));
        }
        let next = self.spans.partition_point(|span| span.end <= start);
        if self.spans.get(next).is_none_or(|span| !span.contains(&start)) {
            return Ok(None);
        }
        *held = self.fetch(&self.spans[next..])?;
        Ok(held.iter().find_map(from))
    }

    /// Fetches the first of these spans, and as many more as are fetched at once.
    fn fetch(&self, spans: &[Range<u64>]) -> io::Result<Vec<(u64, Bytes)>> {
        let mut bytes = 0;
        let few = spans.iter().take(AT_ONCE).take_while(|span| {
            let first = bytes == 0;
            bytes += span.end - span.start;
            first || bytes <= BYTES_AT_ONCE
        });
        let remote = &*self.remote;
        std::thread::scope(|scope| {
            let fetch = |span: &Range<u64>| {
                let (start, length) = (span.start, (span.end - span.start) as usize);
                scope.spawn(move || Ok((start, read(remote, start, length)?.into())))
            };
            let threads: Vec<_> = few.map(fetch).collect();
            let ended = |_| Err(io::Error::other("reading ended in a panic"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
        })
    }
}

/// Sorts ranges and merges those with small gaps.
fn spans(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut spans: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match spans.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            Some(last) if range.start <= last.end + GAP && range.end - last.start <= LONGEST_SPAN => {
                last.end = range.end;
            }
            _ => spans.push(range),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes in memory that represent a remote file, and a record of the reads.
    struct Memory {
        name: String,
        bytes: Vec<u8>,
        read: Mutex<Vec<Range<u64>>>,
    }

    impl Memory {
        fn new(name: &str, bytes: Vec<u8>) -> Arc<Self> {
            Arc::new(Self { name: name.into(), bytes, read: Mutex::default() })
        }
    }

    impl Remote for Memory {
        fn name(&self) -> &str {
            &self.name
        }

        fn size(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
            self.read.lock().unwrap().push(offset..offset + length as u64);
            Ok(self.bytes[offset as usize..][..length].to_vec())
        }
    }

    fn numbered(length: usize) -> Arc<Memory> {
        Memory::new("memory", (0..length).map(|at| (at % 251) as u8).collect())
    }

    #[test]
    fn parts_that_will_be_needed_are_fetched_once_and_together() {
        let remote = numbered(400_000);
        let wanted = vec![100..200, 210..300, 100_000..100_050, 399_000..399_100];
        let ahead = ParquetFile::Remote(remote.clone()).ahead(wanted.clone()).unwrap();
        for range in wanted {
            let length = (range.end - range.start) as usize;
            let bytes = ahead.get_bytes(range.start, length).unwrap();
            assert_eq!(&bytes[..], &remote.bytes[range.start as usize..][..length]);
            let mut read = vec![0; length];
            ahead.get_read(range.start).unwrap().read_exact(&mut read).unwrap();
            assert_eq!(read, bytes);
        }
        let mut read = remote.read.lock().unwrap().clone();
        read.sort_by_key(|range| range.start);
        // The last one is in the end of the file, which is read first.
        assert_eq!(read, [100..300, 100_000..100_050, 334_464..400_000]);
    }

    #[test]
    fn what_a_remote_file_does_not_have_is_an_error() {
        let remote: Arc<dyn Remote> = numbered(100);
        let place = ParquetFile::Remote(remote.clone());
        for place in [place.ahead(Vec::new()).unwrap(), place] {
            assert!(place.get_bytes(90, 20).is_err());
            assert!(place.get_bytes(u64::MAX, 20).is_err());
            assert!(place.get_read(200).unwrap().read_exact(&mut [0; 4]).is_err());
        }
    }

    proptest! {
        #[test]
        fn every_part_reads_as_it_is(parts in prop::collection::vec((0..300_000u64, 0..5000u64), 0..20), tests in prop::collection::vec((0..300_000u64, 0..9000usize), 1..20)) {
            let remote = numbered(310_000);
            let wanted = parts.iter().map(|(start, length)| *start..start + length).collect();
            let ahead = ParquetFile::Remote(remote.clone()).ahead(wanted).unwrap();
            for (start, length) in tests {
                let expected = &remote.bytes[start as usize..][..length];
                prop_assert_eq!(&ahead.get_bytes(start, length).unwrap()[..], expected);
                let mut read = vec![0; length];
                // A read may stop at the end of its span, because what follows was not requested.
                let count = ahead.get_read(start).unwrap().read(&mut read).unwrap();
                prop_assert_eq!(&read[..count], &expected[..count]);
                prop_assert!(count > 0 || length == 0);
            }
        }
    }
}
