//! What all requests share.

use crate::error::ApiError;
use crate::library::Library;
use crate::limits::Limits;
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all requests share.
#[derive(Clone)]
pub struct State {
    pub library: Arc<Library>,
    pub limits: Limits,
    /// Requests that are answered or wait.
    places: Arc<Semaphore>,
    /// The request that is answered.
    turn: Arc<Semaphore>,
}

impl State {
    pub fn new(library: Library, limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.waiting + 1));
        Self { library: Arc::new(library), limits, places, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Takes a place among the requests that wait. It is taken before a request is read into memory.
    pub fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{} requests wait already: try again later", self.limits.waiting);
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    /// Waits until no other request is being answered.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.turn.clone().acquire_owned().await.ok()
    }
}
