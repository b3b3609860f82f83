//! What the page asks for.

use crate::error::ApiError;
use crate::job::{Event, Request, start};
use crate::library::{Entry, Model};
use crate::openai::appended;
use crate::runs;
use crate::state::State;
use crate::upload::{Form, too_large};
use axum::Json;
use axum::body::Body;
use axum::extract::multipart::MultipartRejection;
use axum::extract::{Multipart, Path, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::PoisonError;
use tokio::sync::mpsc::Receiver;
use undertone::phases::run::Prediction;
use undertone::transcribe::write::Layout;

/// Maximum size of a text to answer, in bytes.
const LONGEST_TEXT: usize = 1 << 20;

/// `GET /api/models`: the list of models.
pub async fn models(Shared(state): Shared<State>) -> Json<Vec<Entry>> {
    Json(tokio::task::spawn_blocking(move || state.library.entries()).await.unwrap_or_default())
}

/// `POST /api/transcribe`: a form with a recording. The answer is a line of JSON for each event.
pub async fn transcribe(
    Shared(state): Shared<State>,
    parts: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    let place = state.place()?;
    let mut form = Form::read(parts, &state.limits).await?;
    let request = Request {
        model: form.take("model").ok_or_else(|| ApiError::bad_request("the form has no `model`"))?,
        task: form.take("task"),
        language: form.take("language"),
        translate: form.take_flag("translate")?,
        prompt: form.take("prompt"),
        temperature: None,
        words: form.take_flag("words")?,
        outline: true,
    };
    Ok(lines(start(state, place, form.recording()?, request)).into_response())
}

/// Text for a run that reads text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    model: String,
    task: Option<String>,
    text: String,
    context: Option<String>,
}

/// `POST /api/predict`: a text as JSON, and a run's answer to it.
pub async fn predict(Shared(state): Shared<State>, body: Body) -> Result<Json<Value>, ApiError> {
    let _place = state.place()?;
    let bytes = match tokio::time::timeout(state.limits.idle, axum::body::to_bytes(body, LONGEST_TEXT)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large(LONGEST_TEXT)),
        Err(_) => return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the text did not arrive: send it again")),
    };
    let asked: Question = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::bad_request(format!("the request is not the expected object: {error}")))?;
    let turn = state.turn().await;
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let model = state.library.model(&asked.model, asked.task.as_deref())?;
        let Model::Predictor(predictor, tasks) = &*model else {
            return Err(ApiError::bad_request(format!("the model `{}` reads audio: send it a recording", asked.model)));
        };
        let predictor = predictor.lock().unwrap_or_else(PoisonError::into_inner);
        let context = asked.context.as_deref().filter(|context| !context.is_empty());
        Ok(predictions(&[predictor.text(&asked.text, context)?], tasks))
    });
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the model failed on this text");
    Ok(Json(work.await.map_err(failed)??))
}

/// `GET /api/runs`: what is known of each run, last written first.
pub async fn runs(Shared(state): Shared<State>) -> Json<Vec<Value>> {
    Json(tokio::task::spawn_blocking(move || runs::all(&state.library)).await.unwrap_or_default())
}

/// `GET /api/runs/NAME`: a run with its curves.
pub async fn run(Shared(state): Shared<State>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let found = tokio::task::spawn_blocking(move || runs::one(&state.library, &name)).await.ok().flatten();
    found.map(Json).ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "there is no such run"))
}

/// Sends each event as a line of JSON.
fn lines(events: Receiver<Event>) -> impl IntoResponse {
    let lines = stream::unfold((events, String::new()), |(mut events, mut text)| async move {
        let object = object(events.recv().await?, &mut text);
        Some((Ok::<_, Infallible>(format!("{object}\n")), (events, text)))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines))
}

fn object(event: Event, text: &mut String) -> Value {
    match event {
        Event::Opened(outline, marks) => {
            json!({"event": "opened", "seconds": outline.seconds, "peaks": outline.peaks, "marks": marks})
        }
        Event::Segments(segments, reached) => {
            json!({"event": "segments", "text": appended(text, &segments), "reached": reached})
        }
        Event::Transcript(transcript) => {
            let layout = Layout { characters: true, ..Layout::default() };
            json!({"event": "transcript", "transcript": transcript.to_json(&layout)})
        }
        Event::Predictions(answers, tasks) => {
            json!({"event": "predictions", "predictions": predictions(&answers, &tasks)})
        }
        Event::Failed(error) => json!({"event": "failed", "message": error.message}),
    }
}

fn predictions(answers: &[Prediction], tasks: &[String]) -> Value {
    answers.iter().map(|answer| answer.to_json(tasks)).collect()
}
