//! A hub that is not one, or is somebody else's: what it says leads nowhere and takes no more than its share.

use super::server::{COMMIT, DATASET, MODEL};
use super::{CONFIG, on_hub};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use undertone::hub::Hub;
use undertone_tests::runs::send;
use undertone_tests::{Outcome, Place};

/// A hub that answers each request for a path with what `answer` writes.
fn hub_that(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            answer(first.split(' ').nth(1).unwrap_or_default(), &mut stream);
        }
    });
    address
}

/// A whole answer.
fn give(stream: &mut TcpStream, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n", body.len());
    // Whoever has heard enough hangs up.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn listing(sha: &str, files: &[&str]) -> Vec<u8> {
    let siblings: Vec<_> = files.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
    serde_json::json!({ "sha": sha, "siblings": siblings }).to_string().into_bytes()
}

/// A cache in a folder with things around it, and what is in there.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("a/b/c/cache")).expect("made");
        std::fs::write(dir.path().join("a/b/precious.txt"), "as it was").expect("written");
        Self(dir)
    }

    fn hub(&self, endpoint: String) -> Hub {
        Hub {
            cache: self.0.path().join("a/b/c/cache"),
            endpoint: Some(endpoint),
            offline: false,
            token: None,
            attempts: 1,
        }
    }

    /// Everything outside of the cache.
    fn outside(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.0.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).expect("listed") {
                let path = entry.expect("an entry").path();
                if path.ends_with("a/b/c/cache") {
                    continue;
                }
                found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        found
    }
}

#[test]
fn no_name_that_a_hub_gives_leads_out_of_the_cache() {
    let listings = [
        (
            listing("../../../../../outside", &["config.json", "model.safetensors"]),
            "an invalid name of a commit: \"../../../../../outside\"",
        ),
        (listing("/tmp/outside", &["config.json", "model.safetensors"]), "an invalid name of a commit"),
        (listing("main", &["config.json", "model.safetensors"]), "an invalid name of a commit"),
        (listing("", &["config.json"]), "an invalid name of a commit"),
        (listing(COMMIT, &["config.json", "../../../../outside.safetensors"]), "an invalid name of a file"),
        (listing(COMMIT, &["/tmp/outside.safetensors"]), "an invalid name of a file"),
        (listing(COMMIT, &["..\\outside.safetensors"]), "an invalid name of a file"),
        (listing(COMMIT, &["a//b.safetensors"]), "an invalid name of a file"),
        (listing(COMMIT, &["a\0b.safetensors"]), "an invalid name of a file"),
    ];
    for (listing, said) in listings {
        let ground = Ground::new();
        let before = ground.outside();
        let hub = ground.hub(hub_that(move |path, stream| match path.starts_with("/api/") {
            true => give(stream, "", &listing),
            false => give(stream, "ETag: \"0123\"\r\n", b"{}"),
        }));
        let error = hub.model(MODEL, None).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let error = hub.dataset(DATASET, None, "train", Some("main")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(ground.outside() == before);
    }
}

#[test]
fn no_content_is_called_what_leads_out_of_the_cache() {
    for etag in ["..", "../outside", "/tmp/outside", "a.lock", "a.part", &"a".repeat(5000)] {
        let ground = Ground::new();
        let before = ground.outside();
        let etag = format!("ETag: \"{etag}\"\r\n");
        let hub = ground.hub(hub_that(move |path, stream| match path.starts_with("/api/") {
            true => give(stream, "", &listing(COMMIT, &["config.json", "model.safetensors"])),
            false => give(stream, &etag, b"{}"),
        }));
        let error = hub.model(MODEL, None).unwrap_err().to_string();
        assert!(error.contains("cannot be the name of a file's content"), "{error}");
        assert!(ground.outside() == before);
    }
}

#[test]
fn no_name_that_a_configuration_gives_leads_out_of_the_cache() {
    let ground = Ground::new();
    let before = ground.outside();
    let address = hub_that(|_, stream| give(stream, "ETag: \"0123\"\r\n", &listing(COMMIT, &["config.json"])));
    for offline in [false, true] {
        let hub = Hub { offline, ..ground.hub(address.clone()) };
        for name in ["../../outside", "a/b/c", "/tmp/outside", ""] {
            let error = hub.model(name, None).unwrap_err().to_string();
            assert!(error.contains("is not a repository name"), "{error}");
        }
        for revision in ["../../../outside", "/tmp/outside", "a//b", ".."] {
            let error = hub.model(MODEL, Some(revision)).unwrap_err().to_string();
            assert!(error.contains("is not a branch, tag or commit"), "{error}");
            let error = hub.dataset(DATASET, None, "train", Some(revision)).unwrap_err().to_string();
            assert!(error.contains("is not a branch, tag or commit"), "{error}");
        }
    }
    assert!(ground.outside() == before);
}

#[test]
fn a_list_that_does_not_end_is_not_read_to_its_end() {
    let ground = Ground::new();
    let hub = ground.hub(hub_that(|_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{{\"sha\": \"{COMMIT}\", \"siblings\": [");
        let entries = r#"{"rfilename": "a"},"#.repeat(1000);
        let mut written = stream.write_all(head.as_bytes());
        while written.is_ok() {
            written = stream.write_all(entries.as_bytes());
        }
    }));
    let error = hub.model(MODEL, None).unwrap_err().to_string();
    assert!(error.contains("more than 67 MB"), "{error}");
}

#[test]
fn a_file_of_another_length_than_was_said_is_refused_or_cut() {
    let ground = Ground::new();
    let hub = ground.hub(hub_that(|path, stream| match path {
        _ if path.starts_with("/api/") => give(stream, "", &listing(COMMIT, &["config.json", "model.safetensors"])),
        // What follows is no part of the answer.
        _ if path.ends_with("model.safetensors") => {
            give(stream, "ETag: \"0123\"\r\n", b"{}");
            let _ = stream.write_all(&[b'x'; 100_000]);
        }
        _ => {
            let range = "HTTP/1.1 206 Partial Content\r\nETag: \"4567\"\r\nConnection: close\r\n\
                         Content-Range: bytes 0-0/3\r\n\r\nhere is much more than three bytes";
            let _ = stream.write_all(range.as_bytes());
        }
    }));
    let error = hub.model(MODEL, None).unwrap_err().to_string();
    assert!(error.contains("`config.json`") && error.contains("the answer is longer than the file"), "{error}");
    let weights =
        ground.0.path().join(format!("a/b/c/cache/models--someone--nano/snapshots/{COMMIT}/model.safetensors"));
    assert_eq!(std::fs::read(weights).expect("fetched"), b"{}");
}

#[test]
fn an_interrupt_while_a_hub_hangs_ends_the_command_at_once() {
    let place = Place::default();
    let (sender, asked) = channel();
    let address = hub_that(move |_, _| {
        let _ = sender.send(());
        std::thread::sleep(Duration::from_secs(60));
    });
    let model = format!("model.source.hub={MODEL}");
    let settings = ["--set", "model.source.bundled=null", "--set", &model, "--set", "run.dir=runs"];
    let train = [&["train", "--config", CONFIG][..], &settings].concat();
    let child = on_hub(&place, &address, false, &train).spawn().expect("a process");
    asked.recv_timeout(Duration::from_secs(60)).expect("it asks the hub");
    let begun = Instant::now();
    send("-INT", &child);
    let outcome = Outcome::at_the_end(child);
    assert_eq!(outcome.status, Some(130), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    let said = &outcome.stderr;
    assert!(said.contains("interrupted before anything was trained") && !said.contains("a step"), "{said}");
}
