//! Greedy decoding with a key-value cache.

use super::{DecoderCache, Whisper, WhisperDecoder};
use burn::tensor::{Int, Tensor, TensorData};

/// How [`Whisper::generate`] decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerateOptions {
    /// The token that ends a sequence.
    pub end: u32,
    /// The most tokens a sequence may have, prompt included; never more than the decoder's positions.
    pub max_length: usize,
    /// Tokens never generated.
    pub suppress: Vec<u32>,
    /// Tokens never generated first.
    pub begin_suppress: Vec<u32>,
}

impl Whisper {
    /// Decodes a batch greedily and returns each row's tokens after its prompt, without the end token.
    ///
    /// Runs on the model's device; call it on `model.valid()` while training.
    ///
    /// # Arguments
    /// - `mel`: `[batch, mel bins, frames]`
    /// - `prompts`: one per row, all of the same length
    ///
    /// # Panics
    /// If the prompts are empty or differ in length or number from the batch.
    pub fn generate(&self, mel: Tensor<3>, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
        self.decoder.generate(self.decoder.cache(self.encoder.forward(mel), None), prompts, options)
    }
}

impl WhisperDecoder {
    /// As [`Whisper::generate`], from a fresh cache.
    pub fn generate(&self, mut cache: DecoderCache, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
        let batch = prompts.len();
        let prompt_length = prompts.first().map_or(0, Vec::len);
        assert!(
            prompts.len() == batch && prompt_length > 0 && prompts.iter().all(|p| p.len() == prompt_length),
            "a batch of {batch} needs as many prompts of one length above 0"
        );
        let device = self.embed_tokens.weight.device();
        let positions = self.embed_positions.weight.dims()[0];
        let max_length = options.max_length.min(positions);
        let suppress = self.mask(&options.suppress);
        let begin_suppress = self.mask(&options.begin_suppress);

        let mut outputs = vec![Vec::new(); batch];
        // Row r of the running batch belongs to sample `rows[r]`; finished ones are fed the end token until they leave.
        let mut rows: Vec<usize> = (0..batch).collect();
        let mut done = vec![false; batch];
        let mut next: Vec<u32> = prompts.concat();
        let mut width = prompt_length;
        for length in prompt_length..max_length {
            let ids: Vec<i64> = next.iter().map(|id| i64::from(*id)).collect();
            let ids =
                Tensor::<1, Int>::from_ints(TensorData::from(ids.as_slice()), &device).reshape([rows.len(), width]);
            let states = self.forward(ids, &mut cache).narrow(1, width - 1, 1);
            let mut logits = self.logits(states).squeeze_dim::<2>(1) + suppress.clone();
            if length == prompt_length {
                logits = logits + begin_suppress.clone();
            }
            next = token_ids(logits.argmax(1).reshape([rows.len()]));
            width = 1;
            for (row, id) in next.iter_mut().enumerate() {
                let sample = rows[row];
                done[sample] |= *id == options.end;
                if done[sample] {
                    *id = options.end;
                } else {
                    outputs[sample].push(*id);
                }
            }
            let running: Vec<usize> = (0..rows.len()).filter(|row| !done[rows[*row]]).collect();
            if running.is_empty() {
                break;
            }
            // Dropping rows copies the cache, so it waits until it halves the work.
            if running.len() * 2 <= rows.len() {
                cache = select(cache, &running, &device);
                next = running.iter().map(|row| next[*row]).collect();
                rows = running.iter().map(|row| rows[*row]).collect();
            }
        }
        outputs
    }

    /// `[1, vocab_size]`: minus infinity at `tokens`, 0 elsewhere.
    fn mask(&self, tokens: &[u32]) -> Tensor<2> {
        let weight = self.embed_tokens.weight.val();
        let mut mask = vec![0.0_f32; weight.dims()[0]];
        for id in tokens {
            if let Some(entry) = mask.get_mut(*id as usize) {
                *entry = f32::NEG_INFINITY;
            }
        }
        Tensor::<1>::from_floats(mask.as_slice(), &weight.device()).unsqueeze()
    }
}

fn select(cache: DecoderCache, rows: &[usize], device: &burn::tensor::Device) -> DecoderCache {
    let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    cache.select(Tensor::<1, Int>::from_ints(TensorData::from(rows.as_slice()), device))
}

fn token_ids(ids: Tensor<1, Int>) -> Vec<u32> {
    let ids: Vec<i64> = ids.try_into_vec_as().expect("ids are integers");
    ids.into_iter().map(|id| id as u32).collect()
}
