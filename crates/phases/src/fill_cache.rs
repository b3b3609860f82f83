//! Filling the sample cache before training.

use crate::check::places;
use crate::run::load_speech;
use crate::{Experiment, LongAudio, Progress, RunError, SourceConfig, SpeechDataset, SpeechError, Split};
use std::sync::Mutex;
use undertone_data::cache::{Cache, CacheUsage, CacheWhat};
use undertone_ops::DeviceSpec;

/// Result of filling a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// Current content of the cache.
    pub usage: CacheUsage,
    /// Number of entries that existed already.
    pub hits: u64,
    /// Number of entries that were written.
    pub written: u64,
    /// Number of entries that were not written for lack of room or because of disk errors.
    pub declined: u64,
    /// Samples that could not be read, each with the reason. Training will fail to read them, too.
    pub unreadable: Vec<(String, String)>,
}

/// Fills the cache of an experiment with the entries of training and validation, by the same code, so that they find
/// them.
///
/// # Errors
/// When the cache is off, or the data cannot be used. Samples that cannot be read are listed in the result instead.
pub fn fill_cache(experiment: &Experiment, progress: &dyn Progress) -> Result<Filled, RunError> {
    match experiment.data.cache.what() {
        CacheWhat::Off => return Err(RunError::CacheOff),
        CacheWhat::Encoder => return Err(RunError::FilledByTraining),
        CacheWhat::Audio | CacheWhat::Features => {}
    }
    let mut experiment = experiment.clone();
    // An accelerator is only useful if the model has to transcribe recordings for alignment.
    if experiment.data.long_audio == LongAudio::Refuse {
        experiment.device = DeviceSpec::Cpu;
    }
    let tasks = experiment.all_tasks();
    let mut places = places(&experiment, &tasks);
    places.iter_mut().for_each(|place| place.sources.retain(SourceConfig::is_recorded));
    places.retain(|place| place.split != Split::Test && !place.sources.is_empty());
    if places.is_empty() {
        return Err(RunError::NothingToCache);
    }
    let speech = load_speech(&experiment, &experiment.device.resolve()?)?;
    let (mut hits, mut written, mut declined) = (0, 0, 0);
    let unreadable = Mutex::new(Vec::new());
    for place in places {
        let sources: Vec<&SourceConfig> = place.sources.iter().collect();
        let samples = SpeechDataset::new(&experiment, &sources, &speech, place.training(), place.seed)?;
        progress.begin(&place.name(), samples.pieces());
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
    let usage = match experiment.data.cache.open().map_err(SpeechError::from)? {
        Some(cache) => cache.usage().map_err(SpeechError::from)?,
        None => CacheUsage::default(),
    };
    let mut unreadable = unreadable.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    // They were found in an arbitrary order.
    unreadable.sort();
    Ok(Filled { usage, hits, written, declined, unreadable })
}
