//! Collation of samples into batches, in host memory.

use crate::{Pad, SampleAudio, SpeechSample};
use undertone_data::augment::Augment;
use undertone_data::features::LogMel;
use undertone_data::loader::{Collate, SampleError};
use undertone_fit::BatchSize;

/// Batch for Whisper, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct WhisperBatch {
    /// Names of the samples.
    pub names: Vec<String>,
    /// Reference texts of the samples.
    pub texts: Vec<String>,
    /// Log-mel features, `[batch, bins, frames]`.
    pub mel: Vec<f32>,
    /// Number of mel bins.
    pub bins: usize,
    /// Number of frames of 10 ms.
    pub frames: usize,
    /// Prompt of each sample: the tokens before its text.
    pub prompts: Vec<Vec<u32>>,
    /// Input tokens of the decoder, `[batch, tokens]`: all but the last token, padded with the end token.
    pub inputs: Vec<i64>,
    /// Next tokens as labels, `[batch, tokens]`: the text and the end token, -100 for the prompt and padding.
    pub labels: Vec<i64>,
    /// Number of tokens per row.
    pub tokens: usize,
    /// Alignment targets of the encoder, `[batch, positions]` each, if they are needed.
    pub alignment: Option<(Vec<i64>, Vec<i64>)>,
    /// Random number of the first sample, which seeds the randomness of the batch as a whole.
    pub draw: u64,
}

impl WhisperBatch {
    /// Returns the labels of a row.
    pub fn row_labels(&self, row: usize) -> &[i64] {
        &self.labels[row * self.tokens..][..self.tokens]
    }

    /// Returns the size of the batch.
    pub fn shape(&self) -> BatchSize {
        BatchSize { samples: self.names.len(), length: self.frames, speech: true, labels: self.tokens }
    }
}

/// Collates batches for one model.
pub struct WhisperCollate {
    log_mel: LogMel,
    augment: Option<Augment>,
    pad: Pad,
    /// Maximum input length, in audio samples.
    window: usize,
    /// End token, which pads rows.
    end: u32,
}

/// Number of audio samples per encoder position.
pub(crate) const POSITION: usize = 320;
const IGNORED: i64 = -100;

impl WhisperCollate {
    /// Returns a collator for a model with these mel features and this window, in audio samples.
    pub fn new(log_mel: LogMel, pad: Pad, window: usize, end: u32) -> Self {
        Self { log_mel, augment: None, pad, window, end }
    }

    /// Adds masking of features.
    pub fn with_augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }
}

impl Collate<SpeechSample> for WhisperCollate {
    type Batch = WhisperBatch;

    fn collate(&self, items: Vec<SpeechSample>) -> Result<WhisperBatch, SampleError> {
        let longest = items.iter().map(|s| s.heard.samples()).max().unwrap_or_default();
        let samples = match self.pad {
            Pad::Longest => longest.next_multiple_of(POSITION).clamp(POSITION, self.window),
            Pad::Window => self.window,
        };
        let (bins, frames) = (self.log_mel.bins(), LogMel::frames(samples));
        let mut mel = vec![0.0; items.len() * bins * frames];
        for (sample, out) in items.iter().zip(mel.chunks_mut(bins * frames)) {
            match &sample.heard {
                SampleAudio::Audio(audio) => self.log_mel.features_padded_into(audio, samples, out)?,
                SampleAudio::Features(mel) => mel.pad_into(frames, out),
            }
            if let Some(augment) = &self.augment {
                let valid = LogMel::frames(sample.heard.samples());
                augment.features(out, bins, frames, valid, sample.draw);
            }
        }
        let tokens = items.iter().map(|s| s.tokens.len() - 1).max().unwrap_or_default();
        let mut inputs = Vec::with_capacity(items.len() * tokens);
        let mut labels = Vec::with_capacity(items.len() * tokens);
        for sample in &items {
            let row: Vec<i64> = sample.tokens.iter().map(|id| i64::from(*id)).collect();
            let padding = tokens + 1 - row.len();
            inputs.extend(&row[..row.len() - 1]);
            inputs.extend(std::iter::repeat_n(i64::from(self.end), padding));
            labels.extend(std::iter::repeat_n(IGNORED, sample.prompt - 1));
            labels.extend(&row[sample.prompt..]);
            labels.extend(std::iter::repeat_n(IGNORED, padding));
        }
        let positions = samples / POSITION;
        let alignment = items.iter().map(|s| s.alignment.as_ref()).collect::<Option<Vec<_>>>().map(|all| {
            let padded = |values: &[i64]| {
                values.iter().copied().chain(std::iter::repeat(IGNORED)).take(positions).collect::<Vec<_>>()
            };
            (
                all.iter().flat_map(|a| padded(&a.characters)).collect(),
                all.iter().flat_map(|a| padded(&a.elements)).collect(),
            )
        });
        let draw = items.first().map_or(0, |s| s.draw);
        Ok(WhisperBatch {
            names: items.iter().map(|s| s.name.clone()).collect(),
            texts: items.iter().map(|s| s.text.clone()).collect(),
            prompts: items.iter().map(|s| s.tokens[..s.prompt].to_vec()).collect(),
            mel,
            bins,
            frames,
            inputs,
            labels,
            tokens,
            alignment,
            draw,
        })
    }

    fn bytes(batch: &WhisperBatch) -> usize {
        let alignment = batch.alignment.as_ref().map_or(0, |(a, b)| a.len() + b.len());
        4 * batch.mel.len() + 8 * (batch.inputs.len() + batch.labels.len() + alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(audio: usize, text: &[u32]) -> SpeechSample {
        let mut tokens = vec![100, 101];
        tokens.extend(text);
        tokens.push(9);
        SpeechSample {
            name: "s".into(),
            heard: SampleAudio::Audio(vec![0.1; audio]),
            text: String::new(),
            tokens,
            prompt: 2,
            alignment: None,
            draw: 0,
        }
    }

    #[test]
    fn labels_are_the_inputs_shifted_without_the_prompt() {
        let collate = WhisperCollate::new(LogMel::new(80).expect("80 bins"), Pad::Longest, 16000, 9);
        let batch = collate.collate(vec![sample(3000, &[1, 2, 3]), sample(1000, &[])]).expect("a batch");
        assert_eq!(batch.inputs, [100, 101, 1, 2, 3, 100, 101, 9, 9, 9]);
        assert_eq!(batch.labels, [-100, 1, 2, 3, 9, -100, 9, -100, -100, -100]);
        assert_eq!((batch.frames, batch.mel.len()), (20, 2 * 80 * 20), "3000 samples are padded to 10 positions");
    }

    #[test]
    fn a_window_is_a_window() {
        let collate = WhisperCollate::new(LogMel::new(80).expect("80 bins"), Pad::Window, 16000, 9);
        assert_eq!(collate.collate(vec![sample(10, &[1])]).expect("a batch").frames, 100);
    }
}
