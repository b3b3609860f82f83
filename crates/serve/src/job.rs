//! A request's work, away from the threads that serve connections.

use crate::error::ApiError;
use crate::library::Model;
use crate::state::State;
use crate::wave::{Outline, keying, outline};
use axum::http::StatusCode;
use std::sync::PoisonError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use undertone::data::audio::{SAMPLE_RATE, Stored};
use undertone::model::whisper::PretrainedWhisper;
use undertone::phases::run::Prediction;
use undertone::transcribe::{Language, Segment, TranscribeError, TranscribeOptions, Transcriber, Transcript, Update};

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Name of the model.
    pub model: String,
    /// Task of a run.
    pub task: Option<String>,
    /// Code of the language; `auto` to detect it.
    pub language: Option<String>,
    /// Whether to translate into English.
    pub translate: bool,
    /// Text before the first window, as context.
    pub prompt: Option<String>,
    /// Temperature of sampling; without it the usual ones are tried one after the other.
    pub temperature: Option<f64>,
    /// Whether words have times. A model that reads no speech has none.
    pub words: bool,
    /// Whether [`Event::Opened`] is wanted.
    pub outline: bool,
}

impl Request {
    /// Refuses what the heads of a run's tasks have no use for.
    fn only_for_predictions(&self) -> Result<(), ApiError> {
        let used = [
            (self.language.is_some(), "language"),
            (self.translate, "translation"),
            (self.prompt.is_some(), "prompt"),
            (self.temperature.is_some(), "temperature"),
        ];
        match used.into_iter().find(|(used, _)| *used) {
            Some((_, field)) => Err(ApiError::bad_request(format!(
                "the run `{}` answers with the heads of its tasks, which take no {field}: leave it out",
                self.model
            ))),
            None => Ok(()),
        }
    }
}

/// News of a request's work.
#[derive(Debug)]
pub enum Event {
    /// The recording was opened: its outline, and when the key of Morse was down.
    Opened(Outline, Vec<[f64; 2]>),
    /// The next segments, and the second of the recording that is reached.
    Segments(Vec<Segment>, f64),
    /// The whole transcript; the last event.
    Transcript(Box<Transcript>),
    /// The answers of a run, with the names of the tasks that its gates are for; the last event.
    Predictions(Vec<Prediction>, Vec<String>),
    /// An error; the last event.
    Failed(ApiError),
}

/// Name of the reader of Morse.
const MORSE: &str = "cw";

/// Begins the work on a recording as soon as it is its turn. It ends early if the receiver is dropped.
pub fn start(state: State, place: OwnedSemaphorePermit, audio: Stored, request: Request) -> Receiver<Event> {
    let (sender, receiver) = channel(16);
    tokio::spawn(async move {
        let _place = place;
        // A client that leaves gives its place to another.
        let turn = tokio::select! {
            biased;
            () = sender.closed() => return,
            turn = state.turn() => turn,
        };
        let to_tell = sender.clone();
        let work = tokio::task::spawn_blocking(move || {
            // Held here and not in the task around it, for this goes on if that is dropped.
            let _turn = turn;
            Job { state: &state, audio, request: &request, sender: &sender }.run()
        });
        let error = match work.await {
            Ok(Ok(())) => return,
            Ok(Err(Ended::Gone)) => return tracing::info!("a client left before its answer"),
            Ok(Err(Ended::Failed(error))) => error,
            Err(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the model failed on this recording"),
        };
        // Nobody may be there any more to read it.
        let _ = to_tell.send(Event::Failed(error)).await;
    });
    receiver
}

/// Reason why a job ended early.
enum Ended {
    /// The client has left.
    Gone,
    Failed(ApiError),
}

impl<E: Into<ApiError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<TranscribeError> for ApiError {
    fn from(error: TranscribeError) -> Self {
        Self::bad_request(error.to_string())
    }
}

struct Job<'a> {
    state: &'a State,
    audio: Stored,
    request: &'a Request,
    sender: &'a Sender<Event>,
}

impl Job<'_> {
    fn run(self) -> Result<(), Ended> {
        let library = &self.state.library;
        let model = library.model(&self.request.model, self.request.task.as_deref())?;
        let most = self.state.limits.seconds;
        let outline = outline(&self.audio, most).map_err(TranscribeError::from)?.ok_or_else(|| {
            let message = format!("the recording is longer than {most:.0} s: cut it into parts");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        match &*model {
            Model::Whisper(whisper) => self.transcribe(whisper, outline),
            Model::Predictor(predictor, tasks) => {
                self.request.only_for_predictions()?;
                self.opened(outline, Vec::new())?;
                let samples = self.audio.load(None, None).map_err(TranscribeError::from)?;
                let predictor = predictor.lock().unwrap_or_else(PoisonError::into_inner);
                let answers = predictor.samples(&self.audio.name().display().to_string(), &samples)?;
                self.send(Event::Predictions(answers, tasks.clone()))
            }
        }
    }

    fn transcribe(&self, whisper: &PretrainedWhisper, outline: Outline) -> Result<(), Ended> {
        let device = self.state.library.device();
        let transcriber = match Transcriber::new(whisper.clone(), device, self.options(self.request.words)) {
            Err(TranscribeError::NotSpeech { .. }) if self.request.words => {
                Transcriber::new(whisper.clone(), device, self.options(false))?
            }
            transcriber => transcriber?,
        };
        let is_morse = transcriber.reader().is_some_and(|reader| reader.name() == MORSE);
        let marks = if is_morse && self.request.outline {
            keying(&self.audio).map_err(TranscribeError::from)?
        } else {
            Vec::new()
        };
        self.opened(outline, marks)?;
        transcriber.recordings(std::slice::from_ref(&self.audio), |update| match update {
            Update::Segments { segments, reached, .. } => {
                self.send(Event::Segments(segments, reached as f64 / f64::from(SAMPLE_RATE)))
            }
            Update::Done { error: Some(error), .. } => Err(error.into()),
            Update::Done { transcript, .. } => self.send(Event::Transcript(Box::new(transcript))),
        })
    }

    fn opened(&self, outline: Outline, marks: Vec<[f64; 2]>) -> Result<(), Ended> {
        if self.request.outline { self.send(Event::Opened(outline, marks)) } else { Ok(()) }
    }

    fn send(&self, event: Event) -> Result<(), Ended> {
        self.sender.blocking_send(event).map_err(|_| Ended::Gone)
    }

    fn options(&self, words: bool) -> TranscribeOptions {
        let request = self.request;
        let usual = TranscribeOptions::default();
        TranscribeOptions {
            language: match request.language.as_deref() {
                None => Language::OfModel,
                Some("auto") => Language::Detected,
                Some(code) => Language::Code(code.to_lowercase()),
            },
            task: request.translate.then(|| "translate".into()),
            initial_prompt: request.prompt.clone(),
            temperatures: request.temperature.map_or(usual.temperatures.clone(), |temperature| vec![temperature]),
            words,
            ..usual
        }
    }
}
