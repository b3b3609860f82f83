//! Configuration of a synthesiser.

use super::super::ConfigError;
use super::super::error::ensure;
use crate::kinds::{self, REGISTER};
use std::fmt::{Display, Formatter};
use std::sync::{Arc, OnceLock};
use undertone_data::limits::MOST_SAMPLES;
use undertone_data::options::{Options, OptionsError, merged};
use undertone_data::source::SpeechSource;
use undertone_train::limits::MOST_EPOCHS;

/// Number of samples per epoch, where none is given.
pub(super) const SAMPLES: usize = 1000;

/// A synthesiser of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthesised {
    /// Name of its kind in [`undertone_data::source`]; without one, the kind that is registered as the default.
    pub synth: Option<String>,
    /// Its options, with all keys if its kind completes them ([`SpeechSource::complete`]).
    pub options: Options,
    /// Number of samples per epoch. Training has new ones every epoch, validation the same ones every time.
    pub samples: usize,
    /// Curriculum: each stage changes options for a number of epochs. After the last one `options` apply.
    pub stages: Vec<StageConfig>,
}

/// Stage of a curriculum.
#[derive(Clone, Debug, PartialEq)]
pub struct StageConfig {
    /// Number of epochs.
    pub epochs: u64,
    /// Options that differ.
    pub options: Options,
}

impl Default for Synthesised {
    fn default() -> Self {
        Self { synth: None, options: default_options(), samples: SAMPLES, stages: Vec::new() }
    }
}

/// Returns the options of the default kind, with the defaults of all keys.
pub(super) fn default_options() -> Options {
    // The default kind does not change once there is one.
    static DEFAULT: OnceLock<Options> = OnceLock::new();
    let Some(kind) = kinds::default() else { return Options::new() };
    DEFAULT.get_or_init(|| kind.complete(&Options::new()).unwrap_or_default()).clone()
}

impl Display for Synthesised {
    /// Writes the name of its kind, for people.
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        write!(f, "synth: {}", self.kind().as_ref().map_or("none", |kind| kind.name()))
    }
}

impl Synthesised {
    /// Returns its kind.
    ///
    /// # Errors
    /// If there is none of that name, or no default.
    pub fn kind(&self) -> Result<Arc<dyn SpeechSource>, ConfigError> {
        let missing = || format!("there is no source of speech by default: {REGISTER}, or name one as `synth`");
        match &self.synth {
            Some(name) => kinds::named(name).map_err(|error| ConfigError::Value(error.to_string())),
            None => kinds::default().ok_or_else(|| ConfigError::Value(missing())),
        }
    }

    /// Returns the complete options of a stage.
    ///
    /// # Errors
    /// Names the invalid key of the stage.
    pub fn stage(&self, index: usize) -> Result<Options, ConfigError> {
        let kind = self.kind()?;
        let merged = merged(self.options.clone(), &self.stages[index].options);
        let at = format!("stages[{index}].{}", self.key());
        kind.complete(&merged).map_err(|error| {
            ConfigError::Value(match error.within(&at) {
                OptionsError::Value(reason) => format!("`{at}`: {reason}"),
                error => error.to_string(),
            })
        })
    }

    /// Returns the options of each stage with the first epoch after it, and those of the epochs after all stages.
    pub(crate) fn curriculum(&self) -> Result<(Vec<(u64, Options)>, Options), ConfigError> {
        let mut end = 0_u64;
        let stage = |index: usize| {
            end = end.saturating_add(self.stages[index].epochs);
            Ok((end, self.stage(index)?))
        };
        let stages = (0..self.stages.len()).map(stage).collect::<Result<_, ConfigError>>()?;
        Ok((stages, self.options.clone()))
    }

    /// Returns a source of other samples for validation, with the settings after the curriculum.
    pub(crate) fn others(&self) -> Self {
        let samples = self.kind().map_or(0, |kind| kind.validation_samples());
        Self { samples, stages: Vec::new(), ..self.clone() }
    }

    /// Returns the key of its options in the YAML: the default kind has its name as a short spelling.
    pub(super) fn key(&self) -> String {
        let default = kinds::default().map(|kind| kind.name().to_owned());
        let own = default.filter(|default| self.synth.as_ref().is_none_or(|synth| synth == default));
        own.unwrap_or_else(|| "options".to_owned())
    }

    /// Checks everything that can be checked without making a sample. The error is the reason.
    pub(super) fn validate(&self, training: bool) -> Result<(), String> {
        let samples = self.samples;
        ensure(samples > 0, || "`samples` is 0: a synthesiser makes at least 1 per epoch")?;
        ensure(samples <= MOST_SAMPLES, || {
            format!("`samples` is {samples}: a synthesiser makes at most {MOST_SAMPLES} per epoch")
        })?;
        ensure(training || self.stages.is_empty(), || "`stages` are for training: other data is the same every time")?;
        for (index, StageConfig { epochs, .. }) in self.stages.iter().enumerate() {
            ensure((1..=MOST_EPOCHS).contains(epochs), || {
                format!("`stages[{index}].epochs` is {epochs}: it must be at least 1 and at most {MOST_EPOCHS}")
            })?;
        }
        if self.synth.is_none() && kinds::default().is_none() {
            // Nothing is wrong with a source that no run may ever open.
            return Ok(());
        }
        let kind = self.kind().map_err(|error| error.to_string())?;
        kind.complete(&self.options).map_err(|error| error.within(&self.key()).to_string())?;
        (0..self.stages.len()).try_for_each(|index| self.stage(index).map(drop)).map_err(|error| error.to_string())
    }
}
