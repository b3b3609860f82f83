//! Collation of samples into batches, in host memory.

use crate::backbone::{SpeechBackbone, SpeechTargets};
use crate::{Pad, SampleAudio, SampleFacts, SpeechSample};
use undertone_data::augment::Augment;
use undertone_data::cache::{Key, States};
use undertone_data::features::{FeatureError, LogMel};
use undertone_data::loader::{Collate, SampleError};

/// Batch for a speech backbone, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechBatch {
    /// Names of the samples.
    pub names: Vec<String>,
    /// Reference texts of the samples.
    pub texts: Vec<String>,
    /// What else is known about the samples.
    pub facts: Vec<SampleFacts>,
    /// Log-mel features, `[batch, bins, frames]`, without the rows whose states are known.
    pub mel: Vec<f32>,
    /// States of a frozen encoder, if they are kept.
    pub states: Option<Vec<RowStates>>,
    /// Number of mel bins.
    pub bins: usize,
    /// Number of frames of 10 ms.
    pub frames: usize,
    /// Number of positions of the backbone's states.
    pub positions: usize,
    /// Prompt of each sample: the tokens before its text.
    pub prompts: Vec<Vec<u32>>,
    /// Input tokens of the decoder, `[batch, tokens]`: all but the last token, padded with the end token. Empty if the
    /// backbone has no end token (CTC).
    pub inputs: Vec<i64>,
    /// Labels, `[batch, tokens]`: the next tokens, thus text and end token, or the text alone if there is no end token;
    /// -100 for the prompt and padding.
    pub labels: Vec<i64>,
    /// Number of tokens per row.
    pub tokens: usize,
    /// Alignment targets of the encoder, `[batch, positions]` each, if they are needed.
    pub alignment: Option<(Vec<i64>, Vec<i64>)>,
    /// Random number of the first sample, which seeds the randomness of the batch as a whole.
    pub draw: u64,
}

/// Last states of a frozen encoder for a row of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum RowStates {
    /// Known from the cache.
    Known(States),
    /// To be computed; and kept, if there is a key.
    Missing(Option<Key>),
}

impl SpeechBatch {
    /// Number of rows of [`mel`](Self::mel).
    pub fn mel_rows(&self) -> usize {
        self.mel.len() / (self.bins * self.frames).max(1)
    }

    /// Returns the reference texts as tokens.
    pub fn targets(&self) -> SpeechTargets<'_> {
        SpeechTargets { tokens: self.tokens, inputs: &self.inputs, labels: &self.labels }
    }
}

/// Collates batches for one model.
pub struct SpeechCollate {
    log_mel: LogMel,
    augment: Option<Augment>,
    pad: Pad,
    /// Maximum input length, in audio samples.
    window: usize,
    /// Number of audio samples per position of the backbone's states.
    position: usize,
    /// End token, which pads rows, if the backbone has one.
    end: Option<u32>,
}

const IGNORED: i64 = -100;

impl SpeechCollate {
    /// Returns a collator for a backbone.
    ///
    /// # Errors
    /// When Whisper has no features with its number of mel bins.
    pub fn new(speech: &SpeechBackbone, pad: Pad) -> Result<Self, FeatureError> {
        let (log_mel, position) = (LogMel::new(speech.mel_bins)?, speech.position());
        Ok(Self { log_mel, augment: None, pad, window: speech.window(), position, end: speech.tokenizer.end() })
    }

    /// Number of audio samples per position of the backbone's states.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Adds masking of features.
    pub fn with_augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }
}

impl Collate<SpeechSample> for SpeechCollate {
    type Batch = SpeechBatch;

    fn collate(&self, items: Vec<SpeechSample>) -> Result<SpeechBatch, SampleError> {
        let longest = items.iter().map(|s| s.audio.samples()).max().unwrap_or_default();
        let samples = match self.pad {
            Pad::Longest => longest.next_multiple_of(self.position).clamp(self.position.min(self.window), self.window),
            Pad::Window => self.window,
        };
        let (bins, frames) = (self.log_mel.bins(), LogMel::frames(samples));
        let computed: Vec<&SpeechSample> =
            items.iter().filter(|sample| !matches!(sample.audio, SampleAudio::States(_))).collect();
        let mut mel = vec![0.0; computed.len() * bins * frames];
        for (sample, out) in computed.iter().zip(mel.chunks_mut(bins * frames)) {
            match &sample.audio {
                SampleAudio::Audio(audio) => self.log_mel.features_padded_into(audio, samples, out)?,
                SampleAudio::Features(mel) => mel.pad_into(frames, out),
                SampleAudio::States(_) => {}
            }
            if let Some(augment) = &self.augment {
                let valid = LogMel::frames(sample.audio.samples());
                augment.features(out, bins, frames, valid, sample.draw);
            }
        }
        // A decoder reads all tokens but the last, and the labels are the tokens after them.
        let shift = usize::from(self.end.is_some());
        let tokens = items.iter().map(|s| s.tokens.len() - shift).max().unwrap_or_default();
        let mut inputs = Vec::with_capacity(shift * items.len() * tokens);
        let mut labels = Vec::with_capacity(items.len() * tokens);
        for sample in &items {
            let row: Vec<i64> = sample.tokens.iter().map(|id| i64::from(*id)).collect();
            let padding = tokens + shift - row.len();
            if let Some(end) = self.end {
                inputs.extend(&row[..row.len() - 1]);
                inputs.extend(std::iter::repeat_n(i64::from(end), padding));
            }
            labels.extend(std::iter::repeat_n(IGNORED, sample.prompt - shift));
            labels.extend(&row[sample.prompt..]);
            labels.extend(std::iter::repeat_n(IGNORED, padding));
        }
        let positions = samples.div_ceil(self.position);
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
        Ok(SpeechBatch {
            names: items.iter().map(|s| s.name.clone()).collect(),
            texts: items.iter().map(|s| s.text.clone()).collect(),
            facts: items.iter().map(SpeechSample::facts).collect(),
            prompts: items.iter().map(|s| s.tokens[..s.prompt].to_vec()).collect(),
            mel,
            bins,
            frames,
            positions,
            inputs,
            labels,
            tokens,
            alignment,
            draw,
            states: states_of(items),
        })
    }

    fn bytes(batch: &SpeechBatch) -> usize {
        let alignment = batch.alignment.as_ref().map_or(0, |(a, b)| a.len() + b.len());
        let known = |row: &RowStates| match row {
            RowStates::Known(states) => states.data.len(),
            RowStates::Missing(_) => 0,
        };
        let states: usize = batch.states.iter().flatten().map(known).sum();
        4 * (batch.mel.len() + states) + 8 * (batch.inputs.len() + batch.labels.len() + alignment)
    }
}

/// Returns the states of samples; `None` if there are none, and none are to be kept.
fn states_of(items: Vec<SpeechSample>) -> Option<Vec<RowStates>> {
    let row = |sample: SpeechSample| match sample.audio {
        SampleAudio::States(states) => RowStates::Known(states),
        SampleAudio::Audio(_) | SampleAudio::Features(_) => RowStates::Missing(sample.states),
    };
    let rows: Vec<RowStates> = items.into_iter().map(row).collect();
    rows.iter().any(|row| *row != RowStates::Missing(None)).then_some(rows)
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
            audio: SampleAudio::Audio(vec![0.1; audio]),
            states: None,
            text: String::new(),
            tokens,
            prompt: 2,
            alignment: None,
            columns: [("speaker".to_owned(), "anna".to_owned())].into(),
            draw: 0,
        }
    }

    fn collate(pad: Pad, end: Option<u32>) -> SpeechCollate {
        let log_mel = LogMel::new(80).expect("80 bins");
        SpeechCollate { log_mel, augment: None, pad, window: 16000, position: 320, end }
    }

    #[test]
    fn labels_are_the_inputs_shifted_without_the_prompt() {
        let collate = collate(Pad::Longest, Some(9));
        let batch = collate.collate(vec![sample(3000, &[1, 2, 3]), sample(1000, &[])]).expect("a batch");
        assert_eq!(batch.inputs, [100, 101, 1, 2, 3, 100, 101, 9, 9, 9]);
        assert_eq!(batch.labels, [-100, 1, 2, 3, 9, -100, 9, -100, -100, -100]);
        assert_eq!((batch.frames, batch.mel.len()), (20, 2 * 80 * 20), "3000 samples are padded to 10 positions");
    }

    #[test]
    fn what_is_known_about_the_samples_comes_along() {
        let batch =
            collate(Pad::Window, Some(9)).collate(vec![sample(8000, &[1]), sample(2000, &[])]).expect("a batch");
        let seconds: Vec<f64> = batch.facts.iter().filter_map(SampleFacts::seconds).collect();
        assert_eq!((seconds, batch.facts[1].columns["speaker"].as_str()), (vec![0.5, 0.125], "anna"));
    }

    #[test]
    fn a_window_is_a_window() {
        let collate = collate(Pad::Window, Some(9));
        assert_eq!(collate.collate(vec![sample(10, &[1])]).expect("a batch").frames, 100);
    }

    #[test]
    fn without_an_end_token_the_labels_are_the_text() {
        let plain = |audio, text: &[u32]| SpeechSample { tokens: text.to_vec(), prompt: 0, ..sample(audio, &[]) };
        let collate = SpeechCollate { position: 640, ..collate(Pad::Longest, None) };
        let batch = collate.collate(vec![plain(3000, &[1, 2, 3]), plain(1000, &[])]).expect("a batch");
        assert_eq!((batch.tokens, batch.labels), (3, vec![1, 2, 3, -100, -100, -100]));
        assert_eq!((batch.inputs.len(), batch.frames, batch.positions), (0, 20, 5));
        let batch = collate.collate(vec![plain(1000, &[])]).expect("a batch");
        assert_eq!((batch.tokens, batch.labels.len()), (0, 0));
    }
}
