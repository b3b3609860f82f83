//! Pretrained backbone of an experiment.

use super::modality::Modality;
use super::reference::Reference;
use crate::backbone::{Architecture, SpeechBackbone};
use crate::normalize::spelling_map;
use crate::{Experiment, RunError, SourceError};
use burn::tensor::Device;
use std::ops::Deref;
use std::sync::Arc;
use undertone_tasks::GenerationSettings;

/// Backbone with its tokenizer and other files.
#[derive(Clone)]
pub struct Pretrained(Arc<dyn Modality>);

impl Pretrained {
    /// Returns a backbone that is already loaded.
    pub fn new(backbone: impl Modality + 'static) -> Self {
        Self(Arc::new(backbone))
    }

    /// Loads or initialises the backbone of an experiment on `device`.
    ///
    /// # Errors
    /// When it is not available.
    pub fn load(experiment: &Experiment, device: &Device) -> Result<Self, RunError> {
        let backbone = Self::open(experiment, device)?;
        Reference::check(experiment, || backbone.network())?;
        Ok(backbone)
    }

    fn open(experiment: &Experiment, device: &Device) -> Result<Self, RunError> {
        if experiment.model.backbone.is_text() {
            undertone_ops::seed(experiment.seed);
            return Ok(Self::new(experiment.model.load_text(device)?));
        }
        let speech = load_speech(experiment, device)?;
        check_settings(experiment, &speech).map_err(RunError::Setting)?;
        Ok(Self::new(match spelling_map(&experiment.data)? {
            Some(spellings) => speech.with_spellings(spellings),
            None => speech,
        }))
    }
}

impl Deref for Pretrained {
    type Target = dyn Modality;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Checks that the settings of loss and generation have an effect on a speech backbone.
fn check_settings(experiment: &Experiment, speech: &SpeechBackbone) -> Result<(), String> {
    let Experiment { loss, tasks, .. } = experiment;
    if loss.alignment.is_on() && speech.frames_per_position != 2 {
        let apart = 10 * speech.frames_per_position;
        return Err(format!(
            "`loss.alignment` has targets every 20 ms, and the backbone's states are {apart} ms apart: set its weights to 0"
        ));
    }
    if speech.tokenizer.end().is_some() {
        return Ok(());
    }
    let generation = tasks.iter().find(|task| task.generation != GenerationSettings::default());
    let unused = match generation {
        _ if loss.label_smoothing > 0.0 => "`loss.label_smoothing`".to_owned(),
        Some(task) => format!("task `{}`: `generation`", task.name),
        None => return Ok(()),
    };
    Err(format!("{unused} is for decoders that write token by token, and the backbone has none: leave it out"))
}

/// Loads or initialises the speech backbone of an experiment on `device`, with its trained parameters marked.
///
/// # Errors
/// When it is not available.
pub(crate) fn load_speech(experiment: &Experiment, device: &Device) -> Result<SpeechBackbone, SourceError> {
    if experiment.model.backbone != Architecture::WHISPER {
        return experiment.model.load_speech(device, experiment.seed);
    }
    let mut whisper = experiment.load_whisper(device)?;
    // The trained model has the language and task of its data wherever it is loaded.
    if whisper.generation.is_multilingual {
        whisper.generation.language = Some(experiment.data.language.clone());
        whisper.generation.task = Some(experiment.data.task.clone());
    }
    Ok(whisper.into())
}
