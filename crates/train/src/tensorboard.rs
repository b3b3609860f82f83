//! TensorBoard event files: curves and texts of a run, to be viewed while it trains.
//!
//! A file is a sequence of TFRecords: the data's length (u64), its masked CRC-32C, the data, and the data's masked
//! CRC-32C, all little-endian (tensorflow/core/lib/io/record_writer.h). The data of each record is one protobuf
//! message, `tensorflow.Event`. This module writes about fifteen fields of it, whose numbers never change, so they are
//! encoded here by hand: a protobuf compiler in the build, or generated types for graphs and devices that no run has,
//! would need more maintenance. A fixture that was made with TensorBoard's own messages and writer checks the bytes.
//!
//! Each session of a run writes a file of its own, because a running TensorBoard continues to read at its last
//! position: if a file is replaced, or shortened and continued, it shows nothing more until it is restarted. Values
//! that a lost session wrote after the checkpoint of the next session are removed in two ways:
//!
//! - The older files are cut there, or at a torn or damaged record. A TensorBoard that is started later reads only what
//!   remains. Its data server, which is the default reader, needs this: it ignores session logs, and drops values only
//!   if a tag gets a step that is not after its last one, so lost values that are not written again would stay.
//! - The new file begins with a session log `START` at that step. For this the Python reader (`--load_fast=false`, and
//!   `EventAccumulator` in scripts) drops lost values that it has already read. A running data server drops those of a
//!   tag once the tag is written again.

use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::path::Path;

/// The event file of one session. TensorBoard shows all sessions in a directory as one run.
///
/// Each record is passed to the system in one write, so TensorBoard sees it at its next poll. After an error the last
/// record may be torn, and the file should not be written any more; the next session repairs it.
#[derive(Debug)]
pub struct EventFile {
    file: File,
}

impl EventFile {
    /// Creates the file of a session whose first step is `from`: 0 for a new run, otherwise one more than the step of
    /// the checkpoint that it resumes from. Values of that step and later from earlier sessions in `dir` are deleted,
    /// because they will be written again. Event files of other programs are not touched.
    ///
    /// `wall_time`, here and below, is the current time in seconds since 1970. TensorBoard drops events whose time is
    /// not finite.
    ///
    /// # Errors
    /// When `dir` does not exist, or cannot be read or written.
    pub fn open(dir: &Path, from: u64, wall_time: f64) -> Result<Self> {
        let mut second = wall_time as u64;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(earlier) = entry.file_name().to_str().and_then(second_of) {
                cut(&entry.path(), from)?;
                // TensorBoard reads files in the order of their names, even if the clock went back.
                second = second.max(earlier.saturating_add(1));
            }
        }
        let path = dir.join(format!("{PREFIX}{second:010}{SUFFIX}"));
        let mut events = Self { file: OpenOptions::new().append(true).create_new(true).open(path)? };
        // Readers use session logs from version 2 on.
        events.write(event_at(0, wall_time).bytes(event::FILE_VERSION, b"brain.Event:2"))?;
        let start = Message::default().integer(session_log::STATUS, session_log::START);
        events.write(event_at(from, wall_time).bytes(event::SESSION_LOG, &start.0))?;
        Ok(events)
    }

    /// Adds a point to the curve of each tag. Tags are grouped by what is before their first `/`. Steps must not
    /// decrease within a session. Values are stored as f32, including NaN and infinities.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn scalars<'a>(
        &mut self,
        step: u64,
        wall_time: f64,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<()> {
        // `simple_value` is the oldest kind. Every TensorBoard draws it, and newer ones convert it to a tensor on
        // reading.
        let value = |tag: &str, value| {
            Message::default().bytes(value::TAG, tag.as_bytes()).float(value::SIMPLE_VALUE, value as f32)
        };
        let summary = values
            .into_iter()
            .fold(Message::default(), |summary, (tag, x)| summary.bytes(summary::VALUE, &value(tag, x).0));
        self.write(event_at(step, wall_time).bytes(event::SUMMARY, &summary.0))
    }

    /// Adds a text in Markdown, such as a configuration between fences.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn text(&mut self, step: u64, wall_time: f64, tag: &str, markdown: &str) -> Result<()> {
        // A tensor without dimensions; one with a dimension would be shown as a table.
        let tensor = Message::default()
            .integer(tensor::DTYPE, tensor::DT_STRING)
            .bytes(tensor::SHAPE, b"")
            .bytes(tensor::STRING_VALUE, markdown.as_bytes());
        let plugin = Message::default().bytes(plugin_data::NAME, b"text");
        let metadata = Message::default().bytes(metadata::PLUGIN_DATA, &plugin.0);
        let value = Message::default()
            .bytes(value::TAG, tag.as_bytes())
            .bytes(value::TENSOR, &tensor.0)
            .bytes(value::METADATA, &metadata.0);
        let summary = Message::default().bytes(summary::VALUE, &value.0);
        self.write(event_at(step, wall_time).bytes(event::SUMMARY, &summary.0))
    }

    fn write(&mut self, event: Message) -> Result<()> {
        self.file.write_all(&record(&event.0))
    }
}

/// TensorBoard reads every file whose name contains `tfevents`. Names usually have a host and a process number, to
/// separate writers that share a directory; sessions of a run do not share it at the same time.
const PREFIX: &str = "events.out.tfevents.";

/// Suffix of the files that this module may cut.
const SUFFIX: &str = ".undertone";

/// Returns the second in the name of such a file.
fn second_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Cuts a file after the last complete record before step `from`.
fn cut(path: &Path, from: u64) -> Result<()> {
    let bytes = std::fs::read(path)?;
    let mut rest = &bytes[..];
    while let Some((_, after)) = split_record(rest).filter(|(event, _)| step_of(event) < from) {
        rest = after;
    }
    if !rest.is_empty() {
        OpenOptions::new().write(true).open(path)?.set_len((bytes.len() - rest.len()) as u64)?;
    }
    Ok(())
}

/// Encodes a TFRecord.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checks = [&length[..], data].map(|bytes| masked_crc(bytes).to_le_bytes());
    [&length[..], &checks[0], data, &checks[1]].concat()
}

/// Returns the data of the first record and the rest after it; `None` if the record is torn or damaged.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let checked = |bytes: &[u8], check: &[u8; 4]| (masked_crc(bytes) == u32::from_le_bytes(*check)).then_some(());
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (check, rest) = rest.split_first_chunk::<4>()?;
    checked(length, check)?;
    let (data, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let (check, rest) = rest.split_first_chunk::<4>()?;
    checked(data, check)?;
    Some((data, rest))
}

/// CRC-32C, rotated and shifted as in LevelDB, because a CRC of data that contains CRCs is weak.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Makes an `Event` without content.
fn event_at(step: u64, wall_time: f64) -> Message {
    let event = Message::default().double(event::WALL_TIME, wall_time);
    // As in protobuf, a field with the value 0 is left out.
    if step == 0 { event } else { event.integer(event::STEP, step) }
}

/// Returns the step of an event that [`event_at`] made. It is after the key and the eight bytes of the wall time, if
/// present.
fn step_of(event: &[u8]) -> u64 {
    let Some((&STEP_KEY, varint)) = event.get(9..).and_then(<[u8]>::split_first) else { return 0 };
    let length = varint.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    varint.iter().take(length).rev().fold(0, |step, byte| (step << 7) | u64::from(byte & 0x7f))
}

const STEP_KEY: u8 = event::STEP << 3 | VARINT;

/// A protobuf message. Fields are added in the order of their numbers.
///
/// A field is a key and a value. The key is the field's number times 8 plus the type of its encoding. All numbers here
/// are below 16, so that a key is one byte.
#[derive(Default)]
struct Message(Vec<u8>);

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

impl Message {
    fn integer(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3 | VARINT);
        self.varint(value);
        self
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self.0.push(field << 3 | FIXED_64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self.0.push(field << 3 | FIXED_32);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a string or another message.
    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Adds seven bits per byte, the lowest first; the eighth bit marks that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// `tensorflow.Event` (tensorflow/core/util/event.proto).
mod event {
    pub const WALL_TIME: u8 = 1;
    pub const STEP: u8 = 2;
    pub const FILE_VERSION: u8 = 3;
    pub const SUMMARY: u8 = 5;
    pub const SESSION_LOG: u8 = 7;
}

/// `tensorflow.SessionLog` (tensorflow/core/util/event.proto).
mod session_log {
    pub const STATUS: u8 = 1;
    pub const START: u64 = 1;
}

/// `tensorflow.Summary` (tensorflow/core/framework/summary.proto).
mod summary {
    pub const VALUE: u8 = 1;
}

/// `tensorflow.Summary.Value`.
mod value {
    pub const TAG: u8 = 1;
    pub const SIMPLE_VALUE: u8 = 2;
    pub const TENSOR: u8 = 8;
    pub const METADATA: u8 = 9;
}

/// `tensorflow.SummaryMetadata`.
mod metadata {
    pub const PLUGIN_DATA: u8 = 1;
}

/// `tensorflow.SummaryMetadata.PluginData`.
mod plugin_data {
    pub const NAME: u8 = 1;
}

/// `tensorflow.TensorProto` (tensorflow/core/framework/tensor.proto).
mod tensor {
    pub const DTYPE: u8 = 1;
    pub const SHAPE: u8 = 2;
    pub const STRING_VALUE: u8 = 8;
    pub const DT_STRING: u64 = 7;
}

#[cfg(test)]
pub(crate) mod tests;
