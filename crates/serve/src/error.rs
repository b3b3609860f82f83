//! Errors of the server, and those that requests are answered with.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;
use undertone::ops::DeviceError;
use undertone::phases::RunError;

/// Reason why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another port with --port, or end the program that has it")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Two models have the same name.
    #[error("two models are named `{0}`: give one of them another name, or serve them one after the other")]
    SameName(String),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A model is a run with several tasks.
    #[error(
        "`{model}` is a run with several tasks: give the folder of one as --model, like {model}/phase1/TASK, or all runs beside it by --runs"
    )]
    Tasks {
        /// The run.
        model: String,
    },
    /// A model cannot be loaded.
    #[error(transparent)]
    Model(#[from] Box<RunError>),
    /// The system refused something else.
    #[error("the server failed: {0}")]
    System(#[from] std::io::Error),
}

/// Answer to a request that cannot be answered otherwise, in the layout of OpenAI's errors.
#[derive(Debug, PartialEq)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Returns the error of what the client sent.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Returns the body of the answer.
    pub fn object(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "authentication_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": null, "code": null}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.object())).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let status =
            if error.is_bad_input() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self::new(status, error.to_string())
    }
}
