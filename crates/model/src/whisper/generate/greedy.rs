//! Decoding token by token: the most probable one at every step, or one that is drawn.

use super::generated::Generated;
use super::options::GenerateOptions;
use super::rules::Rules;
use crate::whisper::{DecoderCache, WhisperDecoder};
use burn::tensor::activation::log_softmax;
use burn::tensor::{FloatDType, Tensor};
use rayon::prelude::*;
use undertone_ops::argmax;
use undertone_ops::seeds::{of_number, of_sample};

/// Returns each sample's prompt and generated tokens, without the end token. Above temperature 0, each is the most
/// probable of [`best_of`](GenerateOptions::best_of) sequences.
pub(super) fn generate(
    decoder: &WhisperDecoder,
    cache: DecoderCache,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    rules: &Rules,
) -> Vec<Generated> {
    let group = if options.temperature > 0.0 { options.best_of.max(1) } else { 1 };
    if group == 1 {
        return sequences(decoder, cache, prompts, options, rules);
    }
    let rows: Vec<usize> = (0..prompts.len() * group).map(|row| row / group).collect();
    let repeated: Vec<Vec<u32>> = rows.iter().map(|sample| prompts[*sample].clone()).collect();
    let drawn = sequences(decoder, cache.select(decoder.row_ids(&rows)), &repeated, options, rules);
    let best = |group: &[Generated]| {
        let score = |sequence: &Generated| {
            let length = (sequence.tokens.len() - prompts[0].len()).max(1) as f64;
            sequence.total / length.powf(options.length_penalty)
        };
        // The first of equals.
        group.iter().rev().max_by(|a, b| score(a).total_cmp(&score(b))).cloned().unwrap_or_default()
    };
    drawn.chunks(group).map(best).collect()
}

/// Next token of a row.
struct Next {
    token: u32,
    /// Log probability among all tokens.
    log_prob: f32,
    /// Log probability among the allowed tokens.
    allowed: f32,
}

fn sequences(
    decoder: &WhisperDecoder,
    mut cache: DecoderCache,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    rules: &Rules,
) -> Vec<Generated> {
    let start = |prompt: &Vec<u32>| Generated { tokens: prompt.clone(), ..Generated::default() };
    let mut sequences: Vec<Generated> = prompts.iter().map(start).collect();
    // Row r of the running batch belongs to sample `rows[r]`; finished ones continue with the end token until they are
    // removed.
    let mut rows: Vec<usize> = (0..prompts.len()).collect();
    let mut done = vec![false; prompts.len()];
    let mut next = prompts.to_vec();
    let prompt_length = prompts[0].len();
    for length in prompt_length..options.max_length {
        let logits = decoder.next_logits(&next, &mut cache).cast(FloatDType::F32);
        let so_far: Vec<&[u32]> = rows.iter().map(|sample| sequences[*sample].tokens.as_slice()).collect();
        let chosen = if options.temperature == 0.0 && rules.fit_device() && undertone_ops::runs_ahead(&logits.device())
        {
            on_device(logits, &so_far, rules)
        } else {
            let draw = |sample: &usize| uniform(of_sample(of_number(options.seed, *sample as u64), length as u64));
            let draws: Vec<f64> = rows.iter().map(draw).collect();
            on_host(logits, &so_far, rules, options.temperature, &draws)
        };
        let mut ids = Vec::with_capacity(rows.len());
        for (sample, Next { token, log_prob, allowed }) in rows.iter().zip(chosen) {
            let sequence = &mut sequences[*sample];
            if !done[*sample] {
                sequence.total += f64::from(allowed);
                done[*sample] = token == options.end;
            }
            if !done[*sample] {
                sequence.tokens.push(token);
                sequence.log_probs.push(log_prob);
            }
            ids.push(if done[*sample] { options.end } else { token });
        }
        let mut running: Vec<usize> = (0..rows.len()).filter(|row| !done[rows[*row]]).collect();
        if running.is_empty() || length + 1 == options.max_length {
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

/// Selects the most probable tokens where the logits are: on a GPU they are not copied.
fn on_device(logits: Tensor<2>, so_far: &[&[u32]], rules: &Rules) -> Vec<Next> {
    let rows = so_far.len();
    let allowed = log_softmax(rules.apply(logits.clone(), so_far), 1);
    let best = allowed.clone().argmax(1);
    let chosen = |x: Tensor<2>| undertone_ops::read(x.gather(1, best.clone()).reshape([rows]));
    let (allowed, all) = (chosen(allowed), chosen(log_softmax(logits, 1)));
    let ids: Vec<i64> = best.reshape([rows]).try_into_vec_as().expect("ids are integers");
    let next = |((id, log_prob), allowed)| Next { token: id as u32, log_prob, allowed };
    ids.into_iter().zip(all).zip(allowed).map(next).collect()
}

/// Selects tokens on the CPU. `draws` has a number in `[0, 1)` for each row.
fn on_host(logits: Tensor<2>, so_far: &[&[u32]], rules: &Rules, temperature: f64, draws: &[f64]) -> Vec<Next> {
    let vocab_size = logits.dims()[1];
    let mut logits = undertone_ops::read(logits);
    let rows = logits.par_chunks_mut(vocab_size).zip(so_far.par_iter().zip(draws));
    rows.map(|(row, (tokens, draw))| {
        let sums = rules.apply_to_row(row, tokens);
        let token = if temperature > 0.0 { drawn(row, temperature, *draw) } else { argmax(row) };
        let logit = row[token];
        Next { token: token as u32, log_prob: logit - sums.all, allowed: logit - sums.allowed }
    })
    .collect()
}

/// Number in `[0, 1)` of random bits.
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Position that is drawn with probabilities `softmax(row / temperature)`, for `draw` uniform in `[0, 1)`.
fn drawn(row: &[f32], temperature: f64, draw: f64) -> usize {
    let most = f64::from(row[argmax(row)]);
    let weight = |logit: &f32| ((f64::from(*logit) - most) / temperature).exp();
    let mut left = draw * row.iter().map(weight).sum::<f64>();
    for (token, logit) in row.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return token;
        }
    }
    argmax(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_probable() {
        let row = [0.0, f32::NEG_INFINITY, 3.0_f32.ln(), 0.0];
        let shares = |temperature: f64| {
            let mut counts = [0_usize; 4];
            for step in 0..1000 {
                counts[drawn(&row, temperature, (f64::from(step) + 0.5) / 1000.0)] += 1;
            }
            counts
        };
        assert_eq!(shares(1.0), [200, 0, 600, 200]);
        // At half the temperature, the weights are squared: 1, 9, 1.
        assert_eq!(shares(0.5), [91, 0, 818, 91]);
        assert_eq!(drawn(&row, 1e-3, 0.999), 2);
        assert_eq!(argmax(&row), 2);
    }
}
