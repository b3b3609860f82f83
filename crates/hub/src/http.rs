use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::{self, Read};
use std::time::{Duration, Instant};
use ureq::http::uri::InvalidUri;
use ureq::http::{HeaderMap, StatusCode, Uri, header};
use ureq::{Agent, Body};

/// HTTP client of the Hub: follows redirects, sends the token to the Hub itself and to no other host, and retries
/// requests that fail temporarily.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    /// Address without a slash at its end.
    endpoint: Uri,
    token: Option<Token>,
    attempts: u32,
}

/// A user's token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a token from the text that Hugging Face's site gave the user; none if that is empty.
    pub fn new(token: &str) -> Option<Self> {
        Some(token.trim()).filter(|token| !token.is_empty()).map(|token| Self(token.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Properties of a file, known before any of it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    /// Size in bytes.
    pub size: u64,
    /// Name of its content: the SHA-256 of large files.
    pub etag: String,
}

/// A response that is not a redirect.
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// Name of the content as given by the Hub itself; the target of a redirect may use another.
    etag: Option<String>,
    /// Final address of the response.
    pub from: Uri,
    body: Body,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0} does not give parts of files")]
    NoParts(String),
    #[error("{host} answered {status}{}", way_out(*.status, *.with_token))]
    Status { host: String, status: StatusCode, with_token: bool, retry_after: Option<Duration> },
    #[error("{host}: {error}")]
    Transport { host: String, error: Box<ureq::Error> },
    #[error("the connection was interrupted: {0}")]
    Broken(io::Error),
    #[error("{0}")]
    Unfit(String),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// Maximum size of a response that is not a file, in bytes, and its maximum time: the list of a repository with 100,000
/// files has 10 MB.
const LONGEST_ANSWER: u64 = 64 << 20;
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Maximum length of a content's name. It becomes the name of a file.
const LONGEST_ETAG: usize = 200;

/// Characters that are escaped in a part of an address: all except RFC 3986's unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const MAX_REDIRECTS: usize = 10;

/// Wait after the first attempt; it doubles after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Maximum wait that the Hub may ask for: its rate limits are per five minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

impl Client {
    /// # Errors
    /// If the endpoint is not an address.
    pub fn new(endpoint: &str, token: Option<Token>, attempts: u32) -> Result<Self, HttpError> {
        let unfit = |reason: String| HttpError::Unfit(format!("HF_ENDPOINT is `{endpoint}`: {reason}"));
        let address: Uri = endpoint.parse().map_err(|e: InvalidUri| unfit(e.to_string()))?;
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            return Err(unfit("it must begin with https:// or http://".into()));
        }
        let second = |seconds| Some(Duration::from_secs(seconds));
        let agent = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(second(10))
            .timeout_recv_response(second(60))
            .timeout_per_read(second(60))
            .user_agent(concat!("undertone/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { agent: agent.into(), endpoint: address, token, attempts })
    }

    /// Returns an address on the Hub; each part is escaped.
    ///
    /// # Errors
    /// If the address would be too long.
    pub fn url<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> Result<Uri, HttpError> {
        let mut url = self.endpoint.to_string().trim_end_matches('/').to_owned();
        for part in parts {
            url.push('/');
            url.extend(utf8_percent_encode(part, ESCAPED));
        }
        url.parse().map_err(|e| HttpError::Unfit(format!("`{url}` is not an address: {e}")))
    }

    /// Returns the JSON at an address.
    ///
    /// # Errors
    /// If it cannot be fetched, is too long, or is not JSON of this type.
    pub fn json<T: serde::de::DeserializeOwned>(&self, url: &Uri) -> Result<T, HttpError> {
        self.retried(|| {
            let answer = self.get(url, None)?.expect(&[StatusCode::OK, StatusCode::PARTIAL_CONTENT], self)?;
            let bytes = whole(answer.body.into_reader())?;
            let unfit = |e| HttpError::Unfit(format!("the response is not the expected JSON: {e}"));
            serde_json::from_slice(&bytes).map_err(unfit)
        })
    }

    /// Returns the properties of a file.
    ///
    /// # Errors
    /// If they cannot be fetched.
    pub fn entity(&self, url: &Uri) -> Result<Entity, HttpError> {
        self.retried(|| {
            let of_nothing = StatusCode::RANGE_NOT_SATISFIABLE;
            let answered = self.get(url, Some("bytes=0-0"))?;
            let answer = answered.expect(&[StatusCode::PARTIAL_CONTENT, StatusCode::OK, of_nothing], self)?;
            let size = match answer.status {
                StatusCode::OK => {
                    answer.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
                }
                _ => answer.total(),
            };
            let lacks = |what: &str| HttpError::Unfit(format!("the answer does not say {what}"));
            let size = size.ok_or_else(|| lacks("how large the file is"))?;
            let etag = answer.etag.ok_or_else(|| lacks("what the content is called, as an ETag"))?;
            if !is_name_of_content(&etag) {
                return Err(HttpError::Unfit(format!("{etag:?} cannot be the name of a file's content")));
            }
            Ok(Entity { size, etag })
        })
    }

    /// Makes one attempt to fetch a file from `start` to `end`, or to its end.
    ///
    /// # Errors
    /// If it cannot be fetched, or is not the same file as before.
    pub fn part(
        &self,
        url: &Uri,
        entity: &Entity,
        start: u64,
        end: Option<u64>,
    ) -> Result<(impl Read + use<>, Uri), HttpError> {
        let last = end.map_or(String::new(), |end| (end - 1).to_string());
        let answer = self.get(url, Some(&format!("bytes={start}-{last}")))?;
        let answer = answer.expect(&[StatusCode::PARTIAL_CONTENT, StatusCode::OK], self)?;
        let whole = answer.status == StatusCode::OK;
        if whole && start > 0 {
            return Err(HttpError::NoParts(host(&answer.from)));
        }
        let fits = whole || (answer.total() == Some(entity.size) && answer.start() == Some(start));
        if !fits || answer.etag.as_ref().is_some_and(|etag| *etag != entity.etag) {
            return Err(HttpError::Unfit(
                "the file changed on the hub during the download; run the command again".into(),
            ));
        }
        Ok((answer.body.into_reader(), answer.from))
    }

    /// Repeats an attempt until it succeeds or fails permanently; reports waits.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn retried<T>(&self, mut attempt: impl FnMut() -> Result<T, HttpError>) -> Result<T, HttpError> {
        let mut wait = FIRST_WAIT;
        for _ in 1..self.attempts {
            match attempt() {
                Err(error) if error.is_passing() => {
                    let asked = match &error {
                        HttpError::Status { retry_after, .. } => *retry_after,
                        _ => None,
                    };
                    let pause = asked.unwrap_or(wait).min(LONGEST_WAIT);
                    tracing::warn!("{error}; trying again in {:.1} s", pause.as_secs_f64());
                    std::thread::sleep(pause);
                    wait = wait.saturating_mul(2);
                }
                other => return other,
            }
        }
        attempt()
    }

    fn get(&self, url: &Uri, range: Option<&str>) -> Result<Answer, HttpError> {
        let (mut at, mut etag) = (url.clone(), None);
        for _ in 0..=MAX_REDIRECTS {
            let is_hub = origin(&at) == origin(&self.endpoint);
            // Offsets count bytes of the file, so the response must not be compressed.
            let mut request = self.agent.get(&at).header(header::ACCEPT_ENCODING, "identity");
            if let Some(range) = range {
                request = request.header(header::RANGE, range);
            }
            if let Some(token) = self.token.as_ref().filter(|_| is_hub) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.0));
            }
            let transport = |error| HttpError::Transport { host: host(&at), error: Box::new(error) };
            let (parts, body) = request.call().map_err(transport)?.into_parts();
            if is_hub && etag.is_none() {
                etag = named(&parts.headers);
            }
            let moved = matches!(parts.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = parts.headers.get(header::LOCATION).filter(|_| moved).and_then(|v| v.to_str().ok());
            let Some(location) = location else {
                return Ok(Answer { status: parts.status, headers: parts.headers, etag, from: at, body });
            };
            let unfit = |e| HttpError::Unfit(format!("{} redirects to `{location}`: {e}", host(&at)));
            at = joined(&at, location).map_err(unfit)?;
        }
        Err(HttpError::Unfit(format!("{} redirects in a circle", host(url))))
    }
}

impl Answer {
    fn expect(self, wanted: &[StatusCode], client: &Client) -> Result<Self, HttpError> {
        if wanted.contains(&self.status) {
            return Ok(self);
        }
        let retry_after = self.headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        Err(HttpError::Status {
            host: host(&self.from),
            status: self.status,
            with_token: client.token.is_some(),
            retry_after: retry_after.map(Duration::from_secs),
        })
    }

    /// Returns the byte range of this part, and the file's size: `bytes 0-0/1234`.
    fn range(&self) -> Option<(&str, &str)> {
        self.headers.get(header::CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes")?.trim().split_once('/')
    }

    fn total(&self) -> Option<u64> {
        self.range()?.1.parse().ok()
    }

    fn start(&self) -> Option<u64> {
        self.range()?.0.split_once('-')?.0.parse().ok()
    }
}

impl HttpError {
    /// Returns whether the resource does not exist, according to the Hub.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Status { status: StatusCode::NOT_FOUND, .. })
    }

    /// Returns whether the failure may be temporary.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_server_error() || matches!(status.as_u16(), 408 | 429),
            Self::Transport { .. } | Self::Broken(_) => true,
            Self::NoParts(_) | Self::Unfit(_) | Self::Disk(_) => false,
        }
    }
}

/// Reads the whole of a response that is not a file.
fn whole(mut body: impl Read) -> Result<Vec<u8>, HttpError> {
    let (begun, mut bytes, mut part) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    loop {
        let count = body.read(&mut part).map_err(HttpError::Broken)?;
        bytes.extend(&part[..count]);
        if count == 0 {
            return Ok(bytes);
        }
        if bytes.len() as u64 > LONGEST_ANSWER {
            let reason =
                format!("the answer has more than {} MB, and no list of files has", LONGEST_ANSWER / 1_000_000);
            return Err(HttpError::Unfit(reason));
        }
        if begun.elapsed() > ANSWER_TIME {
            let reason = format!("the answer does not end within {} s; try again later", ANSWER_TIME.as_secs());
            return Err(HttpError::Unfit(reason));
        }
    }
}

/// Returns whether this is a valid name of a content: as a file name, also with `.lock` and `.part` appended.
fn is_name_of_content(etag: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_=+".contains(c);
    (1..=LONGEST_ETAG).contains(&etag.len()) && etag.chars().all(fits)
}

/// Returns the name of the content: for large files that of the content rather than of the pointer to it.
fn named(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-linked-etag").or_else(|| headers.get(header::ETAG))?.to_str().ok()?;
    Some(value.trim_start_matches("W/").trim_matches('"').to_owned())
}

/// Returns the origin of an address: a token is only sent to its own origin.
fn origin(url: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let scheme = url.scheme_str();
    let port = url.port_u16().or(match scheme {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    });
    (scheme, url.host().map(str::to_ascii_lowercase), port)
}

/// Resolves the target of a redirect, relative to an address.
fn joined(from: &Uri, to: &str) -> Result<Uri, InvalidUri> {
    let scheme = from.scheme_str().unwrap_or("https");
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    match to {
        _ if to.split_once("://").is_some_and(|(scheme, _)| !scheme.contains(['/', '?'])) => to.parse(),
        _ if to.starts_with("//") => format!("{scheme}:{to}").parse(),
        _ if to.starts_with('/') => format!("{scheme}://{authority}{to}").parse(),
        _ => format!("{scheme}://{authority}{folder}/{to}").parse(),
    }
}

fn host(url: &Uri) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}{port}", url.host().unwrap_or_default())
}

/// Returns a remedy for a resource that may not be read.
fn way_out(status: StatusCode, with_token: bool) -> &'static str {
    match (status.as_u16(), with_token) {
        (401 | 403, false) => {
            ", as it does where something is gated or private: accept its terms on its page, and set HF_TOKEN to a token \
             of yours"
        }
        (401 | 403, true) => {
            ", so the token in HF_TOKEN may not read it: accept its terms on its page with the token's account"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn a_redirection_leads_where_browsers_go() {
        let from = uri("https://hub.example:8443/a/b?c=d/e");
        for (to, expected) in [
            ("https://cdn.example/x?y=z", "https://cdn.example/x?y=z"),
            ("//cdn.example/x", "https://cdn.example/x"),
            ("/x/y?u=http://v", "https://hub.example:8443/x/y?u=http://v"),
            ("x", "https://hub.example:8443/a/x"),
        ] {
            assert_eq!(joined(&from, to).expect("an address"), uri(expected));
        }
    }

    #[test]
    fn an_answer_that_does_not_end_is_cut() {
        let error = whole(io::repeat(b'[')).expect_err("refused").to_string();
        assert!(error.contains("more than 67 MB"), "{error}");
        assert_eq!(whole(&b"[1]"[..]).expect("whole"), b"[1]");
    }

    #[test]
    fn a_content_has_the_name_of_a_file() {
        for fits in ["0123abcd", "W-1_x=+"] {
            assert!(is_name_of_content(fits), "{fits}");
        }
        for unfit in ["", ".", "..", "a/b", "a\\b", "a.lock", "a\0", "é", &"a".repeat(201)] {
            assert!(!is_name_of_content(unfit), "{unfit:?}");
        }
    }

    #[test]
    fn a_token_is_for_one_scheme_host_and_port() {
        let hub = uri("https://hub.example");
        assert_eq!(origin(&uri("https://HUB.example:443/x")), origin(&hub));
        for other in ["http://hub.example/x", "https://cdn.hub.example/x", "https://hub.example:8443/x"] {
            assert_ne!(origin(&uri(other)), origin(&hub), "{other}");
        }
    }

    #[test]
    fn parts_of_an_address_are_escaped() {
        let client = Client::new("http://127.0.0.1:9/mirror/", None, 1).expect("a client");
        let url = client.url(["datasets", "a", "refs/convert/parquet", "übung 1#2.parquet"]).expect("an address");
        let expected = "/mirror/datasets/a/refs%2Fconvert%2Fparquet/%C3%BCbung%201%232.parquet";
        assert_eq!(url.path(), expected);
        let error = Client::new("hub.example", None, 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("HF_ENDPOINT is `hub.example`"), "{error}");
    }
}
