//! The rest of a request that is refused before it has arrived.

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Body of a request that two may read: the handler, and after it whoever takes the rest.
///
/// Some clients, such as `fetch` of Node.js, send all of a request before they read the answer. If the connection is closed
/// before that, they report the broken connection and never see the answer.
#[derive(Clone)]
pub struct Rest(Arc<Mutex<BodyDataStream>>);

/// Maximum time for the rest of a request.
const LONGEST: Duration = Duration::from_secs(10);
/// Time without a new part after which the client is taken to have stopped.
const PAUSE: Duration = Duration::from_secs(1);

impl Rest {
    /// Returns the request with a body whose rest can be taken.
    pub fn of(request: Request) -> (Request, Self) {
        let (head, body) = request.into_parts();
        let rest = Self(Arc::new(Mutex::new(body.into_data_stream())));
        let shared = rest.clone();
        (Request::from_parts(head, Body::from_stream(poll_fn(move |context| shared.poll(context)))), rest)
    }

    /// Reads what is left and throws it away, as long as it comes.
    pub async fn discard(self) {
        let mut parts = poll_fn(|context| self.poll(context));
        let all = async { while let Ok(Some(Ok(_))) = tokio::time::timeout(PAUSE, parts.next()).await {} };
        let _ = tokio::time::timeout(LONGEST, all).await;
    }

    fn poll(&self, context: &mut Context) -> Poll<Option<<BodyDataStream as futures_util::Stream>::Item>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}
