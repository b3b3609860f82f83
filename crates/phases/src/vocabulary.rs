//! The initial Whisper of an experiment. Its vocabulary may have to be trained on the texts first.

use crate::config::TaskConfig;
use crate::{Experiment, SourceConfig, SourceError, Split, Synthesised};
use burn::tensor::Device;
use serde_json::Value;
use undertone_data::source::SourceRequest;
use undertone_model::whisper::{PretrainedWhisper, WhisperTokenizer};
use undertone_train::BoxError;

/// Maximum number of utterances of a synthesiser for training a vocabulary. Each has to be synthesised for it.
const MOST_UTTERANCES: usize = 10_000;

impl Experiment {
    /// Loads or initialises the initial Whisper of the experiment on `device`.
    ///
    /// # Errors
    /// When it is not available, or its vocabulary has to be trained and the training data has no texts for that.
    pub fn load_whisper(&self, device: &Device) -> Result<PretrainedWhisper, SourceError> {
        let size = self.model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.vocab_size);
        let trained = size.map(|size| self.trained_vocabulary(size)).transpose()?;
        let mut whisper = self.model.load_with(trained, device, self.seed)?;
        if whisper.generation.reader.is_none() {
            whisper.generation.reader = self.reader();
        }
        Ok(whisper)
    }

    fn trained_vocabulary(&self, vocab_size: usize) -> Result<WhisperTokenizer, SourceError> {
        let mut texts = Vec::new();
        for task in self.all_tasks() {
            texts.extend(self.texts(&task).map_err(SourceError::Corpus)?);
        }
        if texts.iter().all(|text| text.trim().is_empty()) {
            return Err(SourceError::Corpus("the training data has no texts to train it on".into()));
        }
        let positions = self.model.source.config.as_ref().map_or(0, |config| config.max_source_positions);
        let texts = texts.iter().map(String::as_str);
        // One timestamp token for each position, and one for the end of the last.
        Ok(WhisperTokenizer::train(texts, vocab_size, &[&self.data.language], positions + 1)?)
    }

    /// Returns the texts of a task's training data.
    fn texts(&self, task: &TaskConfig) -> Result<Vec<String>, BoxError> {
        let mut texts = Vec::new();
        for source in task.data.splits().sources(Split::Train).unwrap_or_default() {
            texts.extend(match source.synthesised() {
                Some(synthesised) => self.synthesised(task, synthesised)?,
                None => recorded(&source)?,
            });
        }
        Ok(texts)
    }

    fn synthesised(&self, task: &TaskConfig, source: &Synthesised) -> Result<Vec<String>, BoxError> {
        let kind = source.kind()?;
        if kind.alphabet().is_some() {
            return Err(format!("`{}` writes an alphabet of its own: leave out `model.tokenizer`", kind.name()).into());
        }
        let config = Value::Object(source.options.clone());
        let seed = Split::Train.seed(task.seed(self.seed));
        let utterances = kind.open(&SourceRequest { config, samples: source.samples, seed })?;
        let count = utterances.len().min(MOST_UTTERANCES);
        (0..count).map(|index| Ok(utterances.get(index, 0)?.text)).collect()
    }
}

fn recorded(source: &SourceConfig) -> Result<Vec<String>, BoxError> {
    // What is wrong with the others is said where the samples are made.
    let (clips, _) = source.usable_clips()?;
    let text = |index| {
        let clip = clips.clip(index);
        // If times are known, the texts are those of the segments.
        if clip.segments.is_empty() {
            vec![clip.text.clone()]
        } else {
            clip.segments.iter().map(|s| s.text.clone()).collect()
        }
    };
    Ok((0..clips.len()).flat_map(text).collect())
}
