//! Source of a model's weights.

use super::error::ensure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undertone_model::whisper::{PositionEmbeddings, WhisperConfig};

/// Source of a model's weights: give one of `bundled`, `path`, `hub` and `config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSource {
    /// Name of a model that comes with Undertone: `whisper-nano-cw`, the default, or `whisper-nano-cw-wide`.
    pub bundled: Option<String>,
    /// Folder in the Hugging Face layout, or of an adapter that PEFT saved; a file of whisper.cpp or openai-whisper; or a folder
    /// of CTranslate2.
    pub path: Option<PathBuf>,
    /// Model on the Hugging Face hub, like `openai/whisper-tiny.en`. It is downloaded once and then read from the
    /// cache.
    pub hub: Option<String>,
    /// Branch, tag or commit on the hub.
    pub revision: Option<String>,
    /// Dimensions of a freshly initialised model, whose vocabulary is `model.tokenizer`.
    pub config: Option<WhisperConfig>,
    /// Pretrained Whisper that the model of `config` grows from, with its weights and tokenizer: a folder, a file of another
    /// program, or a name on the hub. New parts begin as the identity, so that the model begins with its outputs.
    pub grow_from: Option<PathBuf>,
    /// Initialisation of its weights.
    pub initializer: Initializer,
}

impl ModelSource {
    pub(super) fn validate(&self) -> Result<(), String> {
        let given = [self.bundled.is_some(), self.path.is_some(), self.hub.is_some(), self.config.is_some()];
        ensure(
            given.into_iter().filter(|g| *g).count() <= 1,
            || "`model.source` has several of bundled, path, hub and config: give one",
        )?;
        if let Some(config) = &self.config {
            config.check_new().map_err(|e| format!("`model.source.config`: {e}"))?;
        }
        ensure(
            self.grow_from.is_none() || self.config.is_some(),
            || "`model.source.grow_from` needs `model.source.config`, the dimensions and options of the grown model",
        )?;
        ensure(self.revision.is_none() || self.hub.is_some(), || "`model.source.revision` needs `model.source.hub`")?;
        ensure(
            self.initializer == Initializer::Normal || (self.config.is_some() && self.grow_from.is_none()),
            || "`model.source.initializer` needs `model.source.config` and no `grow_from`: other sources have weights",
        )?;
        ensure(self.initializer == Initializer::Normal || !self.is_rotary(), || {
            "`model.source.initializer: local` sets heads by absolute positions: leave it out, or \
             `position_embeddings_type: rotary`"
        })
    }

    /// Whether a new model's encoder has rotary positions.
    pub(super) fn is_rotary(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.position_embeddings_type == PositionEmbeddings::Rotary)
    }
}

/// Initialisation of new weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Initializer {
    /// Normal distribution with `init_std`, as in Hugging Face's code.
    #[default]
    Normal,
    /// Encoder heads that attend to neighbouring positions: for small models trained from scratch.
    Local,
}
