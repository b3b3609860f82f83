//! A model from the hub: fetched from a server on loopback, then read from the cache alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

const MODEL: &str = "someone/nano";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn xtask() -> Command {
    let test = std::env::current_exe().expect("this test's path");
    Command::new(test.ancestors().nth(2).expect("the target folder").join("xtask"))
}

fn bundled_files() -> BTreeMap<String, Vec<u8>> {
    undertone::model::whisper::bundled("whisper-nano-cw").expect("a bundled model")
}

/// Serves the files of one model the way the hub does, and returns its address.
fn serve(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = files.clone();
            std::thread::spawn(move || answer(stream, &files));
        }
    });
    address
}

fn answer(mut stream: TcpStream, files: &BTreeMap<String, Vec<u8>>) {
    let mut lines = BufReader::new(stream.try_clone().expect("a reader")).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut range = None;
    for line in lines.take_while(|l| !l.is_empty()) {
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (start, end) = bytes.split_once('-').expect("a range");
            range = Some((start.parse::<usize>().expect("a start"), end.parse::<usize>().ok()));
        }
    }
    let listing = path == format!("/api/models/{MODEL}/revision/main");
    let body = if listing {
        let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
        Some(serde_json::json!({"siblings": siblings, "sha": COMMIT}).to_string().into_bytes())
    } else {
        path.strip_prefix(&format!("/{MODEL}/resolve/main/")).and_then(|name| files.get(name)).cloned()
    };
    let Some(body) = body else {
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    };
    let total = body.len();
    let (start, end) = range.map_or((0, total), |(s, e)| (s, e.map_or(total, |e| (e + 1).min(total))));
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{total}\r\n\
         ETag: \"{total}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n",
        end - start,
        end - 1,
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[start..end]));
}

fn eval(home: &Path, endpoint: &str, offline: bool, model: &str) -> Output {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/cw-contest.yaml");
    xtask()
        .args(["eval", "--config"])
        .arg(config)
        .args(["--set", "data.valid.samples=2", "--set", "model.source.bundled=null"])
        .args(["--set", &format!("model.source.hub={model}")])
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HUB_OFFLINE", if offline { "1" } else { "0" })
        .output()
        .expect("xtask runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_model_is_fetched_once_and_then_read_offline() {
    let home = tempfile::tempdir().expect("a directory");
    let endpoint = serve(bundled_files());
    let online = eval(home.path(), &endpoint, false, MODEL);
    assert!(online.status.success(), "{}", stderr(&online));
    let offline = eval(home.path(), "http://127.0.0.1:9", true, MODEL);
    assert!(offline.status.success(), "{}", stderr(&offline));
    assert_eq!(online.stdout, offline.stdout);
}

#[test]
fn what_the_hub_does_not_have_is_named() {
    let home = tempfile::tempdir().expect("a directory");
    let mut files = bundled_files();
    files.remove("model.safetensors");
    let endpoint = serve(files);
    let cases: [(&str, bool, PathBuf); 3] = [
        (MODEL, false, "model.safetensors".into()),
        ("someone/else", false, "someone/else".into()),
        (MODEL, true, "HF_HUB_OFFLINE".into()),
    ];
    for (model, offline, culprit) in cases {
        let output = eval(home.path(), &endpoint, offline, model);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains(&*culprit.to_string_lossy()), "{text:?} does not name {culprit:?}");
    }
}
