//! Decoding with a key-value cache: greedy, by sampling, or by beam search.

mod beam;
mod generated;
mod greedy;
mod options;
mod rules;

pub use generated::Generated;
pub use options::{GenerateOptions, NoSpeech, TimestampRules};

use super::{DecoderCache, Whisper, WhisperDecoder};
use burn::tensor::activation::softmax;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use rules::Rules;

impl Whisper {
    /// Decodes `mel`, `[batch, mel bins, frames]`, as [`WhisperDecoder::generate`] does.
    ///
    /// # Panics
    /// If the prompts are empty or differ in length or number from the batch.
    pub fn generate(&self, mel: Tensor<3>, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
        self.decoder.generate(self.decoder.cache(self.encoder.forward(mel), None), prompts, options)
    }
}

impl WhisperDecoder {
    /// Decodes a batch and returns each sample's tokens after its prompt, without the end token. It selects the most
    /// probable token at every step, or with several [`beams`](GenerateOptions::beams) the best finished hypothesis.
    ///
    /// Runs on the decoder's device; call it on `model.valid()` while training.
    ///
    /// # Arguments
    /// - `cache`: a fresh one, with the encoder's states and the other inputs of the samples
    /// - `prompts`: one per sample, all of the same length
    ///
    /// # Panics
    /// If the prompts are empty or differ in length or number from the batch, or the cache already holds tokens.
    pub fn generate(&self, cache: DecoderCache, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
        self.generate_scored(cache, prompts, options).into_iter().map(|generated| generated.tokens).collect()
    }

    /// As [`generate`](Self::generate), with the probabilities of the tokens.
    ///
    /// # Panics
    /// As for [`generate`](Self::generate).
    pub fn generate_scored(
        &self,
        mut cache: DecoderCache,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Vec<Generated> {
        // Before rows branch into beams, which share what is prepared.
        self.prepare(&mut cache);
        let batch = cache.batch().unwrap_or(prompts.len());
        let prompt_length = prompts.first().map_or(0, Vec::len);
        assert!(
            prompts.len() == batch && prompt_length > 0 && prompts.iter().all(|p| p.len() == prompt_length),
            "a batch of {batch} needs as many prompts of one length above 0"
        );
        assert!(cache.length() == 0, "generation begins with a fresh cache, this one has {} tokens", cache.length());
        let weight = self.embed_tokens.weight.val();
        let options = GenerateOptions {
            max_length: options.max_length.min(self.embed_positions.weight.dims()[0]),
            ..options.clone()
        };
        let no_speech = options.no_speech.map(|no_speech| self.no_speech(&cache, prompts, no_speech));
        let rules = Rules::new(&options, prompt_length, weight.dims()[0], &weight.device());
        let mut sequences = if options.beams > 1 && options.temperature == 0.0 {
            beam::generate(self, cache, prompts, &options, &rules)
        } else {
            greedy::generate(self, cache, prompts, &options, &rules)
        };
        for (row, sequence) in sequences.iter_mut().enumerate() {
            sequence.tokens.drain(..prompt_length.min(sequence.tokens.len()));
            sequence.no_speech = no_speech.as_ref().map(|all| all[row]);
        }
        sequences
    }

    /// Returns the probability of the token for no speech in each row of a fresh cache. It feeds the start of the prompts,
    /// which `generate` feeds again: a few tokens of one step.
    fn no_speech(&self, cache: &DecoderCache, prompts: &[Vec<u32>], no_speech: NoSpeech) -> Vec<f32> {
        let starts: Vec<Vec<u32>> =
            prompts.iter().map(|p| p[..=no_speech.position.min(p.len() - 1)].to_vec()).collect();
        let logits = self.next_logits(&starts, &mut cache.clone()).cast(FloatDType::F32);
        let vocab_size = logits.dims()[1];
        let token = (no_speech.token as usize).min(vocab_size - 1);
        let likely = softmax(logits, 1).narrow(1, token, 1).reshape([prompts.len()]);
        undertone_ops::read(likely)
    }

    /// Feeds the same number of tokens to each row and returns the logits of the next one, `[rows, vocab_size]`.
    fn next_logits(&self, tokens: &[Vec<u32>], cache: &mut DecoderCache) -> Tensor<2> {
        let (rows, width) = (tokens.len(), tokens.first().map_or(0, Vec::len));
        let ids: Vec<i64> = tokens.iter().flatten().map(|id| i64::from(*id)).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [rows, width]), &self.embed_tokens.weight.device());
        let states = self.forward(ids, cache).narrow(1, width - 1, 1);
        self.logits(states).squeeze_dim::<2>(1)
    }

    /// Row indices as a tensor for the cache.
    fn row_ids(&self, rows: &[usize]) -> Tensor<1, Int> {
        let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        Tensor::from_ints(TensorData::from(rows.as_slice()), &self.embed_tokens.weight.device())
    }
}

#[cfg(test)]
mod tests;
