//! Models that requests can choose from.

use crate::error::{ApiError, ServeError};
use axum::http::StatusCode;
use burn::tensor::Device;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use undertone::model::frozen::hold_whisper_exactly;
use undertone::model::whisper::PretrainedWhisper;
use undertone::ops::DeviceSpec;
use undertone::phases::run::{Choice, Offer, Predictor, load_whisper};
use undertone::phases::{Experiment, RunError};

/// Models by name: some that are loaded from the start, and the runs below a directory, which are loaded when they are
/// asked for.
pub struct Library {
    named: Vec<(Entry, Arc<Model>)>,
    runs: PathBuf,
    spec: DeviceSpec,
    device: Device,
    /// Models of runs, last used first.
    loaded: Mutex<Vec<(Asked, Arc<Model>)>>,
}

/// A model in memory.
pub enum Model {
    /// For transcripts.
    Whisper(Box<PretrainedWhisper>),
    /// For answers of a run's heads; with the names of the tasks that its router chooses among, if there is one.
    Predictor(Box<Mutex<Predictor>>, Vec<String>),
}

/// A run and one of its tasks, as a request names them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    run: String,
    task: Option<String>,
    /// Time at which its newest model was written: one of a run that was trained further is loaded anew.
    written: Option<SystemTime>,
}

/// Entry of the list of models.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Name.
    pub id: String,
    /// Whether its input is text instead of audio.
    pub reads_text: bool,
    /// Tasks to choose from.
    pub tasks: Vec<String>,
    /// Whether a router can choose the task.
    pub has_router: bool,
    /// Whether it reads speech in several languages; `None` where only loading it would tell.
    pub multilingual: Option<bool>,
    /// Whether it reads Morse code, or something else that is not speech.
    pub reader: Option<String>,
}

impl Entry {
    fn of_whisper(id: String, whisper: &PretrainedWhisper) -> Self {
        Self {
            id,
            reads_text: false,
            tasks: Vec::new(),
            has_router: false,
            multilingual: Some(whisper.generation.is_multilingual && whisper.generation.reader.is_none()),
            reader: whisper.generation.reader.clone(),
        }
    }
}

/// Number of runs' models in memory.
const MOST_LOADED: usize = 2;

/// Name that clients of OpenAI's service give. It stands for the first model.
pub const USUAL: &str = "whisper-1";

impl Library {
    /// Loads `models`, and offers the runs below `runs`.
    ///
    /// # Errors
    /// If there is no such device, a model cannot be loaded, or two have the same name.
    pub fn new(models: &[PathBuf], runs: &Path, spec: DeviceSpec) -> Result<Self, ServeError> {
        let device = &spec.resolve()?;
        let mut named: Vec<(Entry, Arc<Model>)> = Vec::new();
        for path in models {
            // The rest of the path is nobody's business.
            let id = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
            if named.iter().any(|(entry, _)| entry.id == id) {
                return Err(ServeError::SameName(id));
            }
            let whisper = hold_whisper_exactly(load_whisper(path, None, device).map_err(|error| match error {
                RunError::WhichTask(_) => ServeError::Tasks { model: path.display().to_string() },
                error => Box::new(error).into(),
            })?);
            named.push((Entry::of_whisper(id, &whisper), Arc::new(Model::Whisper(Box::new(whisper)))));
        }
        let device = device.clone();
        Ok(Self { named, runs: runs.to_owned(), spec, device, loaded: Mutex::default() })
    }

    /// Returns the list of models. Runs without a trained model, or with a configuration that cannot be read, are not in
    /// it.
    pub fn entries(&self) -> Vec<Entry> {
        let of_run = |name: String| {
            let offer = Offer::of(&self.runs.join(&name)).ok().flatten()?;
            Some(Entry {
                id: name,
                reads_text: offer.reads_text,
                tasks: offer.tasks,
                has_router: offer.has_router,
                multilingual: None,
                reader: None,
            })
        };
        let named = self.named.iter().map(|(entry, _)| entry.clone());
        named.chain(self.run_names().into_iter().filter(|name| !self.is_named(name)).filter_map(of_run)).collect()
    }

    /// Returns the names of the runs, sorted. A request is compared with them and never made into a path.
    pub fn run_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.runs).into_iter().flatten().flatten();
        let runs = entries.filter(|entry| entry.path().join("config.yaml").is_file());
        let mut names: Vec<String> = runs.filter_map(|run| run.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the directory of a run in the list.
    pub fn run(&self, name: &str) -> Option<PathBuf> {
        self.run_names().iter().find(|known| *known == name).map(|known| self.runs.join(known))
    }

    /// Returns what replaces keys of a run's configuration: the device that the server was started with.
    fn settings(&self) -> [String; 1] {
        [format!("device={}", self.spec)]
    }

    /// Returns the device of the models.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn is_named(&self, name: &str) -> bool {
        self.named.iter().any(|(known, _)| known.id == name)
    }

    /// Returns a model of the list, for one of its tasks; the router chooses if there is none. Loading takes seconds.
    pub fn model(&self, name: &str, task: Option<&str>) -> Result<Arc<Model>, ApiError> {
        if let Some((_, model)) = self.named.iter().find(|(known, _)| known.id == name) {
            return match task {
                None => Ok(model.clone()),
                Some(task) => {
                    Err(ApiError::bad_request(format!("the model `{name}` has no task `{task}`: leave it out")))
                }
            };
        }
        if let Some(directory) = self.run(name) {
            let written = newest(&directory);
            return self.of_run(&directory, Asked { run: name.to_owned(), task: task.map(str::to_owned), written });
        }
        match self.named.first() {
            Some((_, model)) if name == USUAL && task.is_none() => Ok(model.clone()),
            _ => Err(ApiError::new(
                StatusCode::NOT_FOUND,
                format!("there is no model `{name}`: /v1/models lists those for recordings, and /api/models all"),
            )),
        }
    }

    fn of_run(&self, directory: &Path, asked: Asked) -> Result<Arc<Model>, ApiError> {
        // A model that is incomplete after a panic was never put into the list.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = loaded.iter().position(|(known, _)| *known == asked) {
            loaded[..=at].rotate_right(1);
            return Ok(loaded[0].1.clone());
        }
        // Room first, so that there are never more in memory.
        loaded.retain(|(known, _)| known.run != asked.run || known.written == asked.written);
        loaded.truncate(MOST_LOADED - 1);
        let model = Arc::new(load(directory, asked.task.as_deref(), &self.device, &self.settings())?);
        loaded.insert(0, (asked, model.clone()));
        Ok(model)
    }
}

/// Returns when a model in a directory was last written.
fn newest(directory: &Path) -> Option<SystemTime> {
    let modified = |file: std::fs::DirEntry| file.metadata().and_then(|file| file.modified()).ok();
    let below = |entry: std::fs::DirEntry| match entry.file_name() == "best" {
        true => std::fs::read_dir(entry.path()).ok()?.flatten().filter_map(modified).max(),
        false => newest(&entry.path()),
    };
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_stage = |entry: &std::fs::DirEntry| is_folder(entry) && entry.file_name() != "checkpoints";
    std::fs::read_dir(directory).ok()?.flatten().filter(is_stage).filter_map(below).max()
}

fn load(directory: &Path, task: Option<&str>, device: &Device, settings: &[String]) -> Result<Model, ApiError> {
    let nothing =
        || ApiError::new(StatusCode::CONFLICT, "this run has no trained model yet: wait for its first evaluation");
    let offer = Offer::of(directory)?.ok_or_else(nothing)?;
    if task.is_none() && offer.has_router {
        let experiment =
            Experiment::of_run(directory, settings).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let names = experiment.tasks.iter().map(|task| task.name.clone()).collect();
        return Ok(Model::Predictor(Box::new(Mutex::new(Predictor::load(&experiment)?)), names));
    }
    if offer.is_whisper {
        return Ok(Model::Whisper(Box::new(hold_whisper_exactly(load_whisper(directory, task, device)?))));
    }
    let predictor = Predictor::of_choice(&Choice::of(directory, task, settings)?)?;
    Ok(Model::Predictor(Box::new(Mutex::new(predictor)), Vec::new()))
}
