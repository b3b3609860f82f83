//! How the texts of a run's tasks are written, for its router.

use super::setup::Setup;
use super::spec::StageSpec;
use crate::{RunError, Split};
use std::path::{Path, PathBuf};
use undertone_model::word_counts::WordCounts;
use undertone_store::{Dtype, TensorFile, write_tensors};

/// Name of the file in the directory of a stage with a router.
pub(crate) const WORDS: &str = "words.safetensors";

/// Returns the path of the file of a stage.
pub(super) fn path(stage: &StageSpec) -> PathBuf {
    stage.directory.join(WORDS)
}

/// Counts the words of the training texts of a stage's tasks; `None` for a stage without a router, and for speech.
pub(super) fn count(stage: &StageSpec, setup: &Setup) -> Result<Option<WordCounts>, RunError> {
    if !stage.is_routed() || setup.pretrained.text().is_none() {
        return Ok(None);
    }
    let dataset = setup.dataset(&stage.tasks, Split::Train)?;
    let texts = dataset.tasks().iter().enumerate().flat_map(|(task, samples)| {
        let samples = samples.texts().map_or(&[][..], |texts| texts.samples());
        // The windows of one context are one text.
        samples.chunk_by(|a, b| a.name == b.name).map(move |windows| (&*windows[0].text, task))
    });
    Ok(WordCounts::count(texts, stage.tasks.len()))
}

/// Writes the words of a stage's tasks into its directory, unless they are there.
pub(super) fn record(stage: &StageSpec, setup: &Setup) -> Result<(), RunError> {
    let path = path(stage);
    if path.exists() {
        return Ok(());
    }
    match count(stage, setup)? {
        Some(words) => Ok(write_tensors(&path, &words.tensors(), Dtype::F32)?),
        None => Ok(()),
    }
}

/// Reads the words of this number of tasks from the directory of a stage.
pub(super) fn read(stage: &Path, tasks: usize) -> Result<WordCounts, RunError> {
    let (path, missing) =
        (stage.join(WORDS), || RunError::NotRecorded { key: "router.words", stage: stage.to_owned() });
    if !path.exists() {
        return Err(missing());
    }
    WordCounts::read(&TensorFile::open(&path)?, tasks)?.ok_or_else(missing)
}
