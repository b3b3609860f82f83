//! The endpoint that clients of OpenAI's transcription know.

use crate::error::ApiError;
use crate::job::{Event, Request, start};
use crate::library::{Entry, USUAL};
use crate::state::State;
use crate::upload::Form;
use axum::Json;
use axum::extract::multipart::MultipartRejection;
use axum::extract::{Multipart, Path, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event as Sent, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::sync::mpsc::Receiver;
use undertone::phases::run::Prediction;
use undertone::transcribe::write::{Format, Layout};
use undertone::transcribe::{Segment, Transcript};

/// Layout of the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Json,
    Text,
    Srt,
    Vtt,
    Verbose,
}

/// `GET /v1/models`.
pub async fn models(Shared(state): Shared<State>) -> Json<Value> {
    Json(json!({"object": "list", "data": audio_models(state).await}))
}

/// `GET /v1/models/{id}`.
pub async fn model(Shared(state): Shared<State>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let models = audio_models(state).await;
    let first = models.first().filter(|_| id == USUAL).map(|first| {
        let mut model = first.clone();
        model["id"] = id.as_str().into();
        model
    });
    let found = models.into_iter().find(|model| model["id"] == id.as_str()).or(first);
    let unknown =
        || ApiError::new(StatusCode::NOT_FOUND, format!("there is no model `{id}`: choose one of /v1/models"));
    found.map(Json).ok_or_else(unknown)
}

/// Returns OpenAI's objects of the models that answer to audio.
async fn audio_models(state: State) -> Vec<Value> {
    let entries = tokio::task::spawn_blocking(move || state.library.entries()).await.unwrap_or_default();
    let model = |id: String| json!({"id": id, "object": "model", "created": 0, "owned_by": "undertone"});
    // Several tasks without a router: a request cannot choose one.
    let answers = |entry: &Entry| !entry.reads_text && (entry.has_router || entry.tasks.len() <= 1);
    entries.into_iter().filter(answers).map(|entry| model(entry.id)).collect()
}

/// A request that should be a form.
type Parts = Result<Multipart, MultipartRejection>;

/// `POST /v1/audio/transcriptions`.
pub async fn transcriptions(shared: Shared<State>, parts: Parts) -> Result<Response, ApiError> {
    answer(shared, parts, false).await
}

/// `POST /v1/audio/translations`.
pub async fn translations(shared: Shared<State>, parts: Parts) -> Result<Response, ApiError> {
    answer(shared, parts, true).await
}

async fn answer(Shared(state): Shared<State>, parts: Parts, translate: bool) -> Result<Response, ApiError> {
    let place = state.place()?;
    let mut form = Form::read(parts, &state.limits).await?;
    let answer = layout(form.take("response_format").as_deref())?;
    let granularities = granularities(&mut form)?;
    if !granularities.is_empty() && answer != Answer::Verbose {
        return Err(ApiError::bad_request("`timestamp_granularities` is for `response_format=verbose_json`"));
    }
    let live = form.take_flag("stream")?;
    if live && !matches!(answer, Answer::Json | Answer::Text) {
        return Err(ApiError::bad_request("`stream` is for `response_format=json` or `text`"));
    }
    let wants_words = granularities.iter().any(|name| name == "word");
    let request = Request {
        model: form
            .take("model")
            .ok_or_else(|| ApiError::bad_request("the form has no `model`: name one of /v1/models"))?,
        task: None,
        language: if translate { None } else { form.take("language") },
        translate,
        prompt: form.take("prompt"),
        temperature: temperature(form.take("temperature").as_deref())?,
        words: matches!(answer, Answer::Srt | Answer::Vtt) || wants_words,
        outline: false,
    };
    let mut events = start(state, place, form.recording()?, request);
    if live {
        // An error before the first event is the answer.
        return match events.recv().await {
            Some(Event::Failed(error)) => Err(error),
            Some(first) => Ok(streamed(first, events).into_response()),
            None => Err(stopping()),
        };
    }
    let has_segments = granularities.is_empty() || granularities.iter().any(|name| name == "segment");
    Ok(match whole(events).await? {
        Found::Transcript(transcript) => {
            written(&transcript, answer, &Verbose { translate, has_segments, wants_words })
        }
        Found::Predictions(predictions) => {
            let texts: Vec<String> = predictions.into_iter().map(|prediction| prediction.text).collect();
            match answer {
                Answer::Text => plain("text/plain", texts.join("\n") + "\n"),
                Answer::Json => Json(json!({"text": texts.join("\n")})).into_response(),
                _ => {
                    return Err(ApiError::bad_request(
                        "this run answers with the heads of its tasks, which have no times: use `json` or `text`",
                    ));
                }
            }
        }
    })
}

fn layout(name: Option<&str>) -> Result<Answer, ApiError> {
    match name.unwrap_or("json") {
        "json" => Ok(Answer::Json),
        "text" => Ok(Answer::Text),
        "srt" => Ok(Answer::Srt),
        "vtt" => Ok(Answer::Vtt),
        "verbose_json" => Ok(Answer::Verbose),
        other => Err(ApiError::bad_request(format!(
            "`response_format` is `{other}`: give json, text, srt, vtt or verbose_json"
        ))),
    }
}

/// Takes `timestamp_granularities`, with or without the brackets of its list.
fn granularities(form: &mut Form) -> Result<Vec<String>, ApiError> {
    let mut names = form.take_all("timestamp_granularities[]");
    names.extend(form.take_all("timestamp_granularities"));
    match names.iter().find(|name| !["word", "segment"].contains(&name.as_str())) {
        Some(other) => {
            Err(ApiError::bad_request(format!("`timestamp_granularities` has `{other}`: give word or segment")))
        }
        None => Ok(names),
    }
}

/// At 0, as if it were not given, the usual temperatures are tried.
fn temperature(text: Option<&str>) -> Result<Option<f64>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    let number = number.ok_or_else(|| ApiError::bad_request(format!("`temperature` is `{text}`: give 0 to 1")))?;
    Ok((number > 0.0).then_some(number))
}

enum Found {
    Transcript(Box<Transcript>),
    Predictions(Vec<Prediction>),
}

/// Waits for the end of the work.
async fn whole(mut events: Receiver<Event>) -> Result<Found, ApiError> {
    while let Some(event) = events.recv().await {
        match event {
            Event::Opened(..) | Event::Segments(..) => {}
            Event::Transcript(transcript) => return Ok(Found::Transcript(transcript)),
            Event::Predictions(predictions, _) => return Ok(Found::Predictions(predictions)),
            Event::Failed(error) => return Err(error),
        }
    }
    Err(stopping())
}

fn stopping() -> ApiError {
    ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the server is stopping")
}

/// Content of the verbose answer.
struct Verbose {
    translate: bool,
    has_segments: bool,
    /// Whether there is a list of words, though it may be empty.
    wants_words: bool,
}

fn written(transcript: &Transcript, answer: Answer, content: &Verbose) -> Response {
    let usual = Layout::default();
    match answer {
        Answer::Json => Json(json!({"text": transcript.text(0.0)})).into_response(),
        Answer::Text => plain("text/plain", Format::Text.write(transcript, &usual)),
        Answer::Srt => plain("text/plain", Format::Srt.write(transcript, &usual)),
        Answer::Vtt => plain("text/vtt", Format::Vtt.write(transcript, &usual)),
        Answer::Verbose => Json(verbose(transcript, content)).into_response(),
    }
}

fn plain(kind: &str, text: String) -> Response {
    ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text).into_response()
}

/// Returns OpenAI's verbose object: as openai-whisper's, but with all words in one list.
fn verbose(transcript: &Transcript, content: &Verbose) -> Value {
    let mut object = transcript.to_json(&Layout::default());
    object["task"] = if content.translate { "translate" } else { "transcribe" }.into();
    if object.get("language").is_none() {
        // Clients expect it of every model.
        object["language"] = "".into();
    }
    let mut words = Vec::new();
    for segment in object["segments"].as_array_mut().into_iter().flatten() {
        segment["seek"] = 0.into();
        if segment.get("no_speech_prob").is_none() {
            segment["no_speech_prob"] = 0.into();
        }
        if let Some(Value::Array(own)) = segment.as_object_mut().and_then(|segment| segment.remove("words")) {
            words.extend(own);
        }
    }
    for word in &mut words {
        let text = word["word"].as_str().unwrap_or_default().trim().to_owned();
        word["word"] = text.into();
    }
    if content.wants_words || !words.is_empty() {
        object["words"] = words.into();
    }
    if !content.has_segments
        && let Some(object) = object.as_object_mut()
    {
        object.remove("segments");
    }
    object
}

/// Sends the text while it is written.
fn streamed(first: Event, events: Receiver<Event>) -> Sse<impl stream::Stream<Item = Result<Sent, Infallible>>> {
    Sse::new(stream::unfold((Some(first), events, String::new()), |(mut first, mut events, mut text)| async move {
        let object = loop {
            let event = match first.take() {
                Some(event) => event,
                None => events.recv().await?,
            };
            match event {
                Event::Opened(..) => {}
                Event::Segments(segments, _) => {
                    let delta = appended(&mut text, &segments);
                    if !delta.is_empty() {
                        break json!({"type": "transcript.text.delta", "delta": delta});
                    }
                }
                Event::Transcript(transcript) => {
                    break json!({"type": "transcript.text.done", "text": transcript.text(0.0)});
                }
                Event::Predictions(predictions, _) => {
                    let texts: Vec<&str> = predictions.iter().map(|prediction| prediction.text.as_str()).collect();
                    break json!({"type": "transcript.text.done", "text": texts.join("\n")});
                }
                Event::Failed(error) => break error.object(),
            }
        };
        Some((Ok(Sent::default().data(object.to_string())), (first, events, text)))
    }))
}

/// Appends segments to the text, and returns what was added.
pub fn appended(text: &mut String, segments: &[Segment]) -> String {
    let before = text.len();
    segments.iter().for_each(|segment| segment.append_to(text, 0.0));
    text[before..].to_owned()
}
