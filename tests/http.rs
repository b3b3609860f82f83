//! A small HTTP client, for tests of `serve`: it sends exactly the bytes that it is given.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Head, with the status line.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the message of an error.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("no message: {self:?}")).to_owned()
    }
}

/// Program that serves an address: `undertone serve` or a browser's driver. It ends with the value.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    /// Host and port.
    pub authority: String,
    /// What was printed up to the address, and the rest of that line.
    pub said: String,
}

impl Serving {
    /// Starts a program, and waits until one of the lines that it prints has `before` and an address after it.
    pub fn start(command: &mut Command, before: &str) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
        let mut this = Self { child, authority: String::new(), said: String::new() };
        let output: Box<dyn Read> = match before.starts_with("http") {
            true => Box::new(this.child.stderr.take().expect("standard error")),
            false => Box::new(this.child.stdout.take().expect("standard output")),
        };
        let mut output = BufReader::new(output);
        while output.read_line(&mut this.said).expect("a line") > 0 {
            let Some((_, rest)) = this.said.rsplit_once(before) else { continue };
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !":.[]".contains(c)).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.').clone_into(&mut this.authority);
            return this;
        }
        panic!("the program ended: {}", this.said);
    }

    /// Sends a request, and reads the answer to its end.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.authority).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.authority);
        }
        head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
        // A server that refuses a request may close the connection before all of it was sent.
        let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
        read(stream)
    }

    /// Asks for a page or an object.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], &[])
    }

    /// Sends a form with a recording named `name` and other fields.
    pub fn form(&self, path: &str, name: &str, recording: &[u8], fields: &[(&str, &str)]) -> Answer {
        let (kind, body) = form(name, recording, fields);
        self.send("POST", path, &[("Content-Type", &kind)], &body)
    }

    /// Returns the process.
    pub fn process(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the type and the bytes of a form.
pub fn form(name: &str, recording: &[u8], fields: &[(&str, &str)]) -> (String, Vec<u8>) {
    const BOUNDARY: &str = "between-the-parts";
    let mut body = Vec::new();
    for (field, value) in fields {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n");
        body.extend(head.into_bytes());
    }
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    body.extend(head.into_bytes());
    body.extend(recording);
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}

/// Reads an answer to the end of the connection.
pub fn read(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut part = [0; 1 << 16];
    // What came before a connection was reset counts. Some servers leave it open after the answer.
    while let Ok(count @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        if is_whole(&bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body =
        if head.to_lowercase().contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

/// Whether an answer is there up to the length that it gives.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| bytes.len() >= end + 4 + length)
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        if size == 0 {
            break;
        }
        whole += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Browser that a test steers through chromedriver (W3C WebDriver).
#[derive(Debug)]
pub struct Browser {
    driver: Serving,
    session: String,
}

impl Browser {
    /// Starts one; `None` if this machine has none. Its profile is in `place`.
    pub fn start(place: &Path) -> Option<Self> {
        let is_there =
            |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
        if !(is_there("chromedriver") && is_there("chromium")) {
            return None;
        }
        let driver = Serving::start(Command::new("chromedriver").arg("--port=0"), "started successfully on port ");
        let driver = Self::on_this_machine(driver);
        let profile = format!("--user-data-dir={}", place.join("profile").display());
        let switches = [
            "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--window-size=1100,900", &profile,
        ];
        let wanted = serde_json::json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": switches}
        }}});
        let answer = driver.send("POST", "/session", &[], wanted.to_string().as_bytes());
        let session = answer.json()["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
        Some(Self { driver, session })
    }

    fn on_this_machine(mut driver: Serving) -> Serving {
        driver.authority = format!("127.0.0.1:{}", driver.authority);
        driver
    }

    /// Sends a command, and returns its value.
    pub fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = self.driver.send(method, &path, &[("Content-Type", "application/json")], body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["value"].clone()
    }

    /// Opens an address.
    pub fn open(&self, address: &str) {
        self.command("POST", "url", &serde_json::json!({"url": address}));
    }

    /// Runs a script, and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("POST", "execute/sync", &serde_json::json!({"script": script, "args": []}))
    }

    /// Types into an element, or gives a file to an input for files.
    pub fn type_into(&self, selector: &str, text: &str) {
        let found = self.command("POST", "element", &serde_json::json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str).expect("an element");
        self.command("POST", &format!("element/{id}/value"), &serde_json::json!({"text": text}));
    }

    /// Returns the picture of the page, PNG in base64.
    pub fn screenshot(&self) -> String {
        self.command("GET", "screenshot", &Value::Null).as_str().expect("a picture").to_owned()
    }

    /// Waits until a script returns true.
    pub fn wait_until(&self, script: &str) {
        let done = || self.run(script) == Value::Bool(true);
        for _ in 0..600 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not in a minute: {script}; the page says {:?}", self.run("return document.body.innerText"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.send("DELETE", &format!("/session/{}", self.session), &[], &[]);
    }
}
