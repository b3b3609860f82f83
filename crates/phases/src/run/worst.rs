//! The samples with the most errors, with their audio.

use super::batch::TaskDataset;
use super::scored::{ScoredSample, ScoredTask};
use crate::{RunError, SampleAudio};
use undertone_data::audio::wav_bytes;
use undertone_metrics::{cer, wer};
use undertone_report::WorstSample;

/// Number of samples that are shown.
const WORST: usize = 20;

/// Maximum size of their audio together, in bytes: 262 seconds.
const MOST_BYTES: usize = 8 << 20;

/// Returns the samples with the most errors in their texts, the worst first: characters, or words where a task's first
/// metric is the word error rate. These errors are what the error rate of the whole consists of. Recordings have their
/// audio, as long as it fits a page.
pub(super) fn worst(scored: &[ScoredTask], data: &TaskDataset) -> Result<Vec<WorstSample>, RunError> {
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (number, task) in scored.iter().enumerate().filter(|(_, task)| task.errors("cer").is_some()) {
        let by_words = task.metrics().first().is_some_and(|metric| metric.name == "wer");
        let errors = task.samples.iter().map(|sample| errors(sample, by_words));
        found.extend(
            errors.enumerate().filter(|(_, errors)| *errors > 0).map(|(sample, errors)| (errors, number, sample)),
        );
    }
    // A stable order, so that equally bad samples are in the order of the data.
    found.sort_by_key(|(errors, ..)| std::cmp::Reverse(*errors));
    let mut room = MOST_BYTES;
    let shown = found.into_iter().take(WORST).map(|(errors, number, index)| {
        let task = &scored[number];
        let ScoredSample { text, facts } = &task.samples[index];
        let wav = match facts.length {
            Some(_) => wav(data, number, index)?.filter(|wav| wav.len() <= room),
            None => None,
        };
        room -= wav.as_ref().map_or(0, Vec::len);
        Ok(WorstSample {
            task: task.name.clone(),
            name: text.name.clone(),
            reference: text.reference.clone(),
            hypothesis: text.hypothesis.clone(),
            errors,
            seconds: facts.seconds(),
            audio: wav,
        })
    });
    shown.collect()
}

fn errors(sample: &ScoredSample, by_words: bool) -> usize {
    let of = if by_words { wer } else { cer };
    of(&sample.text.reference, &sample.text.hypothesis).edits.total()
}

/// Returns the audio of a recording as a WAV file; `None` if only its features are kept.
fn wav(data: &TaskDataset, task: usize, index: usize) -> Result<Option<Vec<u8>>, RunError> {
    let sample = data.tasks()[task].sample(index, 0).map_err(RunError::Evaluate)?;
    Ok(match sample.speech().map(|sample| sample.audio) {
        Some(SampleAudio::Audio(audio)) => Some(wav_bytes(&audio)),
        Some(SampleAudio::Features(_) | SampleAudio::States(_)) | None => None,
    })
}
