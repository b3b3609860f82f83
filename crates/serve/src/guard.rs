//! Who may ask: the page of this server, programs on this machine, and beyond it those that have the token.

use crate::error::ApiError;
use crate::rest::Rest;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};

/// Rules of access.
#[derive(Clone, Debug)]
pub struct Guard {
    address: SocketAddr,
    /// Hash of the token: comparing hashes takes the same time whatever a guess has in common with the token.
    token: Option<[u8; 32]>,
}

/// Scripts and styles from this server alone, so that no text of a recording is ever run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Guard {
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        Self { address, token: token.map(hash) }
    }

    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        let refused = |message: &str| Err(ApiError::new(StatusCode::FORBIDDEN, message));
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // A page elsewhere whose name was made to lead here (DNS rebinding) has its own name in the request.
        if self.address.ip().is_loopback() && !self.is_local(host) {
            return refused("this server answers on this machine alone: use the address that it printed");
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let own = origin.to_str().is_ok_and(|origin| origin.split_once("://").is_some_and(|(_, own)| own == host));
            if !own {
                return refused("pages of other servers may not ask this one");
            }
        }
        let needed = path.starts_with("/api/") || path.starts_with("/v1/");
        match self.token {
            Some(token) if needed && given(headers).is_none_or(|given| hash(given) != token) => Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: send `Authorization: Bearer TOKEN`, or open the address that was printed",
            )),
            _ => Ok(()),
        }
    }

    fn is_local(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

/// Middleware that refuses requests, and adds headers to the answers.
pub async fn guarded(State(guard): State<Guard>, request: Request<Body>, next: Next) -> Response {
    // A client that asks before it sends the body has sent nothing.
    let asks = request.headers().contains_key(header::EXPECT);
    let (request, rest) = Rest::of(request);
    let mut response = match guard.check(request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if !asks && (response.status().is_client_error() || response.status().is_server_error()) {
        rest.discard().await;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn given(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value"))).collect()
    }

    fn status(guard: &Guard, path: &str, pairs: &[(header::HeaderName, &str)]) -> Option<u16> {
        guard.check(path, &headers(pairs)).err().map(|error| error.status.as_u16())
    }

    #[test]
    fn on_this_machine_only_its_own_names_and_pages_are_answered() {
        let guard = Guard::new("127.0.0.1:8100".parse().expect("an address"), None);
        for host in ["127.0.0.1:8100", "localhost:8100", "localhost", "[::1]:8100"] {
            assert_eq!(status(&guard, "/api/models", &[(header::HOST, host)]), None, "{host}");
        }
        for host in ["example.org:8100", "", "localhost.example.org", "127.0.0.1.example.org"] {
            assert_eq!(status(&guard, "/", &[(header::HOST, host)]), Some(403), "{host}");
        }
        let host = (header::HOST, "localhost:8100");
        for (origin, expected) in [
            ("http://localhost:8100", None),
            ("http://example.org", Some(403)),
            ("null", Some(403)),
            ("http://localhost:9", Some(403)),
        ] {
            assert_eq!(status(&guard, "/v1/models", &[host.clone(), (header::ORIGIN, origin)]), expected, "{origin}");
        }
    }

    #[test]
    fn beyond_it_the_token_is_needed_for_everything_but_the_page() {
        let guard = Guard::new("0.0.0.0:8100".parse().expect("an address"), Some("secret"));
        let host = [(header::HOST, "10.0.0.7:8100")];
        assert_eq!(status(&guard, "/", &host), None);
        for path in ["/api/models", "/v1/audio/transcriptions"] {
            assert_eq!(status(&guard, path, &host), Some(401));
            for (value, expected) in [("Bearer secret", None), ("Bearer secre", Some(401)), ("secret", Some(401))] {
                assert_eq!(
                    status(&guard, path, &[host[0].clone(), (header::AUTHORIZATION, value)]),
                    expected,
                    "{value}"
                );
            }
        }
    }
}
