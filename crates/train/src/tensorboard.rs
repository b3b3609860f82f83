//! TensorBoard event files: curves and texts of a run, to be viewed while it trains.
//!
//! A file is a sequence of TFRecords: the data's length (u64), its masked CRC-32C, the data, and the data's masked
//! CRC-32C, all little-endian (tensorflow/core/lib/io/record_writer.h). The data of each record is one protobuf
//! message, `tensorflow.Event`. This module writes about fifteen fields of it, whose numbers never change, so they are
//! declared here by hand: a protobuf compiler in the build, or generated types for graphs and devices that no run has,
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

use prost::Message;
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
        let file_version = Some("brain.Event:2".into());
        events.write(&Event { wall_time, file_version, ..Event::default() })?;
        let session_log = Some(SessionLog { status: SessionLog::START });
        events.write(&Event { wall_time, step: from, session_log, ..Event::default() })?;
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
        let value = |(tag, x): (&str, f64)| Value { tag: tag.into(), simple_value: Some(x as f32), ..Value::default() };
        let summary = Some(Summary { value: values.into_iter().map(value).collect() });
        self.write(&Event { wall_time, step, summary, ..Event::default() })
    }

    /// Adds a text in Markdown, such as a configuration between fences.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn text(&mut self, step: u64, wall_time: f64, tag: &str, markdown: &str) -> Result<()> {
        // A tensor without dimensions; one with a dimension would be shown as a table.
        let tensor = TensorProto { dtype: TensorProto::STRING, tensor_shape: (), string_val: vec![markdown.into()] };
        let metadata = SummaryMetadata { plugin_data: PluginData { plugin_name: "text".into() } };
        let value = Value { tag: tag.into(), tensor: Some(tensor), metadata: Some(metadata), ..Value::default() };
        let summary = Some(Summary { value: vec![value] });
        self.write(&Event { wall_time, step, summary, ..Event::default() })
    }

    fn write(&mut self, event: &Event) -> Result<()> {
        self.file.write_all(&record(&event.encode_to_vec()))
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
    while let Some((_, after)) = split_record(rest).filter(|(event, _)| is_before(event, from)) {
        rest = after;
    }
    if !rest.is_empty() {
        OpenOptions::new().write(true).open(path)?.set_len((bytes.len() - rest.len()) as u64)?;
    }
    Ok(())
}

/// Whether data is an event before step `from`.
fn is_before(event: &[u8], from: u64) -> bool {
    Event::decode(event).is_ok_and(|event| event.step < from)
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

/// `tensorflow.Event` (tensorflow/core/util/event.proto). Fields that are `required`, here and below, are written even if
/// they are 0 or empty.
#[derive(Message)]
struct Event {
    #[prost(double, required, tag = "1")]
    wall_time: f64,
    #[prost(uint64, tag = "2")]
    step: u64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

/// `tensorflow.SessionLog` (tensorflow/core/util/event.proto).
#[derive(Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

impl SessionLog {
    const START: i32 = 1;
}

/// `tensorflow.Summary` (tensorflow/core/framework/summary.proto).
#[derive(Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `tensorflow.Summary.Value`.
#[derive(Message)]
struct Value {
    #[prost(string, required, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "8")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<SummaryMetadata>,
}

/// `tensorflow.SummaryMetadata`.
#[derive(Message)]
struct SummaryMetadata {
    #[prost(message, required, tag = "1")]
    plugin_data: PluginData,
}

/// `tensorflow.SummaryMetadata.PluginData`.
#[derive(Message)]
struct PluginData {
    #[prost(string, tag = "1")]
    plugin_name: String,
}

/// `tensorflow.TensorProto` (tensorflow/core/framework/tensor.proto).
#[derive(Message)]
struct TensorProto {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, required, tag = "2")]
    tensor_shape: (),
    #[prost(bytes = "vec", repeated, tag = "8")]
    string_val: Vec<Vec<u8>>,
}

impl TensorProto {
    /// `DT_STRING` (tensorflow/core/framework/types.proto).
    const STRING: i32 = 7;
}

#[cfg(test)]
pub(crate) mod tests;
