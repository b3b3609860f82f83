//! Models and datasets from the hub: fetched from a server on loopback, then read from the cache alone.

mod network;
mod server;
mod speech;
mod untrusted;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use server::{COMMIT, DATASET, MODEL, Repository, Server};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use undertone::data::records::{PairRecord, Paths, RecordsConfig, RecordsError};
use undertone::hub::Hub;
use undertone_tests::{Outcome, Place};

/// The branch of the hub's own conversion, as URLs have it.
const CONVERSION: &str = "refs%2Fconvert%2Fparquet";

/// A configuration whose model is bundled.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/cw-contest.yaml");

fn bundled_files() -> BTreeMap<String, Vec<u8>> {
    undertone::model::whisper::bundled("whisper-nano-cw").expect("a bundled model")
}

/// A command with the hub at `endpoint`, and `home` in the place for what it fetches.
fn on_hub(place: &Place, endpoint: &str, offline: bool, args: &[&str]) -> Command {
    let mut command = place.xtask(args);
    command.env("HF_HOME", place.path("home")).env("HF_ENDPOINT", endpoint).env_remove("HF_HUB_CACHE");
    command.env("HF_HUB_OFFLINE", if offline { "1" } else { "0" });
    command
}

fn evaluation(place: &Place, endpoint: &str, offline: bool, model: &str) -> Command {
    let model = format!("model.source.hub={model}");
    let settings = ["--set", "data.valid.samples=2", "--set", "model.source.bundled=null", "--set", &model];
    on_hub(place, endpoint, offline, &[&["eval", "--config", CONFIG][..], &settings].concat())
}

fn eval(place: &Place, endpoint: &str, offline: bool, model: &str) -> Outcome {
    Outcome::of(&mut evaluation(place, endpoint, offline, model))
}

#[test]
fn a_model_is_fetched_once_and_then_read_offline() {
    let place = Place::default();
    let server = Server::new(Repository::model(bundled_files()));
    let online = eval(&place, &server.address, false, MODEL).succeeded();
    let offline = eval(&place, "http://127.0.0.1:9", true, MODEL).succeeded();
    assert_eq!(online.stdout, offline.stdout);
}

#[test]
fn the_cache_is_where_the_environment_says_with_or_without_a_home() {
    let place = Place::default();
    let server = Server::new(Repository::model(bundled_files()));
    let eval = |offline| {
        let mut command = evaluation(&place, &server.address, offline, MODEL);
        Outcome::of(command.env("HF_HUB_CACHE", place.path("cache"))).succeeded()
    };
    eval(false);
    assert!(place.path("cache/models--someone--nano/refs/main").is_file(), "it lies where it was to");
    assert!(!place.path("home/hub").exists(), "and nowhere else");
    eval(true);
}

#[test]
fn the_files_of_a_model_are_those_that_its_index_lists() {
    let index = br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
        "c": "../../elsewhere.safetensors"}}"#;
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let others = ["checkpoint-5/model-00001-of-00002.safetensors", "model.fp32.safetensors"];
    let mut files = BTreeMap::from([("model.safetensors.index.json".to_owned(), index.to_vec())]);
    files.extend(["config.json"].iter().chain(&shards).chain(&others).map(|name| ((*name).to_owned(), b"{}".to_vec())));
    let case = Case::new(Repository::model(files));
    let folder = case.online().model(MODEL, None).expect("fetched");
    assert!(shards.iter().all(|name| folder.join(name).is_file()));
    assert!(!others.iter().any(|name| folder.join(name).exists()), "no other weights");
}

#[test]
fn an_adapter_by_itself_is_fetched_without_its_model() {
    for weights in ["adapter_model.safetensors", "adapter_model.bin"] {
        let names = ["adapter_config.json", weights, "README.md"];
        let files = names.map(|name| (name.to_owned(), b"{}".to_vec()));
        let case = Case::new(Repository::model(files.into()));
        for hub in [case.online(), case.offline()] {
            let folder = hub.model(MODEL, None).expect("fetched");
            assert!(names[..2].iter().all(|name| folder.join(name).is_file()) && !folder.join(names[2]).exists());
        }
    }
}

#[test]
fn what_the_hub_does_not_have_is_named() {
    let place = Place::default();
    let mut files = bundled_files();
    files.remove("model.safetensors");
    let server = Server::new(Repository::model(files));
    for (model, offline, culprit) in
        [(MODEL, false, "model.safetensors"), ("someone/else", false, "someone/else"), (MODEL, true, "HF_HUB_OFFLINE")]
    {
        eval(&place, &server.address, offline, model).assert_refusal(&[culprit]);
    }
}

/// A Parquet file of pairs.
fn parquet(pairs: &[(&str, &str)]) -> Vec<u8> {
    let schema = "message pairs { required binary source (UTF8); required binary target (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).expect("a file");
    let mut group = file.next_row_group().expect("a row group");
    for side in [|pair: &(&str, &str)| ByteArray::from(pair.0), |pair: &(&str, &str)| ByteArray::from(pair.1)] {
        let mut column = group.next_column().expect("a column").expect("two columns");
        let values: Vec<_> = pairs.iter().map(side).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).expect("written");
        column.close().expect("closed");
    }
    group.close().expect("closed");
    file.into_inner().expect("finished")
}

/// A hub with a cache of its own, and the dataset that it serves.
struct Case {
    home: tempfile::TempDir,
    server: Server,
}

impl Case {
    fn new(repository: Repository) -> Self {
        Self { home: tempfile::tempdir().expect("a directory"), server: Server::new(repository) }
    }

    fn online(&self) -> Hub {
        Hub {
            cache: self.home.path().join("hub"),
            endpoint: Some(self.server.address.clone()),
            offline: false,
            token: None,
            attempts: Hub::ATTEMPTS,
        }
    }

    fn offline(&self) -> Hub {
        Hub { endpoint: Some("http://127.0.0.1:9".into()), offline: true, ..self.online() }
    }
}

fn read(files: Vec<PathBuf>) -> Result<Vec<PairRecord>, RecordsError> {
    PairRecord::read(&RecordsConfig { path: Paths::from(files), ..Default::default() })
}

/// The sources of the pairs of a split.
fn sources(hub: &Hub, config: Option<&str>, split: &str, revision: Option<&str>) -> Result<String, String> {
    let files = hub.dataset(DATASET, config, split, revision).map_err(|e| e.to_string())?;
    let pairs = read(files).map_err(|e| e.to_string())?;
    Ok(pairs.iter().map(|pair| pair.source.as_str()).collect::<Vec<_>>().join(" "))
}

/// Two shards of training data, and a test set.
fn converted() -> Repository {
    let files = [
        ("default/train/0001.parquet", parquet(&[("three", "drei")])),
        ("default/train/0000.parquet", parquet(&[("one", "eins"), ("two", "zwei")])),
        ("default/test/0000.parquet", parquet(&[("four", "vier")])),
        (".gitattributes", b"*.parquet".to_vec()),
    ];
    Repository::dataset(CONVERSION, files)
}

#[test]
fn a_dataset_is_fetched_once_and_then_read_offline() {
    let case = Case::new(converted());
    let train = |hub: Hub| sources(&hub, None, "train", None);
    assert!(train(case.offline()).unwrap_err().contains("HF_HUB_OFFLINE is set and nothing of it is in the cache"));
    assert_eq!(train(case.online()).as_deref(), Ok("one two three"));
    assert_eq!(case.server.asked(), ["default/train/0000.parquet", "default/train/0001.parquet"]);
    assert_eq!(train(case.online()).as_deref(), Ok("one two three"));
    assert_eq!(train(case.offline()).as_deref(), Ok("one two three"));
    assert!(case.server.asked().is_empty(), "everything was in the cache");
    let files = case.offline().dataset(DATASET, Some("default"), "train", None).expect("cached");
    let origin = read(files).expect("pairs")[2].origin.to_string();
    assert!(origin.ends_with("default/train/0001.parquet row 1"), "{origin}");
    // The environment names the same cache.
    assert!(case.home.path().join("hub/datasets--someone--pairs/refs/refs/convert/parquet").is_file());
}

#[test]
fn a_branch_that_moved_is_fetched_anew() {
    let mut case = Case::new(converted());
    assert_eq!(sources(&case.online(), None, "train", None).as_deref(), Ok("one two three"));
    let files = [
        ("default/train/0000.parquet", parquet(&[("one", "un")])),
        ("default/train/0001.parquet", parquet(&[("four", "quatre")])),
    ];
    let commit = COMMIT.replace("0123", "4567");
    case.server = Server::new(Repository { commit, ..Repository::dataset(CONVERSION, files) });
    assert_eq!(sources(&case.online(), None, "train", None).as_deref(), Ok("one four"));
    assert_eq!(sources(&case.offline(), None, "train", None).as_deref(), Ok("one four"));
}

#[test]
fn a_fetch_that_was_broken_off_is_noticed_and_taken_up_again() {
    let mut case = Case::new(converted());
    assert_eq!(sources(&case.online(), None, "test", None).as_deref(), Ok("four"));
    case.server = Server::new(Repository { withheld: Some("default/train/0000.parquet"), ..converted() });
    let error = sources(&case.online(), None, "train", None).unwrap_err();
    assert!(error.starts_with("cannot fetch `default/train/0000.parquet` of the dataset `someone/pairs`"), "{error}");
    let error = sources(&case.offline(), None, "train", None).unwrap_err();
    assert!(error.contains("does not have each shard of split `train` once"), "{error}");
    assert_eq!(sources(&case.offline(), None, "test", None).as_deref(), Ok("four"));
    case.server = Server::new(converted());
    assert_eq!(sources(&case.online(), None, "train", None).as_deref(), Ok("one two three"));
    assert_eq!(case.server.asked(), ["default/train/0000.parquet"]);
}

#[test]
fn a_revision_has_the_files_of_the_repository() {
    let files = [
        ("data/train-00000-of-00002.parquet", parquet(&[("one", "eins")])),
        ("data/train-00001-of-00002.parquet", parquet(&[("two", "zwei")])),
        ("data/test-00000-of-00001.parquet", parquet(&[("three", "drei")])),
        ("README.md", b"# Pairs".to_vec()),
    ];
    let case = Case::new(Repository::dataset("v1.0", files));
    for hub in [case.online(), case.offline()] {
        assert_eq!(sources(&hub, None, "train", Some("v1.0")).as_deref(), Ok("one two"));
        assert_eq!(sources(&hub, Some("data"), "test", Some("v1.0")).as_deref(), Ok("three"));
    }
    let error = sources(&case.online(), None, "train", None).unwrap_err();
    assert!(error.contains("the list of files at refs/convert/parquet") && error.contains("such as main"), "{error}");
}

#[test]
fn what_a_dataset_does_not_have_is_named() {
    let case = Case::new(converted());
    let fails = |hub: Hub, config, split| sources(&hub, config, split, None).unwrap_err();
    assert_eq!(
        fails(case.online(), None, "dev"),
        "the dataset `someone/pairs` at revision `refs/convert/parquet` has no split `dev` in config `default`: give one \
         of test, train"
    );
    assert!(fails(case.online(), Some("de"), "train").contains("has no config `de`: give one of default"));
    sources(&case.online(), None, "test", None).expect("a test set");
    let offline = fails(case.offline(), None, "train");
    assert!(offline.contains("give one of test (HF_HUB_OFFLINE is set"), "{offline}");
    let error = case.online().dataset("someone/else", None, "train", None).unwrap_err().to_string();
    assert!(error.contains("of the dataset `someone/else` from the hub") && error.contains("404"), "{error}");
}

#[test]
fn a_file_that_is_no_parquet_is_named() {
    let case = Case::new(Repository::dataset(CONVERSION, [("de/train/0000.parquet", b"not found".to_vec())]));
    let error = sources(&case.online(), None, "train", None).unwrap_err();
    assert!(error.contains("de/train/0000.parquet: cannot be read: "), "{error}");
}

#[test]
fn a_task_of_text_names_its_dataset() {
    let (place, server) = (Place::default(), Server::new(converted()));
    let yaml = |split: &str| {
        format!(
            "run: {{name: turn, dir: runs}}
device: cpu
model: {{backbone: bert, path: {bert}}}
data: {{batch_size: 2, workers: 1}}
tasks:
  - name: turn
    head: {{type: seq2seq, layers: 1, heads: 2, ffn: 8, max_source: 16, max_target: 8}}
    lora: {{r: 1, target_modules: [query]}}
    data: {{train: {{hub: {DATASET}, split: train}}, valid: {{hub: {DATASET}, split: {split}}}}}
train: {{max_steps: 2, optimizer: {{warmup_steps: 1}}}}
",
            bert = undertone_tests::reference::fixture("text/bert").display(),
        )
    };
    let train = |split: &str| {
        place.write("turn.yaml", yaml(split));
        let train = ["train", "--phase", "1", "--config", "turn.yaml"];
        Outcome::of(&mut on_hub(&place, &server.address, false, &train))
    };
    train("tset").assert_refusal(&["task `turn`", DATASET, "tset", "test"]);
    assert!(!place.path("runs").exists(), "nothing is touched");
    train("test").succeeded();
}
