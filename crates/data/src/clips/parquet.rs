use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{Type, TypePtr};

use crate::records::RecordsError;
use crate::records::files::{open, read_error};
use crate::records::parquet::guarded;
use crate::records::row::Row;
use crate::records::task::Task;

/// A Parquet file whose audio is in its rows. Holds what its footer says, none of the audio.
pub(super) struct Shard {
    path: Arc<Path>,
    metadata: Arc<ParquetMetaData>,
    /// The column of the audio's bytes.
    leaf: usize,
    /// The first row of each row group, and the number of rows at the end.
    pub starts: Vec<usize>,
    /// The pages of each row group, once they were asked for: their first rows, and the number of rows at the end.
    pages: Vec<OnceLock<Vec<usize>>>,
}

impl Shard {
    /// The shard, and its schema without the audio; None if it has no column of audio but, at most, paths.
    pub fn open(task: &Task, path: &Arc<Path>) -> Result<Option<(Self, Type)>, RecordsError> {
        let file = open(path)?;
        let metadata = guarded(path, || Ok(Arc::new(SerializedFileReader::new(file)?.metadata().clone())))?;
        let schema = metadata.file_metadata().schema_descr();
        let Some(name) = audio_column(task, schema.root_schema()) else { return Ok(None) };
        let leaf = (0..schema.num_columns()).find(|&leaf| {
            let column = schema.column(leaf);
            let parts = column.path().parts();
            let is_audio = parts[0] == name && (parts.len() == 1 || parts[1..] == ["bytes"]);
            is_audio && column.physical_type() == PhysicalType::BYTE_ARRAY && column.max_rep_level() == 0
        });
        let Some(leaf) = leaf else { return Ok(None) };
        let rest = without(schema.root_schema(), &name).map_err(|error| read_error(path, error))?;
        let mut starts = vec![0];
        for group in metadata.row_groups() {
            starts.push(starts[starts.len() - 1] + usize::try_from(group.num_rows()).unwrap_or(0));
        }
        let pages = starts.iter().skip(1).map(|_| OnceLock::new()).collect();
        Ok(Some((Self { path: path.clone(), metadata, leaf, starts, pages }, rest)))
    }

    /// The row group of a row.
    pub fn group(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1).min(self.pages.len().saturating_sub(1))
    }

    /// Reads one page of the audio: a cell for each of its rows.
    fn page(&self, group: usize, rows: std::ops::Range<usize>) -> Result<Vec<Option<ByteArray>>, RecordsError> {
        guarded(&self.path, || {
            let column = self.metadata.row_group(group).column(self.leaf).column_descr_ptr();
            let optional = column.max_def_level() > 0;
            let defined = column.max_def_level();
            let mut reader = ColumnReaderImpl::<ByteArrayType>::new(column, Box::new(self.reader(group)?));
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

    /// The first rows of the pages of a row group, and the number of its rows.
    fn pages(&self, group: usize) -> Result<&[usize], RecordsError> {
        if let Some(pages) = self.pages[group].get() {
            return Ok(pages);
        }
        let rows = self.starts[group + 1] - self.starts[group];
        let starts = guarded(&self.path, || {
            let (mut starts, mut next, mut reader) = (Vec::new(), 0, self.reader(group)?);
            while let Some(page) = reader.peek_next_page()? {
                if !page.is_dict {
                    starts.push(next);
                    next += page.num_rows.or(page.num_levels).unwrap_or(rows - next);
                }
                reader.skip_next_page()?;
            }
            starts.push(rows);
            if starts.len() < 2 || starts[0] != 0 || !starts.is_sorted() {
                return Err(ParquetError::General("the pages of its audio do not add up".into()));
            }
            Ok(starts)
        })?;
        Ok(self.pages[group].get_or_init(|| starts))
    }

    /// Opens the file anew: readers of the same handle would share its position, and they run on many threads.
    fn reader(&self, group: usize) -> Result<SerializedPageReader<File>, ParquetError> {
        let group = self.metadata.row_group(group);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        SerializedPageReader::new(Arc::new(File::open(&self.path)?), group.column(self.leaf), rows, None)
    }
}

/// The column that holds audio rather than paths: the mapped one, or the first that is called so.
fn audio_column(task: &Task, schema: &Type) -> Option<String> {
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

/// A schema without the bytes of a column.
fn without(schema: &Type, name: &str) -> Result<Type, ParquetError> {
    let mut fields: Vec<TypePtr> = Vec::new();
    for field in schema.get_fields() {
        if field.name() != name {
            fields.push(field.clone());
        } else if field.is_group() {
            let rest: Vec<_> = field.get_fields().iter().filter(|child| child.name() != "bytes").cloned().collect();
            if !rest.is_empty() {
                let info = field.get_basic_info();
                let group = Type::group_type_builder(field.name()).with_repetition(info.repetition()).with_fields(rest);
                fields.push(Arc::new(group.build()?));
            }
        }
    }
    Type::group_type_builder(schema.name()).with_fields(fields).build()
}

/// The path in the cell of a row, for a name.
pub(super) fn cell_path<'r>(task: &Task, row: &'r Row) -> Option<&'r str> {
    row.get(&task.column(row, "audio"))?.get("path")?.as_str()
}

/// A page of audio in memory.
type Page = Arc<Vec<Option<ByteArray>>>;

/// Pages in memory by shard, row group and page.
type Key = (usize, usize, usize);

/// The pages that were read last, up to a number of bytes, for all threads together.
///
/// A page is the least that Parquet lets one read: it is compressed as a whole. Writers make pages of about 1 MiB, or of
/// a whole row group, for some look at the size only after a thousand rows.
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
    /// Held by the thread that reads the page, so that others wait rather than read it, too.
    page: Arc<Mutex<Option<Page>>>,
    bytes: usize,
    used: u64,
}

impl Pages {
    /// Keeps at most so many bytes, but always the page that was read last.
    pub fn new(budget: usize) -> Self {
        Self { budget, state: Mutex::default() }
    }

    /// The audio of a row; None where the cell is null.
    pub fn cell(&self, shard: &Shard, number: usize, row: usize) -> Result<Option<ByteArray>, RecordsError> {
        let group = shard.group(row);
        let row = row - shard.starts[group];
        let pages = shard.pages(group)?;
        let at = pages.partition_point(|start| *start <= row).saturating_sub(1).min(pages.len() - 2);
        let rows = pages[at]..pages[at + 1];
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

    /// The bytes in memory.
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

    /// Counts a page that was read, and lets go of those that were used least recently.
    fn account(&self, key: Key, bytes: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.slots.get_mut(&key) {
            let before = std::mem::replace(&mut slot.bytes, bytes);
            state.bytes = state.bytes + bytes - before;
        }
        while state.bytes > self.budget {
            // Those without bytes are being read.
            let others = state.slots.iter().filter(|(other, slot)| **other != key && slot.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, slot)| slot.used).map(|(oldest, _)| *oldest) else { break };
            let freed = state.slots.remove(&oldest).map_or(0, |slot| slot.bytes);
            state.bytes -= freed;
        }
    }
}
