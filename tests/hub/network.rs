//! What happens between here and the hub.

use super::server::{DATASET, Mood, Repository, Server};
use super::{CONVERSION, Case, converted, parquet, sources};
use undertone::hub::{Hub, Token};

const TRAIN: &str = "default/train/0000.parquet";

fn train(hub: &Hub) -> Result<String, String> {
    sources(hub, None, "train", None)
}

/// A dataset of one file of 100 kB.
fn large() -> (Repository, Vec<u8>) {
    let text: String = (0..20_000).map(|number| format!("{number} ")).collect();
    let bytes = parquet(&[(&text, "x")]);
    assert!(bytes.len() > 20_000);
    (Repository::dataset(CONVERSION, [(TRAIN, bytes.clone())]), bytes)
}

#[test]
fn a_hub_that_is_busy_is_asked_again() {
    let case = Case::new(converted());
    case.server.set_mood(Mood { unavailable: 2, ..Mood::default() });
    assert_eq!(train(&case.online()).as_deref(), Ok("one two three"));
    let statuses: Vec<_> = case.server.requests().iter().map(|request| request.status).collect();
    assert_eq!(statuses[..3], [503, 503, 200]);
}

#[test]
fn a_download_that_breaks_goes_on_where_it_stopped() {
    let (repository, bytes) = large();
    let case = Case::new(repository);
    case.server.set_mood(Mood { broken_after: Some(10_000), ..Mood::default() });
    let files = case.online().dataset(DATASET, None, "train", None).expect("fetched");
    assert_eq!(std::fs::read(&files[0]).expect("a file"), bytes);
    let requests: Vec<_> = case.server.requests().into_iter().filter(|request| request.path.ends_with(TRAIN)).collect();
    let [asked, broken, rest] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((asked.range, broken.range, broken.sent), (Some((0, Some(0))), Some((0, None)), 10_000));
    let (start, _) = rest.range.expect("a range");
    assert!(start > 0 && start <= 10_000 && rest.sent == bytes.len() - start, "{rest:?}");
}

#[test]
fn a_download_that_an_earlier_process_began_is_finished() {
    let (repository, bytes) = large();
    let case = Case::new(repository);
    let file = |hub: Hub| hub.dataset(DATASET, None, "train", None).expect("fetched").remove(0);
    let pointer = file(case.online());
    let blob = std::fs::canonicalize(&pointer).expect("a blob");
    let part = blob.with_extension("part");
    for have in [0, 7000, bytes.len(), bytes.len() + 1] {
        let mut content = bytes.clone();
        content.resize(have, 0);
        std::fs::remove_file(&blob).expect("removed");
        std::fs::write(&part, content).expect("written");
        case.server.requests();
        assert_eq!(std::fs::read(file(case.online())).expect("a file"), bytes, "{have}");
        let sent: usize = case.server.requests().iter().filter(|r| r.path.ends_with(TRAIN)).map(|r| r.sent).sum();
        // One byte asks what the file is.
        assert_eq!(sent, 1 + bytes.len() - have % (bytes.len() + 1), "{have}");
        assert!(!part.exists());
    }
}

#[test]
fn a_server_that_gives_no_parts_does_not_spoil_a_download() {
    let (repository, bytes) = large();
    let case = Case::new(repository);
    case.server.set_mood(Mood { whole: true, ..Mood::default() });
    let files = case.online().dataset(DATASET, None, "train", None).expect("fetched");
    assert_eq!(std::fs::read(&files[0]).expect("a file"), bytes);
    let blob = std::fs::canonicalize(&files[0]).expect("a blob");
    std::fs::rename(&blob, blob.with_extension("part")).expect("renamed");
    std::fs::write(blob.with_extension("part"), &bytes[..5000]).expect("written");
    let again = case.online().dataset(DATASET, None, "train", None).expect("all of it");
    assert_eq!(std::fs::read(&again[0]).expect("a file"), bytes);
}

#[test]
fn what_comes_must_have_its_sha_256() {
    let (repository, bytes) = large();
    let case = Case::new(repository);
    case.server.set_mood(Mood { etag: Some("0".repeat(64)), ..Mood::default() });
    let error = case.online().dataset(DATASET, None, "train", None).unwrap_err().to_string();
    assert!(error.contains("SHA-256"), "{error}");
    use sha2::{Digest, Sha256};
    let etag = format!("{:x}", Sha256::digest(&bytes));
    case.server.set_mood(Mood { etag: Some(etag), ..Mood::default() });
    case.online().dataset(DATASET, None, "train", None).expect("fetched");
}

#[test]
fn a_token_goes_to_the_hub_and_to_nobody_else() {
    let storage = Server::new(converted());
    let case = Case::new(converted());
    let redirect = Some(format!("{}/cdn", storage.address));
    case.server.set_mood(Mood { redirect, token: Some("hf_secret"), ..Mood::default() });
    let hub = Hub { token: Token::new("hf_secret\n"), ..case.online() };
    assert!(!format!("{hub:?}").contains("secret"));
    assert_eq!(train(&hub).as_deref(), Ok("one two three"));
    let (here, there) = (case.server.requests(), storage.requests());
    assert!(here.iter().all(|request| request.authorization.as_deref() == Some("Bearer hf_secret")), "{here:?}");
    assert!(there.len() >= 4 && there.iter().all(|request| request.authorization.is_none()), "{there:?}");
    assert!(here.iter().filter(|request| request.path.contains("/resolve/")).all(|request| request.status == 302));
}

#[test]
fn a_redirection_within_the_hub_is_followed() {
    let case = Case::new(converted());
    case.server.set_mood(Mood { redirect: Some("/cdn".into()), ..Mood::default() });
    assert_eq!(train(&case.online()).as_deref(), Ok("one two three"));
    assert_eq!(train(&case.offline()).as_deref(), Ok("one two three"));
    case.server.set_mood(Mood { redirect: Some("".into()), ..Mood::default() });
    let error = sources(&case.online(), None, "test", None).unwrap_err();
    assert!(error.contains("in a circle"), "{error}");
}

#[test]
fn a_gated_dataset_says_what_to_do() {
    let case = Case::new(converted());
    case.server.set_mood(Mood { token: Some("hf_good"), ..Mood::default() });
    let error = train(&case.online()).unwrap_err();
    assert!(["`someone/pairs`", "401", "gated", "HF_TOKEN"].iter().all(|part| error.contains(part)), "{error}");
    let error = train(&Hub { token: Token::new("hf_bad"), ..case.online() }).unwrap_err();
    assert!(["403", "may not read it"].iter().all(|part| error.contains(part)), "{error}");
    assert!(!error.contains("hf_bad"), "{error}");
    assert_eq!(train(&Hub { token: Token::new("hf_good"), ..case.online() }).as_deref(), Ok("one two three"));
}

#[test]
fn a_commit_is_a_revision_too() {
    let commit = super::COMMIT;
    let case = Case::new(Repository {
        revision: commit,
        ..Repository::dataset("main", [("train.parquet", parquet(&[("a", "b")]))])
    });
    for hub in [case.online(), case.offline()] {
        assert_eq!(sources(&hub, None, "train", Some(commit)).as_deref(), Ok("a"));
    }
}
