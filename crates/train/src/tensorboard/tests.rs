use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::{num, option};
use std::path::PathBuf;

/// What an event says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    wall_time: f64,
    step: u64,
    version: Option<String>,
    status: Option<i32>,
    /// Tags with the bits of their values, because NaN is not equal to NaN.
    scalars: Vec<(String, u32)>,
    texts: Vec<(String, String)>,
}

fn read_event(bytes: &[u8]) -> Content {
    let event = Event::decode(bytes).expect("an event");
    assert_eq!(event.encode_to_vec(), bytes, "nothing but these fields");
    let Event { wall_time, step, file_version, summary, session_log } = event;
    let status = session_log.map(|log| log.status);
    let mut content = Content { wall_time, step, version: file_version, status, ..Content::default() };
    for Value { tag, simple_value, tensor, metadata } in summary.into_iter().flat_map(|summary| summary.value) {
        match (simple_value, tensor) {
            (Some(value), None) => content.scalars.push((tag, value.to_bits())),
            (None, Some(tensor)) => {
                let plugin = metadata.expect("metadata").plugin_data.plugin_name;
                assert_eq!((tensor.dtype, plugin.as_str()), (7, "text"));
                let [text]: [Vec<u8>; 1] = tensor.string_val.try_into().expect("one text");
                content.texts.push((tag, String::from_utf8(text).expect("UTF-8")));
            }
            other => panic!("{other:?}"),
        }
    }
    content
}

/// The event files of a directory, in the order in which TensorBoard reads them.
fn files(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("a file").path());
    let mut files: Vec<_> = files.filter(|path| path.to_string_lossy().contains("tfevents")).collect();
    files.sort();
    files
}

/// Returns step and value of every point of a tag's curve.
pub(crate) fn points(dir: &Path, tag: &str) -> Vec<(u64, f32)> {
    let of = |event: Content| {
        let step = event.step;
        event.scalars.into_iter().map(move |(tag, bits)| (step, tag, f32::from_bits(bits)))
    };
    let all = read_all(dir).into_iter().flat_map(of);
    all.filter(|(_, found, _)| found == tag).map(|(step, _, value)| (step, value)).collect()
}

fn read(path: &Path) -> Vec<Content> {
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

fn read_all(dir: &Path) -> Vec<Content> {
    files(dir).iter().flat_map(|path| read(path)).collect()
}

/// Returns step and first value of each event that has one.
fn curve(dir: &Path) -> Vec<(u64, f32)> {
    let point = |e: Content| Some((e.step, f32::from_bits(e.scalars.first()?.1)));
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
    assert_eq!(written, include_bytes!("../../tests/fixtures/tensorboard.tfevents"));
}

#[test]
fn a_first_session_says_its_version_and_that_it_starts_at_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    EventFile::open(dir.path(), 0, 1_700_000_000.75).expect("opened");
    let paths = files(dir.path());
    assert_eq!(paths, [dir.path().join("events.out.tfevents.1700000000.undertone")]);
    let start = Content { wall_time: 1_700_000_000.75, ..Default::default() };
    let version = Content { version: Some("brain.Event:2".into()), ..start.clone() };
    assert_eq!(read(&paths[0]), [version, Content { status: Some(1), ..start }]);
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
            let mut event = Content { wall_time, step, ..Default::default() };
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
        let empty = Event { wall_time, step, ..Event::default() }.encode_to_vec();
        // A summary with an unknown field that looks like a step.
        let full = [&empty[..], b"\x2a\x02\x10\x07"].concat();
        for event in [empty, full] {
            prop_assert!(!is_before(&event, step));
            prop_assert!(step == u64::MAX || is_before(&event, step + 1));
        }
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
