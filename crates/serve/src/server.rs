//! Connections and routes.

use crate::error::{ApiError, ServeError};
use crate::guard::{Guard, guarded};
use crate::library::Library;
use crate::limits::Limits;
use crate::state::State;
use crate::{api, openai, page};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
    router: Router,
}

/// Most connections at once; further ones wait to be accepted.
const CONNECTIONS: usize = 64;
/// Time for the head of a request, and between two requests.
const HEAD: Duration = Duration::from_secs(15);
/// Time between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Time for answers that are under way when the server stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// What the other fields and the boundaries of a form may take beside its recording, in bytes.
const FORM: usize = 1 << 20;

impl Server {
    /// Listens on an address; port 0 takes a free one. Beyond this machine a token is needed: a random one if none is
    /// given.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(
        address: SocketAddr,
        library: Library,
        limits: Limits,
        token: Option<String>,
    ) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).map_err(|source| ServeError::Bind { address, source })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = token.or_else(|| (!address.ip().is_loopback()).then(random_token));
        let guard = Guard::new(address, token.as_deref());
        let router = Router::new()
            .route("/", get(page::index))
            .route("/page.css", get(page::style))
            .route("/page.js", get(page::script))
            .route("/api/models", get(api::models))
            .route("/api/transcribe", post(api::transcribe))
            .route("/api/predict", post(api::predict))
            .route("/api/runs", get(api::runs))
            .route("/api/runs/{name}", get(api::run))
            .route("/v1/models", get(openai::models))
            .route("/v1/models/{*id}", get(openai::model))
            .route("/v1/audio/transcriptions", post(openai::transcriptions))
            .route("/v1/audio/translations", post(openai::translations))
            .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is nothing here"))
            .method_not_allowed_fallback(async || {
                ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this address takes another method")
            })
            .layer(DefaultBodyLimit::max(limits.bytes.saturating_add(FORM)))
            .layer(from_fn_with_state(guard, guarded))
            .with_state(State::new(library, limits));
        Ok(Self { listener, address, token, router })
    }

    /// Returns the address to open in a browser, with the token if there is one.
    pub fn url(&self) -> String {
        // What follows `#` is not sent to the server, and so is in no log.
        let token = self.token.as_ref().map(|token| format!("#token={token}")).unwrap_or_default();
        format!("http://{}/{token}", self.address)
    }

    /// Answers requests until `stop` returns true.
    ///
    /// # Errors
    /// If the system refuses threads or connections.
    pub fn run(self, stop: impl Fn() -> bool) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let places = Arc::new(Semaphore::new(CONNECTIONS));
            while !stop() {
                let Ok(Ok(place)) = tokio::time::timeout(LOOK, places.clone().acquire_owned()).await else { continue };
                let Ok(accepted) = tokio::time::timeout(LOOK, listener.accept()).await else { continue };
                let Ok((stream, _)) = accepted else {
                    // Usually there are too many open files; they become fewer.
                    tokio::time::sleep(LOOK).await;
                    continue;
                };
                let router = self.router.clone();
                tokio::spawn(async move {
                    let _place = place;
                    // HTTP/2 names no `Host`, which the guard asks for, and to tell the two apart would wait for the first bytes without
                    // a limit.
                    let mut server = Builder::new(TokioExecutor::new()).http1_only();
                    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
                    // A client that breaks off is nobody's error.
                    let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
                });
            }
            Ok::<(), std::io::Error>(())
        })?;
        // A recording that is being transcribed is given up: nobody is left to read its text.
        runtime.shutdown_timeout(FAREWELL);
        Ok(())
    }
}

/// Returns 128 random bits.
fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
