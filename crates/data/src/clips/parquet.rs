use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{Type, TypePtr};

use super::remote::ParquetFile;
use crate::records::RecordsError;
use crate::records::fields::TaskFields;
use crate::records::lines::read_error;
use crate::records::parquet::guarded;
use crate::records::row::Row;

/// A Parquet file with audio in its rows. Holds the content of its footer, and none of the audio.
pub(super) struct Shard {
    /// Name of the file in messages.
    path: Arc<Path>,
    place: ParquetFile,
    metadata: Arc<ParquetMetaData>,
    /// Index of the column with the audio's bytes.
    leaf: usize,
    /// First row of each row group, and the number of rows at the end.
    pub starts: Vec<usize>,
    /// Data pages of each row group, once they were needed.
    pages: Vec<OnceLock<Vec<PageLocation>>>,
}

impl Shard {
    /// Returns the shard, its file for reading rows, and its schema without the audio. None if it has no column of
    /// audio, or only paths.
    pub fn open(
        task: &TaskFields,
        path: &Arc<Path>,
        place: ParquetFile,
    ) -> Result<Option<(Self, ParquetFile, Type)>, RecordsError> {
        let (end, metadata) = guarded(path, || {
            let end = place.ahead(Vec::new())?;
            let reader = ParquetMetaDataReader::new().with_offset_index_policy(PageIndexPolicy::Optional);
            let metadata = reader.parse_and_finish(&end)?;
            // The reader panics if a column begins or ends below zero in a damaged file. Forced here, the panic becomes
            // an error; later it would not.
            metadata.row_groups().iter().flat_map(|group| group.columns()).for_each(|column| _ = column.byte_range());
            Ok((end, Arc::new(metadata)))
        })?;
        let schema = metadata.file_metadata().schema_descr();
        let Some(name) = audio_column(task, schema.root_schema()) else { return Ok(None) };
        let leaf = (0..schema.num_columns()).find(|&leaf| {
            let column = schema.column(leaf);
            let parts = column.path().parts();
            let is_audio = parts[0] == name && (parts.len() == 1 || parts[1..] == ["bytes"]);
            is_audio && column.physical_type() == PhysicalType::BYTE_ARRAY && column.max_rep_level() == 0
        });
        let Some(leaf) = leaf.filter(|leaf| !is_null_everywhere(&metadata, *leaf)) else { return Ok(None) };
        let rest = without(schema.root_schema(), &name).map_err(|error| read_error(path, error))?;
        let rows = end.ahead(chunks(&metadata, &rest)).map_err(|error| read_error(path, error))?;
        let mut starts = vec![0];
        for group in metadata.row_groups() {
            starts.push(starts[starts.len() - 1] + usize::try_from(group.num_rows()).unwrap_or(0));
        }
        let pages = starts.iter().skip(1).map(|_| OnceLock::new()).collect();
        Ok(Some((Self { path: path.clone(), place, metadata, leaf, starts, pages }, rows, rest)))
    }

    /// Returns the row group of a row.
    pub fn group(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1).min(self.pages.len().saturating_sub(1))
    }

    /// Reads one page of the audio: one cell for each of its rows.
    fn page(&self, group: usize, rows: Range<usize>) -> Result<Vec<Option<ByteArray>>, RecordsError> {
        let pages = self.pages(group)?.to_vec();
        guarded(&self.path, || {
            let column = self.metadata.row_group(group).column(self.leaf).column_descr_ptr();
            let optional = column.max_def_level() > 0;
            let defined = column.max_def_level();
            let pages = self.reader(Arc::new(self.place.clone()), group, Some(pages))?;
            let mut reader = ColumnReaderImpl::<ByteArrayType>::new(column, Box::new(pages));
            reader.skip_records(rows.start)?;
            let (mut levels, mut values) = (Vec::new(), Vec::new());
            while levels.len().max(values.len()) < rows.len() {
                let wanted = rows.len() - levels.len().max(values.len());
                let (read, ..) = reader.read_records(wanted, optional.then_some(&mut levels), None, &mut values)?;
                if read == 0 {
                    return Err(ParquetError::EOF("the audio column is shorter than the others".into()));
                }
            }
            let mut values = values.into_iter();
            match optional {
                true => {
                    Ok(levels.into_iter().map(|level| (level == defined).then(|| values.next()).flatten()).collect())
                }
                false => Ok(values.map(Some).collect()),
            }
        })
    }

    /// Returns the page of a row and the page's rows, all of them counted within the row group.
    fn page_of(&self, group: usize, row: usize) -> Result<(usize, Range<usize>), RecordsError> {
        let pages = self.pages(group)?;
        let first_row = |page: usize| pages[page].first_row_index as usize;
        let at = pages.partition_point(|page| page.first_row_index as usize <= row).saturating_sub(1);
        let end = if at + 1 < pages.len() { first_row(at + 1) } else { self.rows_of(group) };
        Ok((at, first_row(at)..end))
    }

    fn rows_of(&self, group: usize) -> usize {
        self.starts[group + 1] - self.starts[group]
    }

    /// Returns the locations of the data pages of a row group, from the file's index or else from the pages' headers.
    fn pages(&self, group: usize) -> Result<&[PageLocation], RecordsError> {
        if let Some(pages) = self.pages[group].get() {
            return Ok(pages);
        }
        let indexed = self.metadata.page_index_for_row_group(group).offset_index(self.leaf).cloned();
        let indexed = indexed.map(|index| index.page_locations().clone()).filter(|pages| self.add_up(group, pages));
        let pages = match indexed {
            Some(pages) => pages,
            None => guarded(&self.path, || {
                let pages = self.walked(group)?;
                match self.add_up(group, &pages) {
                    true => Ok(pages),
                    false => Err(ParquetError::General("the pages of its audio do not add up".into())),
                }
            })?,
        };
        Ok(self.pages[group].get_or_init(|| pages))
    }

    /// Finds the data pages by their headers, without reading what is between them.
    fn walked(&self, group: usize) -> Result<Vec<PageLocation>, ParquetError> {
        let rows = self.rows_of(group) as i64;
        let (_, length) = self.metadata.row_group(group).column(self.leaf).byte_range();
        let place = Arc::new(Noted { place: self.place.clone(), start: Mutex::new(0) });
        let mut reader = self.reader(place.clone(), group, None)?;
        let (mut pages, mut next, mut before) = (Vec::<PageLocation>::new(), 0, None);
        while let Some(page) = reader.peek_next_page()? {
            let offset = *place.start.lock().unwrap_or_else(PoisonError::into_inner) as i64;
            if let Some(PageLocation { compressed_page_size, offset: start, .. }) =
                before.take().and_then(|before: usize| pages.get_mut(before))
            {
                *compressed_page_size = i32::try_from(offset - *start).unwrap_or(0);
            }
            if !page.is_dict {
                before = Some(pages.len());
                pages.push(PageLocation { offset, compressed_page_size: 0, first_row_index: next });
                next += page.num_rows.or(page.num_levels).map_or(rows - next, |count| count as i64);
            }
            reader.skip_next_page()?;
        }
        let (start, _) = self.metadata.row_group(group).column(self.leaf).byte_range();
        if let Some(last) = before.and_then(|before| pages.get_mut(before)) {
            last.compressed_page_size = i32::try_from((start + length) as i64 - last.offset).unwrap_or(0);
        }
        Ok(pages)
    }

    /// Returns whether these can be the pages of a row group: in order, in its column, from the first row on.
    fn add_up(&self, group: usize, pages: &[PageLocation]) -> bool {
        let (start, length) = self.metadata.row_group(group).column(self.leaf).byte_range();
        let (start, end) = (start as i64, (start + length) as i64);
        let rows = self.rows_of(group) as i64;
        let inside = |page: &PageLocation| {
            let size = i64::from(page.compressed_page_size);
            page.offset >= start && size > 0 && size <= end - page.offset && page.first_row_index < rows
        };
        pages.first().is_some_and(|first| first.first_row_index == 0)
            && pages.iter().all(inside)
            && pages.is_sorted_by(|a, b| {
                a.first_row_index <= b.first_row_index && a.offset + i64::from(a.compressed_page_size) <= b.offset
            })
    }

    fn reader<R: ChunkReader>(
        &self,
        place: Arc<R>,
        group: usize,
        pages: Option<Vec<PageLocation>>,
    ) -> Result<SerializedPageReader<R>, ParquetError> {
        SerializedPageReader::new(place, self.metadata.row_group(group).column(self.leaf), self.rows_of(group), pages)
    }
}

/// Records the positions at which a reader begins. A reader that looks for pages begins at each header.
struct Noted {
    place: ParquetFile,
    start: Mutex<u64>,
}

impl Length for Noted {
    fn len(&self) -> u64 {
        self.place.len()
    }
}

impl ChunkReader for Noted {
    type T = Box<dyn std::io::Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = start;
        self.place.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        self.place.get_bytes(start, length)
    }
}

/// Returns the column that contains audio rather than paths: the mapped one, or the first with a known name.
fn audio_column(task: &TaskFields, schema: &Type) -> Option<String> {
    let mapped = task.config.columns.get("audio").map(|column| column.to_string());
    let names: Vec<&str> = match &mapped {
        Some(name) => vec![name.strip_suffix(".bytes").unwrap_or(name)],
        None => task.spellings("audio").collect(),
    };
    let fields = schema.get_fields();
    let found =
        names.into_iter().find_map(|name| fields.iter().find(|field| field.name().eq_ignore_ascii_case(name)))?;
    let blob = match found.is_group() {
        true => found.get_fields().iter().find(|field| field.name() == "bytes")?,
        false => found,
    };
    let text = || {
        let info = blob.get_basic_info();
        info.converted_type() == ConvertedType::UTF8 || matches!(info.logical_type_ref(), Some(LogicalType::String))
    };
    let binary = blob.is_primitive() && blob.get_physical_type() == PhysicalType::BYTE_ARRAY && !text();
    binary.then(|| found.name().to_owned())
}

/// Whether a column is null in all rows, as Hugging Face writes the bytes of audio that stays in files of its own.
fn is_null_everywhere(metadata: &ParquetMetaData, leaf: usize) -> bool {
    let groups = metadata.row_groups();
    !groups.is_empty()
        && groups.iter().all(|group| {
            let nulls = group.column(leaf).statistics().and_then(|statistics| statistics.null_count_opt());
            nulls.is_some_and(|nulls| i64::try_from(nulls) == Ok(group.num_rows()))
        })
}

/// Returns a schema without the bytes of the audio's column, and of similar columns: pictures, or audio in another
/// form.
fn without(schema: &Type, name: &str) -> Result<Type, ParquetError> {
    let mut fields: Vec<TypePtr> = Vec::new();
    for field in schema.get_fields() {
        if field.is_group() && (field.name() == name || holds_bytes(field)) {
            let rest: Vec<_> = field.get_fields().iter().filter(|child| child.name() != "bytes").cloned().collect();
            if !rest.is_empty() {
                let info = field.get_basic_info();
                let group = Type::group_type_builder(field.name()).with_repetition(info.repetition()).with_fields(rest);
                fields.push(Arc::new(group.build()?));
            }
        } else if field.name() != name {
            fields.push(field.clone());
        }
    }
    Type::group_type_builder(schema.name()).with_fields(fields).build()
}

/// Returns whether a column is a `struct<bytes, path>`, as Hugging Face stores audio and pictures.
fn holds_bytes(field: &Type) -> bool {
    let children = || field.get_fields().iter();
    children().any(|child| child.name() == "path")
        && children().any(|child| {
            child.name() == "bytes" && child.is_primitive() && child.get_physical_type() == PhysicalType::BYTE_ARRAY
        })
}

/// Returns the byte ranges of the columns of a part of the schema.
fn chunks(metadata: &ParquetMetaData, part: &Type) -> Vec<Range<u64>> {
    let is_wanted = |path: &[String]| {
        let mut within = part;
        path.iter().all(|name| {
            let found = within.is_group().then(|| within.get_fields().iter().find(|field| field.name() == name));
            found.flatten().map(|field| within = field).is_some()
        })
    };
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let wanted = columns.filter(|column| is_wanted(column.column_path().parts()));
    wanted.map(|column| column.byte_range()).map(|(start, length)| start..start.saturating_add(length)).collect()
}

/// Returns the path in the cell of a row, to be used as a name.
pub(super) fn cell_path<'r>(task: &TaskFields, row: &'r Row) -> Option<&'r str> {
    row.get(&task.column(row, "audio"))?.get("path")?.as_str()
}

/// A page of audio in memory.
type Page = Arc<Vec<Option<ByteArray>>>;

/// Key of a page in memory: shard, row group and page.
type Key = (usize, usize, usize);

/// Cache of the pages that were read last, up to a number of bytes, shared by all threads.
///
/// A page is the smallest unit that can be read from Parquet, because it is compressed as a whole. Writers make pages
/// of about 1 MiB, or of a whole row group, because some check the size only after a thousand rows.
pub(super) struct Pages {
    budget: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: HashMap<Key, Slot>,
    bytes: usize,
    clock: u64,
}

struct Slot {
    /// Locked by the thread that reads the page, so that others wait instead of reading it, too.
    page: Arc<Mutex<Option<Page>>>,
    bytes: usize,
    used: u64,
}

impl Pages {
    /// Returns a cache of at most this number of bytes; the page that was read last is always kept.
    pub fn new(budget: usize) -> Self {
        Self { budget, state: Mutex::default() }
    }

    /// Returns the audio of a row; none if the cell is null.
    pub fn cell(&self, shard: &Shard, number: usize, row: usize) -> Result<Option<ByteArray>, RecordsError> {
        let group = shard.group(row);
        let row = row - shard.starts[group];
        let (at, rows) = shard.page_of(group, row)?;
        let key = (number, group, at);

        let slot = self.slot(key);
        let mut held = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match &*held {
            Some(page) => page.clone(),
            None => {
                let page = Arc::new(shard.page(group, rows.clone())?);
                *held = Some(page.clone());
                self.account(key, page.iter().flatten().map(ByteArray::len).sum());
                page
            }
        };
        Ok(page.get(row - rows.start).cloned().flatten())
    }

    /// Returns the number of bytes in memory.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.state.lock().unwrap().bytes
    }

    fn slot(&self, key: Key) -> Arc<Mutex<Option<Page>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clock += 1;
        let used = state.clock;
        let slot = state.slots.entry(key).or_insert_with(|| Slot { page: Arc::default(), bytes: 0, used });
        slot.used = used;
        slot.page.clone()
    }

    /// Counts a page that was read, and drops the least recently used pages.
    fn account(&self, key: Key, bytes: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.slots.get_mut(&key) {
            let before = std::mem::replace(&mut slot.bytes, bytes);
            state.bytes = state.bytes + bytes - before;
        }
        while state.bytes > self.budget {
            // Slots without bytes are being read.
            let others = state.slots.iter().filter(|(other, slot)| **other != key && slot.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, slot)| slot.used).map(|(oldest, _)| *oldest) else { break };
            let freed = state.slots.remove(&oldest).map_or(0, |slot| slot.bytes);
            state.bytes -= freed;
        }
    }
}
