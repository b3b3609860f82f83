//! Pretrained backbones for tasks.

use crate::backbone::TextBackbone;
use crate::normalize::spells;
use crate::{DataConfig, Experiment, SourceError};
use burn::tensor::Device;
use undertone_data::text::NormalizerError;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::whisper::PretrainedWhisper;

/// Backbone with its tokenizer and other files.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // there is one in a run
pub enum Pretrained {
    /// Backbone for speech.
    Whisper(PretrainedWhisper),
    /// Backbone for text.
    Text(TextBackbone),
}

/// Reason why there is no backbone.
#[derive(Debug, thiserror::Error)]
pub enum BackboneError {
    /// The source of the model fails.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The spelling map cannot be read.
    #[error(transparent)]
    Spellings(#[from] NormalizerError),
}

impl Pretrained {
    /// Loads or initialises the backbone of an experiment on `device`.
    ///
    /// # Errors
    /// When it is not available.
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

    /// Returns the network alone.
    pub fn network(&self) -> BoxedBackbone {
        match self {
            Self::Whisper(whisper) => BoxedBackbone::new("Whisper", whisper.model.clone()),
            Self::Text(text) => text.network.clone(),
        }
    }
}

/// Sets the language and task of the data in a multilingual model's generation settings, so that the trained model has
/// them wherever it is loaded.
pub(crate) fn set_language(whisper: &mut PretrainedWhisper, data: &DataConfig) {
    if whisper.generation.is_multilingual {
        whisper.generation.language = Some(data.language.clone());
        whisper.generation.task = Some(data.task.clone());
    }
}
