//! Decoding with a key-value cache: greedy, or by beam search.

mod beam;
mod greedy;
mod options;
mod rules;

pub use options::GenerateOptions;

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
    pub fn generate(&self, mut cache: DecoderCache, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
        // Before rows branch into beams, which share the projected states.
        self.project(&mut cache);
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
        let rules = Rules::new(&options, weight.dims()[0], &weight.device());
        let mut sequences = if options.beams > 1 {
            beam::generate(self, cache, prompts, &options, &rules)
        } else {
            greedy::generate(self, cache, prompts, &options, &rules)
        };
        sequences.iter_mut().for_each(|tokens| drop(tokens.drain(..prompt_length)));
        sequences
    }

    /// Returns the probability of each token of `tokens` after `prompt` and the tokens before it, given one sample's
    /// `states`, `[1, time, d_model]`. It makes one forward pass over all of them.
    pub fn probabilities(&self, states: Tensor<3>, prompt: &[u32], tokens: &[u32]) -> Vec<f32> {
        if tokens.is_empty() {
            return Vec::new();
        }
        let ids: Vec<i64> = prompt.iter().chain(tokens).map(|id| i64::from(*id)).collect();
        let length = ids.len();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, length]), &states.device());
        // The prediction after the last token is not needed; the prediction after the prompt is for the first token.
        let (read, asked) = (ids.clone().narrow(1, 0, length - 1), ids.narrow(1, prompt.len(), tokens.len()));
        let states = self.forward_all(read, self.cache(states, None)).narrow(1, prompt.len() - 1, tokens.len());
        let likely = softmax(self.logits(states).cast(FloatDType::F32), 2);
        likely.gather(2, asked.unsqueeze_dim(2)).try_into_vec_as().expect("probabilities are floats")
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
