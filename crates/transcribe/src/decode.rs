//! Decoding of windows, with retries at higher temperatures.

use crate::compression::compression_ratio;
use crate::decoded::{Decoded, mean_log};
use crate::transcriber::Transcriber;
use burn::tensor::{Int, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_data::features::LogMel;
use undertone_model::whisper::{GenerateOptions, NoSpeech, TimestampRules};

/// Maximum of the first timestamp, in steps of 20 ms: a second.
const MAX_INITIAL_TIMESTAMP: u32 = 50;

impl Transcriber {
    /// Returns the encoder's states of windows, `[windows, time, d_model]`.
    pub(crate) fn encode<A: AsRef<[f32]> + Sync>(&self, windows: &[A]) -> Tensor<3> {
        let longest = windows.iter().map(|window| window.as_ref().len()).max().unwrap_or_default();
        let samples = self.options.window.padded(longest, self.reading.window);
        let features = self.log_mel.batch_padded(windows, samples);
        let features = TensorData::new(features, [windows.len(), self.log_mel.bins(), LogMel::frames(samples)]);
        self.whisper.model.encoder.forward(Tensor::from_data(features, &self.device))
    }

    /// Decodes windows, each with its own prompt. With `timestamps` the rules for them apply, to the text whose beginning are so many
    /// tokens at the end of the prompts; the prompts decide whether the model writes them.
    pub(crate) fn decode(&self, states: &Tensor<3>, prompts: &[Vec<u32>], timestamps: Option<usize>) -> Vec<Decoded> {
        let mut decoded: Vec<Option<Decoded>> = vec![None; prompts.len()];
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        prompts.iter().enumerate().for_each(|(row, prompt)| by_length.entry(prompt.len()).or_default().push(row));
        let temperatures = &self.options.temperatures;
        let first = temperatures.first().copied().unwrap_or(0.0);
        // One by one, so that what is drawn does not depend on the windows beside it.
        let together = if first > 0.0 { 1 } else { prompts.len() };
        for rows in by_length.values().flat_map(|rows| rows.chunks(together.max(1))) {
            for (row, found) in rows.iter().zip(self.decode_rows(states, prompts, rows, first, timestamps)) {
                decoded[*row] = Some(found);
            }
        }
        for temperature in temperatures.iter().skip(1) {
            for (row, found) in decoded.iter_mut().enumerate() {
                if found.as_ref().is_some_and(|found| self.is_bad(found)) {
                    *found = self.decode_rows(states, prompts, &[row], *temperature, timestamps).pop();
                }
            }
        }
        decoded.into_iter().flatten().collect()
    }

    fn decode_rows(
        &self,
        states: &Tensor<3>,
        prompts: &[Vec<u32>],
        rows: &[usize],
        temperature: f64,
        timestamps: Option<usize>,
    ) -> Vec<Decoded> {
        let prompts: Vec<Vec<u32>> = rows.iter().map(|row| prompts[*row].clone()).collect();
        let options = self.generate_options(&prompts[0], temperature, timestamps);
        let decoder = &self.whisper.model.decoder;
        let states = if rows.len() == states.dims()[0] { states.clone() } else { self.rows(states, rows) };
        let generated = decoder.generate_scored(decoder.cache(states, None), &prompts, &options);
        generated
            .into_iter()
            .map(|generated| {
                let text = self.whisper.tokenizer.decode(&self.text_tokens(&generated.tokens)).trim().to_owned();
                let compression_ratio = compression_ratio(&text);
                Decoded { generated, text, temperature, compression_ratio }
            })
            .collect()
    }

    fn rows(&self, states: &Tensor<3>, rows: &[usize]) -> Tensor<3> {
        let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let rows: Tensor<1, Int> = Tensor::from_ints(TensorData::from(rows.as_slice()), &states.device());
        states.clone().select(0, rows)
    }

    fn generate_options(&self, prompt: &[u32], temperature: f64, timestamps: Option<usize>) -> GenerateOptions {
        let (own, tokenizer) = (self.whisper.generate_options(), &self.whisper.tokenizer);
        if self.reader().is_some() {
            return own;
        }
        let times = tokenizer.times();
        let (begin, mut suppress) = (times.start, own.suppress);
        if timestamps.is_some() {
            suppress.retain(|token| !times.contains(token));
            // Words that somebody has added to the vocabulary come after the times, and would be taken for later ones.
            suppress.extend(times.end..self.whisper.config.vocab_size as u32);
        }
        let no_speech = tokenizer.no_speech().map(|token| {
            let position = prompt.iter().position(|id| *id == tokenizer.start()).unwrap_or_default();
            NoSpeech { token, position }
        });
        GenerateOptions {
            suppress,
            max_length: self.max_length(prompt, own.max_length, timestamps.is_some()),
            beams: self.options.beams.unwrap_or(own.beams),
            patience: Some(self.options.patience),
            length_penalty: self.options.length_penalty.unwrap_or(own.length_penalty),
            temperature,
            best_of: self.options.best_of,
            seed: self.options.seed,
            timestamps: timestamps.map(|begun| TimestampRules {
                begin,
                max_initial: Some(MAX_INITIAL_TIMESTAMP),
                begun,
            }),
            no_speech,
            ..own
        }
    }

    /// Maximum number of tokens with the prompt. `own` is the model's limit, which counts start, language and task, and neither context
    /// nor prefix, as transformers' does. A window with timestamps has at most half of the positions, as in openai-whisper: the next
    /// one goes on where it ends. Without them, what is not written is lost.
    fn max_length(&self, prompt: &[u32], own: usize, timestamps: bool) -> usize {
        let plain = self.start(None, None).map_or(prompt.len(), |start| start.len());
        let half = if timestamps { prompt.len() + self.most_tokens() } else { usize::MAX };
        let positions = self.whisper.config.max_target_positions;
        own.saturating_add(prompt.len().saturating_sub(plain)).min(half).min(positions)
    }

    /// Whether another temperature is tried: the text repeats itself or is improbable, but for a window without speech.
    fn is_bad(&self, decoded: &Decoded) -> bool {
        let repeats = self.options.compression_ratio_threshold.is_some_and(|most| decoded.compression_ratio > most);
        let improbable = self.is_improbable(decoded);
        let silent = self.options.no_speech_threshold.zip(decoded.generated.no_speech);
        let silent = improbable && silent.is_some_and(|(most, no_speech)| f64::from(no_speech) > most);
        (repeats || improbable) && !silent
    }

    fn is_improbable(&self, decoded: &Decoded) -> bool {
        self.options.logprob_threshold.is_some_and(|least| decoded.generated.mean_log_prob() < least)
    }

    /// Whether a window is left out because it has no speech.
    pub(crate) fn is_silent(&self, decoded: &Decoded) -> bool {
        let no_speech = self.options.no_speech_threshold.zip(decoded.generated.no_speech);
        let likely = self.options.logprob_threshold.is_some_and(|least| decoded.generated.mean_log_prob() > least);
        let least = self.whisper.generation.min_mean_logprob;
        no_speech.is_some_and(|(most, no_speech)| f64::from(no_speech) > most && !likely)
            || least.is_some_and(|least| mean_log(&decoded.generated.log_probs) < least)
    }

    /// Returns the tokens of text: none that control, no timestamps.
    pub(crate) fn text_tokens(&self, tokens: &[u32]) -> Vec<u32> {
        let times = self.whisper.tokenizer.times();
        tokens.iter().copied().filter(|token| !times.contains(token)).collect()
    }
}
