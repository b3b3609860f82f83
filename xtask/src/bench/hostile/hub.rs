//! A hub that answers what a case says, and the ground around the cache of those who ask it.

use crate::bench::snapshot::Snapshot;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use undertone::hub::Hub;

/// What a hub answers, whole with its head: to those who ask what a repository has, and to those who want a file of it.
pub const LISTING: &str = "listing.http";
pub const FILE: &str = "file.http";

/// The line of a head that has its body said again and again, for as long as somebody listens.
pub const ENDLESS: &str = "Endless: yes\r\n";

/// Where no name of a case may lead: mutations name it.
pub const ELSEWHERE: &str = "/tmp/undertone-hostile-elsewhere";

/// Asks for a model and a dataset as training does; what is not in the cache must be as it was.
///
/// # Panics
/// When something outside of the cache has changed.
pub fn ask(dir: &Path) -> std::result::Result<(), String> {
    let said = |e: &dyn std::fmt::Display| e.to_string();
    let ground = Ground::prepare(dir).map_err(|e| said(&e))?;
    let server = Server::start(dir).map_err(|e| said(&e))?;
    let (endpoint, cache) = (Some(format!("http://{}", server.address)), ground.cache.clone());
    let hub = Hub { cache, endpoint, offline: false, token: None, attempts: 1 };
    let model = hub.model("a/b", None).map(drop);
    let dataset = hub.dataset("a/b", None, "train", Some("main")).map(drop);
    let streamed = hub.stream("a/b", None, "train", Some("main")).map(|files| {
        for file in files {
            let _ = (file.read(0, 16), file.read(file.size().saturating_sub(8), 8));
        }
    });
    let offline = Hub { offline: true, ..hub.clone() };
    let _ = (offline.model("a/b", None), offline.dataset("a/b", None, "train", Some("main")));
    drop(server);
    ground.assert_untouched();
    model.or(dataset).or(streamed).map_err(|e| said(&e))
}

/// Folders in folders with files in them, and the cache in the innermost.
struct Ground {
    cache: PathBuf,
    around: Snapshot,
}

impl Ground {
    fn prepare(dir: &Path) -> Result<Self> {
        let mut folder = dir.join("ground");
        for name in ["a", "b", "c", "d", "e"] {
            folder.push(name);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("config.json"), "somebody else's")?;
        }
        let cache = folder.join("cache");
        let around = Snapshot::of(vec![dir.to_owned()], Some(cache.clone()));
        Ok(Self { cache, around })
    }

    fn assert_untouched(&self) {
        if let Some(path) = self.around.changed() {
            panic!("outside of the cache `{}` has changed", path.display());
        }
        assert!(std::fs::symlink_metadata(ELSEWHERE).is_err(), "`{ELSEWHERE}` was made");
    }
}

/// The hub, for as long as the value lives.
struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(dir: &Path) -> Result<Self> {
        let answers = [std::fs::read(dir.join(LISTING))?, std::fs::read(dir.join(FILE))?];
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, over) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever has heard enough hangs up.
                let _ = answer(stream, &answers);
            }
        });
        Ok(Self { address, over, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // It waits for whoever comes next.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream, [listing, file]: &[Vec<u8>; 2]) -> Result<()> {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let answer = if first.starts_with("GET /api/") { listing } else { file };
    stream.write_all(answer)?;
    let body = body(answer).filter(|body| !body.is_empty() && is_endless(answer));
    let Some(body) = body else { return Ok(()) };
    // In large pieces: what is said again may be one byte.
    let again = body.repeat(1 + (64 << 10) / body.len());
    loop {
        stream.write_all(&again)?;
    }
}

fn is_endless(answer: &[u8]) -> bool {
    answer.windows(ENDLESS.len()).any(|part| part == ENDLESS.as_bytes())
}

/// What stands behind an answer's head.
pub fn body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n")?;
    answer.get(end + 4..)
}
