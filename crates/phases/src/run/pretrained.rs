//! Pretrained backbone of an experiment.

use super::modality::Modality;
use crate::backbone::{Architecture, SpeechBackbone};
use crate::normalize::spelling_map;
use crate::{Experiment, ModelConfig, RunError, Trainable};
use burn::tensor::Device;
use std::ops::Deref;
use std::sync::Arc;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::frozen::{FrozenDtype, hold_frozen, loaded_in};
use undertone_model::whisper::Whisper;
use undertone_ops::settle;
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
        if experiment.model.backbone.is_text() {
            undertone_ops::seed(experiment.seed);
            let mut text = loaded(experiment, device, || experiment.model.load_text(device))?;
            text.network = settle(held(text.network, experiment)?);
            return Ok(Self::new(text));
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
        _ if loss.ctc > 0.0 => "`loss.ctc`".to_owned(),
        Some(task) => format!("task `{}`: `generation`", task.name),
        None => return Ok(()),
    };
    Err(format!("{unused} is for decoders that write token by token, and the backbone has none: leave it out"))
}

/// Loads or initialises the speech backbone of an experiment on `device`, with its trained parameters marked, and its
/// frozen matrices held as the experiment says.
pub(crate) fn load_speech(experiment: &Experiment, device: &Device) -> Result<SpeechBackbone, RunError> {
    if experiment.model.backbone != Architecture::WHISPER {
        let load = || experiment.model.load_speech(device, experiment.seed);
        let mut speech = loaded(experiment, device, load)?;
        speech.network = settle(held(speech.network, experiment)?);
        return Ok(speech);
    }
    let mut whisper = loaded(experiment, device, || experiment.load_whisper(device))?;
    // The trained model has the language and task of its data wherever it is loaded.
    if whisper.generation.is_multilingual {
        whisper.generation.language = Some(experiment.data.language.clone());
        whisper.generation.task = Some(experiment.data.task.clone());
    }
    // Before it becomes a backbone, whose decoder shares its weights.
    let network = settle(held(BoxedBackbone::new("Whisper", whisper.model), experiment)?);
    whisper.model = network.downcast_ref::<Whisper>().expect("the network that was put in").clone();
    Ok(whisper.into())
}

/// Runs `load`. If all of the backbone is frozen, linear maps are held in `model.frozen_dtype` from the start.
fn loaded<T, E: Into<RunError>>(
    experiment: &Experiment,
    device: &Device,
    load: impl FnOnce() -> Result<T, E>,
) -> Result<T, RunError> {
    let ModelConfig { frozen_dtype: dtype, trainable, .. } = experiment.model;
    if !dtype.is_on(device) {
        let why = "the device does not have that type: choose another one, or leave it out";
        return Err(refused(dtype, why));
    }
    let is_all_frozen = !experiment.tasks.is_empty() || trainable == Trainable::Lora;
    let loaded = if is_all_frozen { loaded_in(dtype, load) } else { load() };
    loaded.map_err(Into::into)
}

/// Returns a backbone whose frozen matrices are held in `model.frozen_dtype`.
fn held(network: BoxedBackbone, experiment: &Experiment) -> Result<BoxedBackbone, RunError> {
    let ModelConfig { frozen_dtype: dtype, trainable, .. } = experiment.model;
    if dtype == FrozenDtype::F32 {
        return Ok(network);
    }
    let (constants, has_tasks) = (network.constants(), !experiment.tasks.is_empty());
    let (network, count) = hold_frozen(network, dtype, |path| has_tasks || !trainable.includes(path, constants));
    if count == 0 {
        return Err(refused(dtype, "no linear map and no embedding of the model is frozen: leave it out"));
    }
    Ok(network)
}

fn refused(dtype: FrozenDtype, why: &str) -> RunError {
    RunError::Setting(format!("`model.frozen_dtype` is {dtype}, and {why}"))
}
