//! Texts that a model writes for recordings, as labels for another one.

use crate::hash::hex;
use crate::label_record::LabelRecord;
use crate::normalize::{TextNormalizer, spelling_map};
use crate::{Experiment, Progress, RunError, SourceConfig, Split};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use undertone_data::audio::{Stored, wav_bytes};
use undertone_data::clips::{Clip, Clips, is_audio_column};
use undertone_metrics::{ErrorRate, wer};
use undertone_transcribe::{Language, Transcriber, Update};

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

/// Transcribes the training recordings of an experiment, each in its own language and for its own task where the list has them and
/// the model is multilingual. Calls `write` with a row of a list for each: the file, its start and end, the text of the model as
/// `text`, and, where the recording had a text, that as `reference` and the word error rate against it as `wer`. Texts are compared
/// as the experiment normalises them, with its spelling map or else that of the model. Rows above `max_wer` are left out: there the
/// model, or the list, is likely to be wrong (Gandhi et al., 2023, section 5.3).
///
/// Texts are added to `record` as they are written, and recordings whose texts it has are not transcribed again.
///
/// # Errors
/// When there are no recordings in files of their own, or the record cannot be written. Recordings that cannot be read are listed in
/// the result instead.
pub fn label(
    experiment: &Experiment,
    transcriber: &mut Transcriber,
    spellings_of_model: Option<&[u8]>,
    max_wer: Option<f64>,
    record: &mut LabelRecord,
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
    let usual = (transcriber.options().language.clone(), transcriber.options().task.clone());
    let model = transcriber.fingerprint();
    let (found, all) = (Labelled::default(), ErrorRate::default());
    let mut labelling = Labelling { transcriber, model, usual, normalizer, max_wer, record, found, all };
    for source in &recorded {
        let (clips, unusable) = source.clips_without_texts()?;
        let unusable = unusable.iter().map(|problem| (source.to_string(), problem.to_string()));
        labelling.found.unreadable.extend(unusable);
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
    let (language, task) = labelling.usual;
    labelling.transcriber.set_language_and_task(language, task)?;
    Ok(Labelled { wer: labelling.all.rate(), ..labelling.found })
}

/// Language and task.
type LanguageAndTask = (Language, Option<String>);
/// Texts of the model by the indices of their recordings, or the reasons why there is none.
type Texts = BTreeMap<usize, Result<String, String>>;

struct Labelling<'a> {
    transcriber: &'a mut Transcriber,
    /// Checksum of the model and its settings.
    model: String,
    /// Language and task of recordings that have none of their own.
    usual: LanguageAndTask,
    normalizer: TextNormalizer,
    max_wer: Option<f64>,
    record: &'a mut LabelRecord,
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
        let (mut texts, mut alike) = (Texts::new(), Vec::<(LanguageAndTask, Vec<(usize, Stored)>)>::new());
        for index in indices {
            let clip = clips.clip(*index);
            if let Some(text) = self.record.text(&self.key(clips, *index)) {
                texts.insert(*index, Ok(text.to_owned()));
                progress.step();
                continue;
            }
            match clips.load(*index) {
                Ok(audio) => {
                    let stored = Stored::memory(clip.name.clone().into(), Arc::new(wav_bytes(&audio)));
                    let words = self.language_and_task(clip);
                    match alike.iter_mut().find(|(known, _)| *known == words) {
                        Some((_, recordings)) => recordings.push((*index, stored)),
                        None => alike.push((words, vec![(*index, stored)])),
                    }
                }
                Err(error) => {
                    texts.insert(*index, Err(error.to_string()));
                    progress.step();
                }
            }
        }
        for (words, recordings) in alike {
            self.transcribe(clips, words, recordings, progress, &mut texts)?;
        }
        for (index, text) in texts {
            match text {
                Ok(text) => self.row(clips, index, text.trim()).into_iter().for_each(&mut *write),
                Err(reason) => self.found.unreadable.push((clips.clip(index).name.clone(), reason)),
            }
        }
        Ok(())
    }

    /// Returns a key of everything that the text of a recording depends on.
    fn key(&self, clips: &Clips, index: usize) -> String {
        let (language, task) = self.language_and_task(clips.clip(index));
        let said = format!("{} {language:?} {task:?} {}", self.model, clips.key(index));
        hex(Sha256::new().chain_update(said))
    }

    /// Returns the language and the task in which a recording is transcribed.
    fn language_and_task(&self, clip: &Clip) -> LanguageAndTask {
        let (language, task) = self.usual.clone();
        if !self.transcriber.is_multilingual() {
            return (language, task);
        }
        (clip.language.clone().map_or(language, Language::Code), clip.task.clone().or(task))
    }

    /// Transcribes recordings of one language and task.
    fn transcribe(
        &mut self,
        clips: &Clips,
        (language, task): LanguageAndTask,
        recordings: Vec<(usize, Stored)>,
        progress: &dyn Progress,
        texts: &mut Texts,
    ) -> Result<(), RunError> {
        let (indices, stored): (Vec<usize>, Vec<Stored>) = recordings.into_iter().unzip();
        if let Err(error) = self.transcriber.set_language_and_task(language, task) {
            texts.extend(indices.into_iter().inspect(|_| progress.step()).map(|index| (index, Err(error.to_string()))));
            return Ok(());
        }
        let keys: Vec<String> = indices.iter().map(|index| self.key(clips, *index)).collect();
        self.transcriber.recordings(&stored, |update| {
            if let Update::Done { recording, transcript, error } = update {
                let text = error.map_or_else(|| Ok(transcript.text(0.0)), |error| Err(error.to_string()));
                if let Ok(text) = &text {
                    self.record.add(keys[recording].clone(), text)?;
                }
                texts.insert(indices[recording], text);
                progress.step();
            }
            Ok(())
        })
    }

    /// Returns the row of a recording, if it is to be used.
    fn row(&mut self, clips: &Clips, index: usize, text: &str) -> Option<Value> {
        let clip = clips.clip(index);
        let path = clips.file(index)?;
        let mut row = Map::new();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let Some(absolute) = absolute.to_str() else {
            let reason = "the name of its file is not valid Unicode, which a list cannot hold: rename it";
            self.found.unreadable.push((clip.name.clone(), reason.into()));
            return None;
        };
        // First those by which splits are made; a path has been made absolute.
        let columns = clip.origin.columns().into_iter().filter(|(name, _)| !is_audio_column(name));
        row.extend(columns.map(|(name, value)| (name, json!(value))));
        row.insert("audio".into(), json!(absolute));
        let times = [("start", clip.start), ("end", clip.end)];
        row.extend(times.into_iter().filter_map(|(key, time)| Some((key.to_owned(), json!(time?)))));
        row.extend(clip.channel.map(|channel| ("channel".to_owned(), json!(channel))));
        let words = [("language", &clip.language), ("task", &clip.task)];
        row.extend(words.into_iter().filter_map(|(key, word)| Some((key.to_owned(), json!(word.as_ref()?)))));
        row.insert("text".into(), json!(text));
        if !clip.text.trim().is_empty() {
            let errors = wer(&self.normalizer.normalize(&clip.text), &self.normalizer.normalize(text));
            self.all += errors;
            row.insert("reference".into(), json!(clip.text));
            row.insert("wer".into(), json!(errors.rate()));
            // A text whose words are all taken out, like `(laughs)`, has no rate.
            let is_above = |most: f64| errors.rate().map_or(errors.edits.total() > 0, |rate| rate > most);
            if self.max_wer.is_some_and(is_above) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::speech::tests::two_seconds;
    use burn::tensor::Device;
    use std::path::Path;
    use undertone_data::audio::write_wav;
    use undertone_model::whisper::{GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer};
    use undertone_transcribe::TranscribeOptions;

    /// A transcriber with random weights and two languages.
    fn transcriber(language: &str) -> Transcriber {
        undertone_ops::seed(3);
        // Large weights, so that a token of the prompt changes the text.
        let config = WhisperConfig { init_std: 0.5, ..two_seconds() };
        let (device, letters) = (Device::flex(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ ");
        let tokenizer = WhisperTokenizer::of_characters(letters, &["en", "de"]).expect("a tokenizer");
        let whisper = PretrainedWhisper::init(config, tokenizer, GenerationConfig::new(true), &device);
        let options = TranscribeOptions::plain(Some(language), Some("transcribe"));
        Transcriber::new(whisper.expect("a model"), &device, options).expect("a transcriber")
    }

    fn rows(list: &Path, max_wer: Option<f64>) -> (Vec<Value>, Labelled) {
        let mut record = LabelRecord::open(&list.with_extension("partial")).expect("a record");
        let path = |split: &str| format!("data.{split}={{path: {}}}", list.display());
        let settings = [path("train"), path("valid"), "data.normalizer=basic".into()];
        let experiment = Experiment::load(None, &settings).expect("a configuration");
        let mut rows = Vec::new();
        let mut write = |row| rows.push(row);
        let found = label(&experiment, &mut transcriber("en"), None, max_wer, &mut record, &Unwatched, &mut write);
        (rows, found.expect("labelled"))
    }

    #[test]
    fn each_recording_is_transcribed_in_its_own_language() {
        let dir = tempfile::tempdir().expect("a directory");
        let audio: Vec<f32> = (0..16_000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
        write_wav(&dir.path().join("a.wav"), &audio).expect("written");
        let list = dir.path().join("list.csv");
        std::fs::write(&list, "audio,text,language\na.wav,,de\na.wav,,\na.wav,,fr\na.wav,,de\n").expect("written");
        let (rows, found) = self::rows(&list, None);
        let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().expect("a text")).collect();
        let [german, english] = ["de", "en"].map(|language| transcriber(language).audio(&audio).trim().to_owned());
        assert_ne!(german, english);
        assert_eq!(texts, [&german, &english, &german]);
        assert!(found.unreadable.len() == 1 && found.unreadable[0].1.contains("fr"), "{found:?}");
        // Once more: texts that are on record are those of the list, whatever the model would write.
        let record = list.with_extension("partial");
        let lines = std::fs::read_to_string(&record).expect("a record");
        let mut kept: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(kept.len(), 3, "{lines}");
        kept.truncate(1);
        kept[0]["text"] = "as recorded".into();
        std::fs::write(&record, format!("{}\n", kept[0])).expect("written");
        let (again, _) = self::rows(&list, None);
        assert_eq!(again.iter().filter(|row| row["text"] == "as recorded").count(), 2, "both in German: {again:?}");
        assert_eq!(again[1], rows[1]);
    }

    #[test]
    fn a_text_of_which_nothing_is_left_differs_from_every_other() {
        let dir = tempfile::tempdir().expect("a directory");
        write_wav(&dir.path().join("a.wav"), &[0.1; 16_000]).expect("written");
        let list = dir.path().join("list.csv");
        std::fs::write(&list, "audio,text\na.wav,(laughs)\n").expect("written");
        let (rows, found) = rows(&list, Some(100.0));
        assert_eq!((rows.len(), found.differing), (0, 1));
    }
}
