//! Normalisation of texts before they are compared, with the spelling map of the model's folder.

use crate::{DataConfig, Normalizer};
use std::borrow::Cow;
use undertone_data::text::{BasicNormalizer, EnglishNormalizer, NormalizerError};
use undertone_model::whisper::PretrainedWhisper;

/// [`Normalizer`] that is ready for use.
#[derive(Clone, Debug)]
pub enum TextNormalizer {
    /// No normalisation.
    None,
    /// Whisper's basic normaliser.
    Basic,
    /// Whisper's English normaliser.
    English(EnglishNormalizer),
}

/// Returns the content of the spelling map that `data` names, if it names one.
pub(crate) fn spelling_map(data: &DataConfig) -> Result<Option<Vec<u8>>, NormalizerError> {
    let Some(path) = &data.spellings else { return Ok(None) };
    let spellings = std::fs::read(path).map_err(|source| NormalizerError::Read { path: path.clone(), source })?;
    EnglishNormalizer::from_json(path, &spellings)?;
    Ok(Some(spellings))
}

impl TextNormalizer {
    /// Returns the normaliser of this kind with the spelling map of a model, the content of its `normalizer.json`.
    ///
    /// # Errors
    /// When that is not a spelling map.
    pub fn new(kind: Normalizer, spellings: Option<&[u8]>) -> Result<Self, NormalizerError> {
        Ok(match kind {
            Normalizer::None => Self::None,
            Normalizer::Basic => Self::Basic,
            Normalizer::English => Self::English(match spellings {
                Some(json) => EnglishNormalizer::from_json(PretrainedWhisper::SPELLINGS, json)?,
                None => EnglishNormalizer::new(),
            }),
        })
    }

    /// Returns the normalised text.
    pub fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self {
            Self::None => text.into(),
            Self::Basic => BasicNormalizer::default().normalize(text).into(),
            Self::English(english) => english.normalize(text).into(),
        }
    }

    /// Returns a remark on error rates that use it, if there is one.
    pub fn remark(&self) -> Option<String> {
        match self {
            Self::English(english) if !english.has_spellings() => Some(
                "`data.normalizer: english` has no spelling map, so that `colour` for `color` counts as an error and error \
                 rates are not comparable with published ones: name the `normalizer.json` of a Whisper as \
                 `data.spellings`, or put it into the model's folder"
                    .into(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::tests::two_seconds;
    use burn::tensor::Device;
    use undertone_metrics::wer;
    use undertone_model::whisper::{GenerationConfig, WhisperTokenizer};

    fn whisper() -> PretrainedWhisper {
        let tokenizer = WhisperTokenizer::of_characters("ab", &["en"]).expect("a tokenizer");
        PretrainedWhisper::init(two_seconds(), tokenizer, GenerationConfig::new(true), &Device::default())
            .expect("a model")
    }

    fn error_rate(whisper: &PretrainedWhisper, kind: Normalizer) -> (Option<f64>, bool) {
        let normalizer = TextNormalizer::new(kind, whisper.spellings()).expect("a normaliser");
        let rate =
            wer(&normalizer.normalize("What colour, Dr. Grey?"), &normalizer.normalize("what color doctor gray"));
        (rate.rate(), normalizer.remark().is_some())
    }

    #[test]
    fn british_is_american_where_the_model_has_the_spellings_and_else_the_metric_says_so() {
        let mut whisper = whisper();
        assert_eq!(error_rate(&whisper, Normalizer::English), (Some(0.5), true));
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spellings.json");
        std::fs::write(&path, r#"{"colour": "color", "grey": "gray"}"#).expect("written");
        let data = DataConfig { spellings: Some(path.clone()), ..Default::default() };
        whisper.set_spellings(spelling_map(&data).expect("read").expect("spellings"));
        assert_eq!(error_rate(&whisper, Normalizer::English), (Some(0.0), false));
        assert_eq!(error_rate(&whisper, Normalizer::Basic), (Some(0.75), false));
        assert_eq!(error_rate(&whisper, Normalizer::None), (Some(1.0), false));
        // The map is saved with the model.
        let folder = dir.path().join("model");
        whisper.save(&folder, undertone_store::Dtype::F32).expect("saved");
        let loaded = PretrainedWhisper::load(&folder, &Device::default()).expect("loaded");
        assert_eq!(error_rate(&loaded, Normalizer::English), (Some(0.0), false));
        std::fs::write(&path, "[]").expect("written");
        let error = spelling_map(&data).expect_err("refused").to_string();
        assert!(error.contains("spellings.json"), "{error}");
    }
}
