//! Greedy decoding: the most probable token at every step.

use super::options::GenerateOptions;
use super::rules::Rules;
use crate::whisper::{DecoderCache, WhisperDecoder};
use burn::tensor::{Int, Tensor};

/// Returns each sample's prompt and generated tokens, without the end token.
pub(super) fn generate(
    decoder: &WhisperDecoder,
    mut cache: DecoderCache,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    rules: &Rules,
) -> Vec<Vec<u32>> {
    let mut sequences = prompts.to_vec();
    // Row r of the running batch belongs to sample `rows[r]`; finished ones continue with the end token until they are
    // removed.
    let mut rows: Vec<usize> = (0..prompts.len()).collect();
    let mut done = vec![false; prompts.len()];
    let mut next = prompts.to_vec();
    let prompt_length = prompts[0].len();
    for length in prompt_length..options.max_length {
        let logits = decoder.next_logits(&next, &mut cache);
        let so_far: Vec<&[u32]> = rows.iter().map(|sample| sequences[*sample].as_slice()).collect();
        let logits = rules.apply(logits, &so_far, length == prompt_length);
        let mut ids = token_ids(logits.argmax(1).reshape([rows.len()]));
        for (sample, id) in rows.iter().zip(&mut ids) {
            done[*sample] |= *id == options.end;
            if done[*sample] {
                *id = options.end;
            } else {
                sequences[*sample].push(*id);
            }
        }
        let mut running: Vec<usize> = (0..rows.len()).filter(|row| !done[rows[*row]]).collect();
        if running.is_empty() {
            break;
        }
        // Dropping rows copies the cache, so it waits until it halves the work.
        if running.len() * 2 <= rows.len() {
            cache = cache.select(decoder.row_ids(&running));
            rows = running.iter().map(|row| rows[*row]).collect();
        } else {
            running = (0..rows.len()).collect();
        }
        next = running.iter().map(|row| vec![ids[*row]]).collect();
    }
    sequences
}

fn token_ids(ids: Tensor<1, Int>) -> Vec<u32> {
    let ids: Vec<i64> = ids.try_into_vec_as().expect("ids are integers");
    ids.into_iter().map(|id| id as u32).collect()
}
