//! Event files, as TensorBoard reads them: curves and notes of a run, to be watched while it trains.
//!
//! A file is a row of TFRecords: the data's length (u64), its masked CRC-32C, the data, and the data's masked CRC-32C,
//! all little-endian (tensorflow/core/lib/io/record_writer.h). The data of each is one protobuf message,
//! `tensorflow.Event`. We write about fifteen fields of it and their numbers are fixed for good, so that they are
//! encoded here by hand: a protobuf compiler in the build, or generated types for graphs and devices that no run of
//! ours has, would be more to keep than what they replace. A fixture made with TensorBoard's own messages and writer
//! holds the bytes to it.
//!
//! Each session of a run writes a file of its own, for a TensorBoard that is watching reads on where it was: of a file
//! that is replaced, or shortened and written on, it shows nothing more until it is started again. What a lost session
//! wrote beyond the checkpoint that the next one starts from is taken back twice:
//!
//! - The older files are cut there, or where a record is torn or damaged. A TensorBoard that is started from now on
//!   sees only what stands. Its data server, which reads by default, needs this: it heeds no session log, only a step
//!   of a tag that is no later than the tag's last one, so that lost values which are not written again would stay.
//! - The new file begins with a session log that says `START` at that step. By it the reader in Python
//!   (`--load_fast=false`, and `EventAccumulator` in scripts) forgets lost values that it has read already; a running
//!   data server forgets a tag's as soon as the tag is written again.

use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::path::Path;

/// The event file of one session. TensorBoard shows all sessions of a directory as one run.
///
/// A record is handed to the system whole and at once, so that TensorBoard sees it with its next look. After an error
/// the last record may be torn, and the file should not be written any more; the next session mends it.
#[derive(Debug)]
pub struct EventFile {
    file: File,
}

impl EventFile {
    /// Makes the file of a session whose first step will be `from`: 0 for a run that has nothing behind it, otherwise
    /// one more than the step of the checkpoint it goes on from. Whatever earlier sessions left in `dir` of that step
    /// and later is deleted, for it will be written again. Event files of other programs are left alone.
    ///
    /// `wall_time`, here and below, is now, in seconds since 1970; TensorBoard drops what has none that is finite.
    ///
    /// # Errors
    /// When `dir` is not there, or cannot be read or written.
    pub fn open(dir: &Path, from: u64, wall_time: f64) -> Result<Self> {
        let mut second = wall_time as u64;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(earlier) = entry.file_name().to_str().and_then(second_of) {
                cut(&entry.path(), from)?;
                // TensorBoard reads files in the order of their names, whatever the clock did in between.
                second = second.max(earlier.saturating_add(1));
            }
        }
        let path = dir.join(format!("{PREFIX}{second:010}{SUFFIX}"));
        let mut events = Self { file: OpenOptions::new().append(true).create_new(true).open(path)? };
        // Version 2 is the one whose readers heed session logs.
        events.write(event_at(0, wall_time).bytes(event::FILE_VERSION, b"brain.Event:2"))?;
        let start = Message::default().integer(session_log::STATUS, session_log::START);
        events.write(event_at(from, wall_time).bytes(event::SESSION_LOG, &start.0))?;
        Ok(events)
    }

    /// Adds a point to the curve of each tag. What lies before a tag's first `/` groups it with others. Steps must not
    /// go back within a session. Values are kept as f32, NaN and infinities too.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn scalars<'a>(
        &mut self,
        step: u64,
        wall_time: f64,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<()> {
        // `simple_value`, the oldest kind: every TensorBoard draws it, newer ones turn it into a tensor as they read.
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

/// TensorBoard takes every file whose name has `tfevents` in it; the usual host and process number tell writers apart
/// that share a directory, which sessions of a run do not.
const PREFIX: &str = "events.out.tfevents.";

/// What is ours to cut.
const SUFFIX: &str = ".undertone";

/// The second in the name of one of our files.
fn second_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Shortens a file to the whole records before step `from`.
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

/// One TFRecord.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checks = [&length[..], data].map(|bytes| masked_crc(bytes).to_le_bytes());
    [&length[..], &checks[0], data, &checks[1]].concat()
}

/// The data of the first record, and what follows it; nothing if it is torn or damaged.
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

/// A CRC-32C turned and shifted as LevelDB does it, for a CRC over data that holds CRCs says little.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// An `Event` that has yet to say something.
fn event_at(step: u64, wall_time: f64) -> Message {
    let event = Message::default().double(event::WALL_TIME, wall_time);
    // A field that is 0 is left out, as protobuf does it.
    if step == 0 { event } else { event.integer(event::STEP, step) }
}

/// The step of an event that [`event_at`] began: it lies behind the key and the eight bytes of the wall time, if
/// anywhere.
fn step_of(event: &[u8]) -> u64 {
    let Some((&STEP_KEY, varint)) = event.get(9..).and_then(<[u8]>::split_first) else { return 0 };
    let length = varint.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    varint.iter().take(length).rev().fold(0, |step, byte| (step << 7) | u64::from(byte & 0x7f))
}

const STEP_KEY: u8 = event::STEP << 3 | VARINT;

/// A protobuf message, to which fields are added in the order of their numbers.
///
/// A field is a key, its number times 8 plus how its value is laid out, and its value. All numbers here are below 16,
/// so that a key is one byte.
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

    /// A string, or another message.
    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
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
pub(crate) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::{num, option};
    use std::path::PathBuf;

    /// What an event says, read by the rules of protobuf and not by how we write it.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Event {
        wall_time: f64,
        step: u64,
        version: Option<String>,
        status: Option<u64>,
        /// Tags with the bits of their values, for NaN is not NaN.
        scalars: Vec<(String, u32)>,
        texts: Vec<(String, String)>,
    }

    enum Field<'a> {
        Varint(u64),
        Double(f64),
        Float(f32),
        Bytes(&'a [u8]),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes.split_off_first().expect("a varint");
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        bytes.split_off(..length).expect("a whole field")
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key % 8 {
                0 => Field::Varint(varint(&mut bytes)),
                1 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().expect("eight bytes"))),
                2 => {
                    let length = varint(&mut bytes);
                    Field::Bytes(take(&mut bytes, length as usize))
                }
                5 => Field::Float(f32::from_le_bytes(take(&mut bytes, 4).try_into().expect("four bytes"))),
                wire => panic!("wire type {wire}"),
            };
            fields.push((key / 8, field));
        }
        fields
    }

    fn string(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }

    fn read_value(bytes: &[u8], event: &mut Event) {
        let (mut tag, mut plugin) = (String::new(), None);
        let (mut number, mut text, mut kind) = (None, None, None);
        for field in fields(bytes) {
            match field {
                (1, Field::Bytes(bytes)) => tag = string(bytes),
                (2, Field::Float(value)) => number = Some(value.to_bits()),
                (8, Field::Bytes(tensor)) => {
                    for field in fields(tensor) {
                        match field {
                            (1, Field::Varint(dtype)) => kind = Some(dtype),
                            (2, Field::Bytes(shape)) => assert!(shape.is_empty(), "no dimensions"),
                            (8, Field::Bytes(bytes)) => text = Some(string(bytes)),
                            (number, _) => panic!("field {number} of a tensor"),
                        }
                    }
                }
                (9, Field::Bytes(metadata)) => match &fields(metadata)[..] {
                    [(1, Field::Bytes(data))] => match &fields(data)[..] {
                        [(1, Field::Bytes(name))] => plugin = Some(string(name)),
                        _ => panic!("plugin data"),
                    },
                    _ => panic!("metadata"),
                },
                (number, _) => panic!("field {number} of a value"),
            }
        }
        match (number, text) {
            (Some(bits), None) => event.scalars.push((tag, bits)),
            (None, Some(text)) => {
                assert_eq!((kind, plugin.as_deref()), (Some(7), Some("text")));
                event.texts.push((tag, text));
            }
            other => panic!("{other:?}"),
        }
    }

    fn read_event(bytes: &[u8]) -> Event {
        let mut event = Event::default();
        for field in fields(bytes) {
            match field {
                (1, Field::Double(time)) => event.wall_time = time,
                (2, Field::Varint(step)) => event.step = step,
                (3, Field::Bytes(version)) => event.version = Some(string(version)),
                (5, Field::Bytes(summary)) => {
                    for field in fields(summary) {
                        let (1, Field::Bytes(value)) = field else { panic!("field {} of a summary", field.0) };
                        read_value(value, &mut event);
                    }
                }
                (7, Field::Bytes(log)) => match fields(log)[..] {
                    [(1, Field::Varint(status))] => event.status = Some(status),
                    _ => panic!("a session log"),
                },
                (number, _) => panic!("field {number} of an event"),
            }
        }
        event
    }

    /// The event files of a directory, in the order in which TensorBoard reads them.
    fn files(dir: &Path) -> Vec<PathBuf> {
        let files = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("a file").path());
        let mut files: Vec<_> = files.filter(|path| path.to_string_lossy().contains("tfevents")).collect();
        files.sort();
        files
    }

    /// Step and value of every point of a tag's curve.
    pub(crate) fn points(dir: &Path, tag: &str) -> Vec<(u64, f32)> {
        let of = |event: Event| {
            let step = event.step;
            event.scalars.into_iter().map(move |(tag, bits)| (step, tag, f32::from_bits(bits)))
        };
        let all = read_all(dir).into_iter().flat_map(of);
        all.filter(|(_, found, _)| found == tag).map(|(step, _, value)| (step, value)).collect()
    }

    fn read(path: &Path) -> Vec<Event> {
        let bytes = std::fs::read(path).expect("read");
        let mut rest = &bytes[..];
        let mut events = Vec::new();
        while !rest.is_empty() {
            let (event, after) = split_record(rest).expect("a whole record");
            events.push(read_event(event));
            rest = after;
        }
        events
    }

    fn read_all(dir: &Path) -> Vec<Event> {
        files(dir).iter().flat_map(|path| read(path)).collect()
    }

    /// Steps with the first value, of events that have one.
    fn curve(dir: &Path) -> Vec<(u64, f32)> {
        let point = |e: Event| Some((e.step, f32::from_bits(e.scalars.first()?.1)));
        read_all(dir).into_iter().filter_map(point).collect()
    }

    fn train(events: &mut EventFile, steps: impl IntoIterator<Item = u64>, value: f64) {
        for step in steps {
            events.scalars(step, 1000.0 + step as f64, [("train/loss", value)]).expect("written");
        }
    }

    #[test]
    fn checksums_are_those_of_rfc_3720_masked_as_tensorflow_does() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        // RFC 3720, B.4, and the check value of the CRC catalogue: 8a9136aa, 62a8ab43, 46dd794e, 113fdb5c and e3069283
        // before TensorBoard's `masked_crc32c` masks them.
        assert_eq!(masked_crc(&[0; 32]), 0x0fd7_fffa);
        assert_eq!(masked_crc(&[0xff; 32]), 0xf909_b029);
        assert_eq!(masked_crc(&ascending), 0x951f_7892);
        assert_eq!(masked_crc(&descending), 0x593b_0d57);
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
        // Found in a file of TensorFlow's, by the test of TensorBoard's data server.
        assert_eq!(masked_crc(b"\x1a\x11CRC test, one two"), 0x5794_d08a);
    }

    #[test]
    fn a_session_is_byte_for_byte_what_tensorboards_own_writer_makes_of_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut events = EventFile::open(dir.path(), 301, 1_700_000_000.25).expect("opened");
        events.text(301, 1_700_000_000.5, "config", "```yaml\nlr: 3e-4 # größer?\n```").expect("written");
        let long = "valid/".to_owned() + &"x".repeat(200);
        let values = [("train/loss", 1.0 / 3.0), ("zero", 0.0), ("low", f64::NEG_INFINITY), (long.as_str(), -2.5)];
        events.scalars(301, 1_700_000_001.0, values).expect("written");
        events.scalars(u64::from(u32::MAX) + 1, 1_700_000_002.0, [("train/loss", 1e-40)]).expect("written");
        let written = std::fs::read(&files(dir.path())[0]).expect("read");
        assert_eq!(written, include_bytes!("../tests/fixtures/tensorboard.tfevents"));
    }

    #[test]
    fn a_first_session_says_its_version_and_that_it_starts_at_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        EventFile::open(dir.path(), 0, 1_700_000_000.75).expect("opened");
        let paths = files(dir.path());
        assert_eq!(paths, [dir.path().join("events.out.tfevents.1700000000.undertone")]);
        let start = Event { wall_time: 1_700_000_000.75, ..Default::default() };
        let version = Event { version: Some("brain.Event:2".into()), ..start.clone() };
        assert_eq!(read(&paths[0]), [version, Event { status: Some(1), ..start }]);
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_again(
            records in vec(
                (0..=i64::MAX as u64, 0.0..4e9_f64, vec((".{0,200}", num::f64::ANY), 0..5), option::of(".{0,300}")),
                0..8,
            ),
        ) {
            let dir = tempfile::tempdir().expect("a directory");
            let mut events = EventFile::open(dir.path(), 0, 5.0).expect("opened");
            let mut expected = Vec::new();
            for (step, wall_time, values, text) in records {
                let mut event = Event { wall_time, step, ..Default::default() };
                if let Some(text) = text {
                    events.text(step, wall_time, "note", &text).expect("written");
                    event.texts.push(("note".into(), text));
                } else {
                    events.scalars(step, wall_time, values.iter().map(|(t, v)| (t.as_str(), *v))).expect("written");
                    event.scalars = values.into_iter().map(|(tag, value)| (tag, (value as f32).to_bits())).collect();
                }
                expected.push(event);
            }
            let read = read(&files(dir.path())[0]);
            prop_assert_eq!(&read[2..], &expected[..]);
        }

        #[test]
        fn the_step_is_found_in_any_event(step in prop_oneof![0..300_u64, any::<u64>()], wall_time: f64) {
            prop_assert_eq!(step_of(&event_at(step, wall_time).0), step);
            prop_assert_eq!(step_of(&event_at(step, wall_time).bytes(event::SUMMARY, b"\x10\x07").0), step);
        }

        #[test]
        fn any_bytes_at_all_are_cut_without_panic(bytes in vec(any::<u8>(), 0..100)) {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("events.out.tfevents.0000000001.undertone");
            std::fs::write(&path, record(&bytes)).expect("written");
            cut(&path, u64::MAX).expect("cut");
            std::fs::write(&path, &bytes).expect("written");
            cut(&path, u64::MAX).expect("cut");
            prop_assert_eq!(std::fs::metadata(&path).expect("there").len(), 0);
        }
    }

    #[test]
    fn a_record_that_is_torn_or_damaged_anywhere_is_cut_off_and_those_before_it_stand() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut events = EventFile::open(dir.path(), 0, 5.0).expect("opened");
        train(&mut events, 1..=2, 0.5);
        let path = &files(dir.path())[0];
        let whole = std::fs::read(path).expect("read");
        train(&mut events, [3], 0.25);
        let longer = std::fs::read(path).expect("read");
        let mends = |spoilt: &[u8], to: &[u8]| {
            std::fs::write(path, spoilt).expect("written");
            cut(path, 10).expect("cut");
            assert!(std::fs::read(path).expect("read") == to, "{} bytes", spoilt.len());
        };
        mends(&longer, &longer);
        for end in whole.len()..longer.len() {
            mends(&longer[..end], &whole);
            let mut damaged = longer.clone();
            damaged[end] ^= 1;
            mends(&damaged, &whole);
        }
    }

    #[test]
    fn a_session_that_resumes_leaves_no_later_step_of_a_lost_one_standing() {
        let dir = tempfile::tempdir().expect("a directory");
        train(&mut EventFile::open(dir.path(), 0, 50.0).expect("opened"), 1..=6, 1.0);
        train(&mut EventFile::open(dir.path(), 5, 60.0).expect("opened"), 5..=8, 2.0);
        let expected = [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0), (6, 2.0), (7, 2.0), (8, 2.0)];
        assert_eq!(curve(dir.path()), expected);
        // The checkpoints in between turn out to be damaged.
        train(&mut EventFile::open(dir.path(), 3, 70.0).expect("opened"), 3..=4, 3.0);
        assert_eq!(curve(dir.path()), [(1, 1.0), (2, 1.0), (3, 3.0), (4, 3.0)]);
        let starts = read_all(dir.path()).into_iter().filter(|e| e.status == Some(1)).map(|e| e.step);
        assert_eq!(starts.collect::<Vec<_>>(), [0, 3], "the second session's own start is gone with all it wrote");
        // A run that never reached a checkpoint begins anew, its evaluation before the first step included.
        train(&mut EventFile::open(dir.path(), 0, 80.0).expect("opened"), 0..=1, 4.0);
        assert_eq!(curve(dir.path()), [(0, 4.0), (1, 4.0)]);
    }

    #[test]
    fn sessions_are_read_in_their_order_even_if_the_clock_goes_back() {
        let dir = tempfile::tempdir().expect("a directory");
        for (session, wall_time) in [(1, 500.9), (2, 500.9), (3, 20.0), (4, f64::NAN)] {
            train(&mut EventFile::open(dir.path(), session, wall_time).expect("opened"), [session], session as f64);
        }
        assert_eq!(curve(dir.path()), [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]);
    }

    #[test]
    fn files_of_other_programs_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let others = ["events.out.tfevents.0000000009.host.77.0", "events.out.tfevents.x.undertone", "metrics.jsonl"];
        for name in others {
            std::fs::write(dir.path().join(name), "theirs").expect("written");
        }
        EventFile::open(dir.path(), 0, 5.0).expect("opened");
        for name in others {
            assert_eq!(std::fs::read(dir.path().join(name)).expect("read"), b"theirs");
        }
    }
}
