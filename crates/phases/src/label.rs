//! Texts that a model writes for recordings, as labels for another one.

use crate::normalize::{TextNormalizer, spelling_map};
use crate::{Experiment, Progress, RunError, SourceConfig, Split};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use undertone_data::audio::{Stored, wav_bytes};
use undertone_data::clips::Clips;
use undertone_metrics::{ErrorRate, wer};
use undertone_transcribe::{TranscribeError, Transcriber, Update};

/// Number of recordings that are in memory at a time.
const TOGETHER: usize = 64;

/// Result of [`label`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labelled {
    /// Number of recordings that were labelled.
    pub written: usize,
    /// Number of recordings that were left out because the model's text differs too much from that of the list.
    pub differing: usize,
    /// Number of recordings that were left out because the model wrote nothing.
    pub silent: usize,
    /// Recordings that could not be read, each with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Word error rate of the model over all recordings that have a text in the list, if there are any.
    pub wer: Option<f64>,
}

/// Transcribes the training recordings of an experiment, and calls `write` with a row of a list for each: the file, its start
/// and end, the text of the model as `text`, and, where the recording had a text, that as `reference` and the word error rate
/// against it as `wer`. Texts are compared as the experiment normalises them, with its spelling map or else that of the model. Rows above `max_wer` are left out: there the model,
/// or the list, is likely to be wrong (Gandhi et al., 2023, section 5.3).
///
/// # Errors
/// When there are no recordings in files of their own. Recordings that cannot be read are listed in the result instead.
pub fn label(
    experiment: &Experiment,
    transcriber: &Transcriber,
    spellings_of_model: Option<&[u8]>,
    max_wer: Option<f64>,
    progress: &dyn Progress,
    write: &mut dyn FnMut(Value),
) -> Result<Labelled, RunError> {
    let tasks = experiment.all_tasks();
    let sources = tasks.iter().filter_map(|task| task.data.splits().sources(Split::Train)).flatten();
    let recorded: Vec<SourceConfig> = sources.filter(SourceConfig::is_recorded).collect();
    if recorded.is_empty() {
        return Err(RunError::NothingToLabel);
    }
    let spellings = spelling_map(&experiment.data)?;
    let normalizer = TextNormalizer::new(experiment.data.normalizer, spellings.as_deref().or(spellings_of_model))?;
    let mut labelling =
        Labelling { transcriber, normalizer, max_wer, found: Labelled::default(), all: ErrorRate::default() };
    for source in &recorded {
        let clips = source.clips()?;
        if let Some(index) = (0..clips.len()).find(|index| clips.file(*index).is_none()) {
            return Err(RunError::NotInFiles(clips.clip(index).name.clone()));
        }
        progress.begin("labelling", clips.len());
        for start in (0..clips.len()).step_by(TOGETHER) {
            let some: Vec<usize> = (start..(start + TOGETHER).min(clips.len())).collect();
            labelling.some(&clips, &some, progress, write)?;
        }
        progress.end();
    }
    Ok(Labelled { wer: labelling.all.rate(), ..labelling.found })
}

struct Labelling<'a> {
    transcriber: &'a Transcriber,
    normalizer: TextNormalizer,
    max_wer: Option<f64>,
    found: Labelled,
    all: ErrorRate,
}

impl Labelling<'_> {
    /// Labels some recordings.
    fn some(
        &mut self,
        clips: &Clips,
        indices: &[usize],
        progress: &dyn Progress,
        write: &mut dyn FnMut(Value),
    ) -> Result<(), RunError> {
        let mut loaded = Vec::new();
        for index in indices {
            match clips.load(*index) {
                Ok(audio) => loaded.push((*index, audio)),
                Err(error) => {
                    self.found.unreadable.push((clips.clip(*index).name.clone(), error.to_string()));
                    progress.step();
                }
            }
        }
        let stored: Vec<Stored> = loaded
            .iter()
            .map(|(index, audio)| Stored::memory(clips.clip(*index).name.clone().into(), Arc::new(wav_bytes(audio))))
            .collect();
        let mut texts: Vec<Option<Result<String, TranscribeError>>> = stored.iter().map(|_| None).collect();
        let take = |update| {
            if let Update::Done { recording, transcript } = update {
                texts[recording] = Some(transcript.map(|transcript| transcript.text(0.0)));
                progress.step();
            }
            Ok::<(), RunError>(())
        };
        self.transcriber.recordings(&stored, take)?;
        for ((index, _), text) in loaded.iter().zip(texts) {
            match text {
                Some(Ok(text)) => self.row(clips, *index, text.trim()).into_iter().for_each(&mut *write),
                Some(Err(error)) => {
                    self.found.unreadable.push((clips.clip(*index).name.clone(), error.to_string()));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the row of a recording, if it is to be used.
    fn row(&mut self, clips: &Clips, index: usize, text: &str) -> Option<Value> {
        let clip = clips.clip(index);
        let path = clips.file(index)?;
        let mut row = Map::new();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let Some(absolute) = absolute.to_str() else {
            let reason = "the name of its file is no valid Unicode, which a list cannot hold: rename it";
            self.found.unreadable.push((clip.name.clone(), reason.into()));
            return None;
        };
        row.insert("audio".into(), json!(absolute));
        let times = [("start", clip.start), ("end", clip.end)];
        row.extend(times.into_iter().filter_map(|(key, time)| Some((key.to_owned(), json!(time?)))));
        let words = [("language", &clip.language), ("task", &clip.task)];
        row.extend(words.into_iter().filter_map(|(key, word)| Some((key.to_owned(), json!(word.as_ref()?)))));
        row.insert("text".into(), json!(text));
        if !clip.text.trim().is_empty() {
            let errors = wer(&self.normalizer.normalize(&clip.text), &self.normalizer.normalize(text));
            self.all += errors;
            row.insert("reference".into(), json!(clip.text));
            row.insert("wer".into(), json!(errors.rate()));
            if errors.rate().zip(self.max_wer).is_some_and(|(rate, most)| rate > most) {
                self.found.differing += 1;
                return None;
            }
        }
        if text.is_empty() {
            self.found.silent += 1;
            return None;
        }
        self.found.written += 1;
        Some(Value::Object(row))
    }
}
