//! The backbones that tasks can stand on, as they come from their folders.

use crate::backbone::TextBackbone;
use crate::normalize::spells;
use crate::{DataConfig, Experiment, SourceError};
use burn::tensor::Device;
use undertone_data::text::NormalizerError;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::whisper::PretrainedWhisper;

/// A backbone with everything that travels with it.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // there is one in a run
pub enum Pretrained {
    /// Of speech.
    Whisper(PretrainedWhisper),
    /// Of text.
    Text(TextBackbone),
}

/// Why there is no backbone.
#[derive(Debug, thiserror::Error)]
pub enum BackboneError {
    /// It cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Spellings cannot be had.
    #[error(transparent)]
    Spellings(#[from] NormalizerError),
}

impl Pretrained {
    /// Loads the backbone that an experiment names onto `device`, or draws it.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn load(experiment: &Experiment, device: &Device) -> Result<Self, BackboneError> {
        if experiment.model.backbone.is_text() {
            undertone_ops::seed(experiment.seed);
            return Ok(Self::Text(experiment.model.load_text(device)?));
        }
        let mut whisper = experiment.load_whisper(device)?;
        set_language(&mut whisper, &experiment.data);
        spells(&mut whisper, &experiment.data)?;
        Ok(Self::Whisper(whisper))
    }

    /// The network alone.
    pub fn network(&self) -> BoxedBackbone {
        match self {
            Self::Whisper(whisper) => BoxedBackbone::new("Whisper", whisper.model.clone()),
            Self::Text(text) => text.network.clone(),
        }
    }
}

/// What comes out of training set_language what it was taught, wherever it is loaded.
pub(crate) fn set_language(whisper: &mut PretrainedWhisper, data: &DataConfig) {
    if whisper.generation.is_multilingual {
        whisper.generation.language = Some(data.language.clone());
        whisper.generation.task = Some(data.task.clone());
    }
}
