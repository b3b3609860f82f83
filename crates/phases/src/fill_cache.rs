//! What training keeps of samples between epochs, computed before it begins.

use crate::run::set_language;
use crate::{Experiment, LongAudio, Progress, SourceConfig, SourceError, SpeechDataset, SpeechError, Split};
use std::sync::Mutex;
use undertone_data::cache::{Cache, CacheError, CacheUsage, CacheWhat};
use undertone_ops::{DeviceError, DeviceSpec};

/// What filling a cache has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// What it holds now.
    pub usage: CacheUsage,
    /// Entries that were there already.
    pub hits: u64,
    /// Entries that were written.
    pub written: u64,
    /// Entries that there was no room for, or that the disk refused.
    pub declined: u64,
    /// What could not be read, each with the reason: training meets it, too.
    pub unreadable: Vec<(String, String)>,
}

/// Why a cache cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// Nothing is to be kept.
    #[error("`data.cache.what` is off, so there is no cache: set it to `audio` or `features`")]
    Off,
    /// There is nothing that could be kept.
    #[error("`data.cache` keeps what is read of recordings, and all training and validation data is synthesised")]
    Synthesised,
    /// The device cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model, whose window says what is cut, cannot be had.
    #[error(transparent)]
    Model(#[from] SourceError),
    /// The data is unusable.
    #[error(transparent)]
    Data(#[from] SpeechError),
    /// The cache cannot be used.
    #[error("`data.cache`: {0}")]
    Cache(#[from] CacheError),
}

/// Puts into the cache of an experiment what training and validation would: by the same code, so that they find it.
///
/// # Errors
/// When nothing is to be kept, or the data cannot be used. A sample that cannot be read is no error, but in the answer.
pub fn fill_cache(experiment: &Experiment, progress: &dyn Progress) -> Result<Filled, FillError> {
    if experiment.data.cache.what == CacheWhat::Off {
        return Err(FillError::Off);
    }
    let mut experiment = experiment.clone();
    // Only a model that is to say what it hears is worth an accelerator.
    if experiment.data.long_audio == LongAudio::Refuse {
        experiment.device = DeviceSpec::Cpu;
    }
    let parts = parts(&experiment);
    if parts.iter().all(|part| part.sources.is_empty()) {
        return Err(FillError::Synthesised);
    }
    let mut whisper = experiment.load_whisper(&experiment.device.resolve()?)?;
    set_language(&mut whisper, &experiment.data);
    let (mut hits, mut written, mut declined) = (0, 0, 0);
    let unreadable = Mutex::new(Vec::new());
    for part in parts.iter().filter(|part| !part.sources.is_empty()) {
        let sources: Vec<&SourceConfig> = part.sources.iter().collect();
        let samples = SpeechDataset::new(&experiment, &sources, &whisper, part.training, part.seed)?;
        progress.begin(&part.name, samples.pieces());
        samples.keep(&|kept| {
            if let Err((name, error)) = kept {
                let mut unreadable = unreadable.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                unreadable.push((name, error.to_string()));
            }
            progress.step();
        });
        progress.end();
        if let Some(counts) = samples.cache().map(Cache::counts) {
            (hits, written, declined) = (hits + counts.hits, written + counts.written, declined + counts.declined);
        }
    }
    let usage = match experiment.data.cache.open()? {
        Some(cache) => cache.usage()?,
        None => CacheUsage::default(),
    };
    let mut unreadable = unreadable.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    // In whatever order they were met.
    unreadable.sort();
    Ok(Filled { usage, hits, written, declined, unreadable })
}

/// Recordings of a split, as training opens them.
struct Part {
    name: String,
    sources: Vec<SourceConfig>,
    training: bool,
    seed: u64,
}

fn parts(experiment: &Experiment) -> Vec<Part> {
    let tasks = experiment.all_tasks();
    let parts = tasks.iter().flat_map(|task| {
        let (splits, seed) = (task.data.splits(), task.seed(experiment.seed));
        [Split::Train, Split::Valid].map(|split| {
            let sources = splits.sources(split).unwrap_or_default().into_iter();
            let prefix = if task.is_whole() { String::new() } else { format!("{}/", task.name) };
            Part {
                name: prefix + split.name(),
                sources: sources.filter(SourceConfig::is_recorded).collect(),
                training: split == Split::Train,
                seed: split.seed(seed),
            }
        })
    });
    parts.collect()
}
