//! The hub on loopback, in good and in bad moods.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub const MODEL: &str = "someone/nano";
pub const DATASET: &str = "someone/pairs";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository of the hub.
pub struct Repository {
    /// `NAME` of a model, `datasets/NAME` of a dataset.
    pub name: String,
    /// A branch, as URLs have it.
    pub revision: &'static str,
    pub commit: String,
    pub files: BTreeMap<String, Vec<u8>>,
    /// A file that is listed and not given.
    pub withheld: Option<&'static str>,
}

impl Repository {
    pub fn model(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self { name: MODEL.into(), revision: "main", commit: COMMIT.into(), files, withheld: None }
    }

    pub fn dataset(revision: &'static str, files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        Self { name: format!("datasets/{DATASET}"), revision, commit: COMMIT.into(), files, withheld: None }
    }

    /// What a path is answered with.
    fn get(&self, path: &str) -> Option<Vec<u8>> {
        let listed =
            if self.name.starts_with("datasets/") { self.name.clone() } else { format!("models/{}", self.name) };
        if path == format!("/api/{listed}/revision/{}", self.revision) {
            let siblings: Vec<_> = self.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
            return Some(serde_json::json!({"siblings": siblings, "sha": self.commit}).to_string().into_bytes());
        }
        let (revision, file) = path.strip_prefix(&format!("/{}/resolve/", self.name))?.split_once('/')?;
        let known = (revision == self.revision || revision == self.commit) && self.withheld != Some(file);
        self.files.get(file).filter(|_| known).cloned()
    }
}

/// What a server does beside answering.
#[derive(Clone, Default)]
pub struct Mood {
    /// Files are to be had at this address alone, before their path.
    pub redirect: Option<String>,
    /// So many requests are answered with 503.
    pub unavailable: usize,
    /// The seconds for which such an answer asks to wait.
    pub retry_after: Option<u64>,
    /// The next answer with more bytes than that is broken off after them.
    pub broken_after: Option<usize>,
    /// Without this token nothing is given.
    pub token: Option<&'static str>,
    /// Parts of files are not given, only all of them.
    pub whole: bool,
    /// What large files are called, in place of a name of the server's own.
    pub etag: Option<String>,
}

/// A request, and how it was answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub path: String,
    /// First and last byte.
    pub range: Option<(usize, Option<usize>)>,
    /// What says who asks.
    pub authorization: Option<String>,
    pub status: u16,
    /// Bytes of the body that were sent.
    pub sent: usize,
}

/// The hub on loopback.
pub struct Server {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    repository: Mutex<Repository>,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<Request>>,
}

impl Server {
    pub fn new(repository: Repository) -> Self {
        Self::with(repository, Mood::default())
    }

    pub fn with(repository: Repository, mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let (repository, mood) = (Mutex::new(repository), Mutex::new(mood));
        let shared = Arc::new(Shared { repository, mood, requests: Mutex::default() });
        let here = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = here.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *self.shared.requests.lock().expect("not poisoned"))
    }

    /// The names of the files that were asked for since the last call.
    pub fn asked(&self) -> Vec<String> {
        let paths: BTreeSet<_> = self.requests().into_iter().map(|request| request.path).collect();
        paths.into_iter().filter_map(|path| Some(path.split_once(&format!("{COMMIT}/"))?.1.to_owned())).collect()
    }

    /// The bytes of all bodies since the last call.
    pub fn sent(&self) -> usize {
        self.requests().iter().map(|request| request.sent).sum()
    }

    pub fn set_mood(&self, mood: Mood) {
        *self.shared.mood.lock().expect("not poisoned") = mood;
    }

    pub fn change(&self, change: impl FnOnce(&mut Repository)) {
        change(&mut self.shared.repository.lock().expect("not poisoned"));
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) {
    let request = heard(&stream);
    let (head, body, cut) = answered(&request, shared);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    // Before the answer, so that whoever has it finds the request noted.
    shared.requests.lock().expect("not poisoned").push(Request { status, sent: cut, ..request });
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..cut]));
}

/// What is asked for.
fn heard(stream: &TcpStream) -> Request {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let mut request = Request { path: first.split(' ').nth(1).unwrap_or_default().to_owned(), ..Request::default() };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").expect("a header");
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (start, end) = value.strip_prefix("bytes=").and_then(|v| v.split_once('-')).expect("a range");
                request.range = Some((start.parse().expect("a start"), end.parse().ok()));
            }
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    request
}

/// Head and body of the answer, and how much of the body is sent.
fn answered(request: &Request, shared: &Shared) -> (String, Vec<u8>, usize) {
    let mut mood = shared.mood.lock().expect("not poisoned");
    let repository = shared.repository.lock().expect("not poisoned");
    let bare = |status: &str, more: &str| {
        (format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n"), Vec::new(), 0)
    };
    if mood.unavailable > 0 {
        mood.unavailable -= 1;
        let wait = mood.retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n"));
        return bare("503 Service Unavailable", &wait.unwrap_or_default());
    }
    if let Some(token) = mood.token
        && request.authorization != Some(format!("Bearer {token}"))
    {
        return bare(if request.authorization.is_some() { "403 Forbidden" } else { "401 Unauthorized" }, "");
    }
    // Below `/cdn` lies what a hub of this kind redirects to.
    let Some(body) = repository.get(request.path.strip_prefix("/cdn").unwrap_or(&request.path)) else {
        return bare("404 Not Found", "");
    };
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let own = format!("{:016x}", hasher.finish());
    let etag = mood.etag.clone().unwrap_or_else(|| own.clone());
    if let Some(elsewhere) = &mood.redirect
        && request.path.contains("/resolve/")
        && !request.path.starts_with("/cdn")
    {
        let more =
            format!("Location: {elsewhere}{}\r\nX-Linked-Etag: \"{etag}\"\r\nETag: \"pointer\"\r\n", request.path);
        return bare("302 Found", &more);
    }
    let total = body.len();
    let range = request.range.filter(|_| !mood.whole);
    let (start, end) = range.map_or((0, total), |(s, e)| (s, e.map_or(total, |e| (e + 1).min(total))));
    let status = match range {
        Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}", end - 1),
        None => "200 OK".to_owned(),
    };
    let length = end - start;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {}\r\nConnection: close\r\n\r\n",
        repository.commit,
    );
    let cut = mood.broken_after.filter(|after| *after < length);
    if cut.is_some() {
        mood.broken_after = None;
    }
    (head, body[start..end].to_vec(), cut.unwrap_or(length))
}
