//! Speech from the hub: fetched, or streamed.

use super::server::{DATASET, Mood, Repository, Server};
use super::{CONVERSION, Case};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone::data::clips::{BlockShuffle, Clips};
use undertone::data::loader::Order;
use undertone::data::records::RecordsConfig;
use undertone::phases::streamed;
use undertone_tests::runs::{send, wait_while_alive};
use undertone_tests::toys::logged;
use undertone_tests::{Outcome, Place, sets, wav};

/// Clips of a shard, of a row group, and their samples.
const CLIPS: usize = 24;
const GROUP: usize = 12;
const SAMPLES: usize = 16_000;

/// The audio of a clip: noise, so that nothing makes it smaller.
fn audio(number: usize) -> Vec<u8> {
    let mut state = number as u32 + 1;
    let noise = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 16) as i16) / 65_536.0
    };
    wav(&(0..SAMPLES).map(noise).collect::<Vec<_>>())
}

/// A shard as Hugging Face has it, in pages of some clips; with or without an index of the pages.
fn shard(first: usize, indexed: bool) -> Vec<u8> {
    let schema = "message speech { required group audio { required binary bytes; required binary path (UTF8); } \
                  required binary sentence (UTF8); required binary picture; }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_write_batch_size(1)
        .set_data_page_size_limit(200_000)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(!indexed);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).expect("a file");
    for group in 0..CLIPS / GROUP {
        let numbers = || (0..GROUP).map(|at| first + group * GROUP + at);
        let columns: [Vec<ByteArray>; 4] = [
            numbers().map(|number| ByteArray::from(audio(number))).collect(),
            numbers().map(|number| ByteArray::from(format!("{number}.wav").as_str())).collect(),
            numbers().map(|number| ByteArray::from(format!("CQ {number}").as_str())).collect(),
            numbers().map(|_| ByteArray::from("x")).collect(),
        ];
        let mut writer = file.next_row_group().expect("a row group");
        for values in columns {
            let mut column = writer.next_column().expect("a column").expect("as many as there are");
            column.typed::<ByteArrayType>().write_batch(&values, None, None).expect("written");
            column.close().expect("closed");
        }
        writer.close().expect("closed");
    }
    file.into_inner().expect("finished")
}

fn speech(indexed: bool) -> Repository {
    let files =
        [("default/train/0000.parquet", shard(0, indexed)), ("default/train/0001.parquet", shard(CLIPS, indexed))];
    Repository::dataset(CONVERSION, files)
}

fn columns() -> RecordsConfig {
    let columns = [("text".to_owned(), "sentence".into())].into_iter().collect();
    RecordsConfig { columns, ..RecordsConfig::default() }
}

/// Trains on the hub for three steps.
fn train(place: &Place, endpoint: &str, source: &str, environment: &[(&str, &str)]) -> Outcome {
    Outcome::of(training(place, endpoint, source).envs(environment.iter().copied()))
}

fn training(place: &Place, endpoint: &str, source: &str) -> Command {
    place.write_experiment(&format!("hub: {DATASET}, split: train, columns: {{text: sentence}}{source}"));
    let settings = sets(&["train.max_steps=3", "train.evaluate.every=3", "run.overwrite=true"]);
    let mut command = place.xtask(&[&["train", "--config", "tiny.yaml"], &settings[..]].concat());
    command.env("HF_HOME", place.path("home")).env("HF_ENDPOINT", endpoint);
    command.env_remove("HF_TOKEN").env_remove("HF_HUB_CACHE");
    command
}

/// The losses of the run's steps.
fn losses(place: &Place) -> Vec<f64> {
    logged(&place.path("runs/tiny"), "train", "loss")
}

#[test]
fn speech_is_fetched_once_and_trained_on_offline() {
    let place = Place::default();
    let server = Server::new(speech(true));
    let online = train(&place, &server.address, "", &[]);
    assert_eq!(online.status, Some(0), "{online:?}");
    assert_eq!(server.asked(), ["default/train/0000.parquet", "default/train/0001.parquet"]);
    let first = losses(&place);
    let offline = train(&place, "http://127.0.0.1:9", "", &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(offline.status, Some(0), "{offline:?}");
    assert!(!first.is_empty() && first == losses(&place), "{first:?}");
}

#[test]
fn training_streams_what_it_hears_and_learns_the_same() {
    let place = Place::default();
    let server = Server::new(speech(true));
    let streamed = train(&place, &server.address, ", stream: true", &[]);
    assert_eq!(streamed.status, Some(0), "{streamed:?}");
    let first = losses(&place);
    assert!(!place.path("home").exists(), "nothing is stored");
    let fetched = train(&place, &server.address, "", &[]);
    assert_eq!(fetched.status, Some(0), "{fetched:?}");
    assert!(!first.is_empty() && first == losses(&place), "{first:?}");
}

#[test]
fn reading_everything_for_its_length_is_said_before() {
    let place = Place::default();
    let server = Server::new(speech(true));
    let said = |set: &[&str]| {
        let mut command = training(&place, &server.address, ", stream: true");
        let text = Outcome::of(command.args(set)).succeeded().stderr;
        text.lines().filter(|line| line.contains("for their lengths")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(said(&[]), [""; 0], "nobody needs them");
    let line =
        "reading 48 recordings once for their lengths (data.group_by_length and data.max_batch_seconds need them)";
    assert_eq!(said(&["--set", "data.group_by_length=true", "--set", "data.max_batch_seconds=4"]), [line]);
}

#[test]
fn a_stream_without_the_network_and_one_of_something_else_are_refused() {
    let place = Place::default();
    let offline = train(&place, "http://127.0.0.1:9", ", stream: true", &[("HF_HUB_OFFLINE", "1")]);
    offline.assert_refusal(&[DATASET, "HF_HUB_OFFLINE", "`stream`"]);
    place.write_experiment("path: speech.jsonl, stream: true");
    place.train("tiny.yaml", &[]).assert_refusal(&["`stream` is for `hub`"]);
    place.write_experiment("synth: cw, stream: true");
    place.train("tiny.yaml", &[]).assert_refusal(&["`stream` is for recordings"]);
}

#[test]
fn the_environment_and_the_stored_token_open_a_gated_dataset() {
    let place = Place::default();
    let server = Server::with(speech(true), Mood { token: Some("hf_good"), ..Mood::default() });
    let refused = train(&place, &server.address, "", &[]);
    refused.assert_refusal(&[DATASET, "401", "HF_TOKEN"]);
    let opened = train(&place, &server.address, ", stream: true", &[("HF_TOKEN", "hf_good")]);
    assert_eq!(opened.status, Some(0), "{opened:?}");
    std::fs::create_dir_all(place.path("home")).expect("a folder");
    place.write("home/token", "hf_good\n");
    let opened = train(&place, &server.address, ", stream: true", &[]);
    assert_eq!(opened.status, Some(0), "{opened:?}");
    let refused = train(&place, &server.address, "", &[("HF_TOKEN", "hf_bad")]);
    refused.assert_refusal(&[DATASET, "403"]);
}

/// The clips as they are in files.
fn local(indexed: bool) -> (tempfile::TempDir, Clips) {
    let home = tempfile::tempdir().expect("a directory");
    let paths: Vec<PathBuf> = speech(indexed)
        .files
        .into_iter()
        .enumerate()
        .map(|(number, (_, bytes))| {
            let path = home.path().join(format!("{number}.parquet"));
            std::fs::write(&path, bytes).expect("written");
            path
        })
        .collect();
    let clips = Clips::open(&RecordsConfig { path: paths.into(), ..columns() }).expect("clips");
    (home, clips)
}

#[test]
fn opening_reads_the_texts_and_an_epoch_every_page_once() {
    let all_audio = 2 * CLIPS * audio(0).len();
    for indexed in [true, false] {
        let storage = Server::new(speech(indexed));
        let case = Case::new(speech(indexed));
        case.server.set_mood(Mood { redirect: Some(format!("{}/cdn", storage.address)), ..Mood::default() });
        let shards = case.online().stream(DATASET, None, "train", None).expect("shards");
        // Two row groups of decoded pages, and one page more.
        let memory = 2 * GROUP * audio(0).len() + 300_000;
        let clips = Clips::stream(&columns(), streamed(shards)).expect("clips").with_memory(memory);
        let opening = case.server.sent() + storage.sent();
        assert!(opening > 0 && opening < all_audio / 10, "{opening} of {all_audio} bytes to open");

        let (_home, local) = local(indexed);
        assert_eq!(clips.len(), local.len());
        assert_eq!(clips.blocks(), local.blocks());
        let order = BlockShuffle::new(clips.blocks().expect("row groups"), 2, 1).epoch(0);
        for index in order {
            assert_eq!(clips.clip(index).text, local.clip(index).text);
            assert_eq!(clips.load(index).expect("audio"), local.load(index).expect("audio"), "{index}");
        }
        // A hub that redirects is asked once, and then what it redirected to.
        assert!(case.server.requests().len() <= 2);
        let requests = storage.requests();
        let sent: usize = requests.iter().map(|request| request.sent).sum();
        assert!((all_audio..all_audio + all_audio / 50).contains(&sent), "{sent} for {all_audio} bytes of audio");
        assert!(!case.home.path().join("hub").exists(), "nothing is stored");
    }
}

#[test]
fn what_a_cache_knows_streamed_audio_by_is_address_and_size() {
    let case = Case::new(speech(true));
    let key = || {
        let shards = case.online().stream(DATASET, None, "train", None).expect("shards");
        Clips::stream(&columns(), streamed(shards)).expect("clips").key(1)
    };
    let size = speech(true).files["default/train/0000.parquet"].len();
    assert_eq!(key(), key());
    let address =
        format!("{}/datasets/{DATASET}/resolve/{}/default/train/0000.parquet", case.server.address, super::COMMIT);
    assert_eq!(key(), format!("{address}|{size}|0|row 1||"));
}

#[test]
fn a_stream_outlives_a_busy_hub_and_broken_answers() {
    let case = Case::new(speech(true));
    let shards = case.online().stream(DATASET, None, "train", None).expect("shards");
    let clips = Clips::stream(&columns(), streamed(shards)).expect("clips");
    let (_home, local) = local(true);
    case.server.set_mood(Mood { unavailable: 2, broken_after: Some(10_000), ..Mood::default() });
    assert_eq!(clips.load(0).expect("audio"), local.load(0).expect("audio"));
    let statuses: Vec<_> = case.server.requests().iter().rev().take(4).map(|request| request.status).collect();
    assert_eq!(statuses, [206, 206, 503, 503]);
}

#[test]
fn one_interrupt_is_enough_while_the_hub_asks_to_wait() {
    let place = Place::default();
    let server = Server::new(speech(true));
    // A first evaluation long enough for the hub to become busy before audio is asked for.
    let mut command = training(&place, &server.address, ", stream: true");
    let mut child = command.args(["--set", "data.valid.samples=200"]).spawn().expect("a process");
    wait_while_alive(&mut child, || place.path("runs/tiny/environment.json").exists(), "it trained");
    server.set_mood(Mood { unavailable: usize::MAX, retry_after: Some(300), ..Mood::default() });
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("503") && line.contains("trying again in 300.0 s")), "it waits");
    std::thread::spawn(move || lines.count());
    let asked = Instant::now();
    send("-INT", &child);
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
    assert!(place.path("runs/tiny/checkpoints/step-00000000/state.json").is_file());
    server.set_mood(Mood::default());
    let mut command = training(&place, &server.address, ", stream: true");
    Outcome::of(command.args(["--set", "data.valid.samples=200", "--resume"])).succeeded();
    assert_eq!(losses(&place).len(), 3);
}

#[test]
fn a_file_that_changes_under_a_stream_is_noticed() {
    let case = Case::new(speech(true));
    let shards = case.online().stream(DATASET, None, "train", None).expect("shards");
    let clips = Clips::stream(&columns(), streamed(shards)).expect("clips");
    case.server.change(|repository| {
        let file = repository.files.get_mut("default/train/0000.parquet").expect("a file");
        file[1000] ^= 1;
    });
    let error = clips.load(0).expect_err("another file").to_string();
    assert!(error.contains("0000.parquet") && error.contains("changed on the hub"), "{error}");
    assert_eq!(clips.load(CLIPS).expect("audio").len(), SAMPLES);
}

#[test]
fn records_without_audio_are_not_streamed() {
    let case = Case::new(super::converted());
    let shards = case.online().stream(DATASET, None, "train", None).expect("shards");
    let error = Clips::stream(&RecordsConfig::default(), streamed(shards)).expect_err("pairs of texts").to_string();
    assert!(error.contains("0000.parquet") && error.contains("no column with audio"), "{error}");
}
