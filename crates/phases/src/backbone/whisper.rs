//! Whisper as a speech backbone.

use super::speech::{RowGroup, SpeechBackbone, SpeechDecoder, SpeechStates, SpeechTargets, SpeechTokenizer, row_ids};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::path::Path;
use std::sync::Arc;
use undertone_fit::Footprint;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::whisper::{DecoderCache, PretrainedWhisper, TokenizerError, Whisper, WhisperDecoder};
use undertone_ops::{CrossEntropyOptions, Distillation, LossSum, Taught, linear_cross_entropy, linear_distillation};
use undertone_store::Dtype;
use undertone_train::BoxError;

/// Index of the last timestamp token, 30 s, in steps of 20 ms.
const LAST_TIMESTAMP: u32 = 1500;

impl From<PretrainedWhisper> for SpeechBackbone {
    fn from(whisper: PretrainedWhisper) -> Self {
        let network = BoxedBackbone::new("Whisper", whisper.model.clone());
        let (mel_bins, max_frames) = (whisper.config.num_mel_bins, whisper.config.max_frames());
        let spellings = whisper.spellings().map(<[u8]>::to_vec);
        let whisper = Arc::new(whisper);
        Self {
            network,
            tokenizer: whisper.clone(),
            decoder: whisper,
            mel_bins,
            max_frames,
            frames_per_position: 2,
            spellings,
            files: Default::default(),
        }
    }
}

impl SpeechTokenizer for PretrainedWhisper {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.encode(text)
    }

    fn decode(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens)
    }

    fn max_tokens(&self) -> usize {
        self.config.max_target_positions
    }

    fn end(&self) -> Option<u32> {
        Some(self.tokenizer.end())
    }

    fn prompt(&self, language: Option<&str>, task: Option<&str>) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.prompt(&self.generation, language, task)
    }

    fn is_multilingual(&self) -> bool {
        self.generation.is_multilingual
    }

    fn timestamp_begin(&self) -> Option<u32> {
        let first = self.tokenizer.timestamp_begin()?;
        // A model with a shorter window has the times of its window, one for each of the encoder's positions.
        let last = (LAST_TIMESTAMP as usize).min(self.config.max_source_positions);
        (self.config.vocab_size > first as usize + last).then_some(first)
    }

    fn start_of_previous(&self) -> Option<u32> {
        self.tokenizer.start_of_previous().ok()
    }

    fn no_speech(&self) -> u32 {
        self.tokenizer.no_speech().unwrap_or_else(|| self.tokenizer.end())
    }
}

impl SpeechDecoder for PretrainedWhisper {
    fn losses(
        &self,
        states: SpeechStates,
        targets: &SpeechTargets,
        groups: &[Vec<usize>],
        label_smoothing: f64,
    ) -> Result<Vec<Tensor<1>>, BoxError> {
        let (decoder, device) = (decoder(states.network)?, states.states.device());
        // All tasks share one decoder, so it runs once for all of them.
        let hidden = hidden(decoder, states, targets);
        let options = CrossEntropyOptions { label_smoothing, ..Default::default() };
        let loss = |own: &Vec<usize>| match own.is_empty() {
            true => Tensor::zeros([1], &device),
            false => {
                let (labels, weight) = (labels(targets, own, &device), decoder.embed_tokens.weight.val());
                linear_cross_entropy(of_rows(hidden.clone(), own), weight, None, labels, options).sum
            }
        };
        Ok(groups.iter().map(loss).collect())
    }

    fn distilled(
        &self,
        states: SpeechStates,
        targets: &SpeechTargets,
        groups: &[Vec<usize>],
        taught: Taught,
        label_smoothing: f64,
    ) -> Result<Vec<Distillation>, BoxError> {
        let (decoder, [rows, ..], device) = (decoder(states.network)?, states.states.dims(), states.states.device());
        let hidden = hidden(decoder, states, targets);
        let [_, width] = taught.states.dims();
        let of_teacher = taught.states.clone().reshape([rows, targets.tokens, width]);
        let options = CrossEntropyOptions { label_smoothing, ..Default::default() };
        let loss = |own: &Vec<usize>| {
            if own.is_empty() {
                let zero = || Tensor::zeros([1], &device);
                return Distillation { cross_entropy: LossSum { sum: zero(), count: zero() }, divergence: zero() };
            }
            let taught = Taught { states: of_rows(of_teacher.clone(), own), ..taught.clone() };
            let (labels, weight) = (labels(targets, own, &device), decoder.embed_tokens.weight.val());
            linear_distillation(of_rows(hidden.clone(), own), weight, taught, labels, options)
        };
        Ok(groups.iter().map(loss).collect())
    }

    fn predictions(&self, states: SpeechStates, targets: &SpeechTargets) -> Result<[Tensor<2>; 2], BoxError> {
        let decoder = decoder(states.network)?;
        let [rows, tokens, width] = [states.states.dims()[0], targets.tokens, decoder.embed_tokens.weight.dims()[1]];
        let hidden = hidden(decoder, states, targets).reshape([rows * tokens, width]);
        Ok([hidden, decoder.embed_tokens.weight.val()])
    }

    fn generate(
        &self,
        states: SpeechStates,
        prompts: &[Vec<u32>],
        groups: &[RowGroup],
    ) -> Result<Vec<Vec<Vec<u32>>>, BoxError> {
        let (decoder, device) = (decoder(states.network)?, states.states.device());
        let cache = cache(decoder, states);
        let texts = |RowGroup { rows, generation }: &RowGroup| {
            if rows.is_empty() {
                return Vec::new();
            }
            let cache =
                if rows.len() < prompts.len() { cache.clone().select(row_ids(rows, &device)) } else { cache.clone() };
            let prompts: Vec<Vec<u32>> = rows.iter().map(|row| prompts[*row].clone()).collect();
            let (positions, prompt) = (self.config.max_target_positions, prompts[0].len());
            let options = self.generate_options();
            let options = generation.map_or(options.clone(), |own| own.applied(options, positions, prompt));
            decoder.generate(cache, &prompts, &options)
        };
        Ok(groups.iter().map(texts).collect())
    }

    fn footprint(&self) -> Option<Footprint> {
        Some(Footprint::whisper(&self.config))
    }

    fn save(&self, network: &BoxedBackbone, folder: &Path) -> Option<Result<(), BoxError>> {
        let Some(model) = network.downcast_ref::<Whisper>() else { return Some(Err(NO_DECODER.into())) };
        let mut whisper = self.clone();
        whisper.model = model.clone();
        Some(whisper.save(folder, Dtype::F32).map_err(BoxError::from))
    }
}

const NO_DECODER: &str = "the network is not a Whisper, but its decoder is a Whisper's";

fn decoder(network: &BoxedBackbone) -> Result<&WhisperDecoder, BoxError> {
    Ok(network.decoder().ok_or(NO_DECODER)?)
}

/// Returns the decoder's last states at every token of the reference texts, as wide as its token embedding, `[batch, tokens,
/// embedding_size]`.
fn hidden(decoder: &WhisperDecoder, states: SpeechStates, targets: &SpeechTargets) -> Tensor<3> {
    let ([rows, ..], device) = (states.states.dims(), states.states.device());
    let ids = Tensor::from_data(TensorData::new(targets.inputs.to_vec(), [rows, targets.tokens]), &device);
    decoder.as_embeddings(decoder.forward_all(ids, cache(decoder, states)))
}

/// Returns the states at every token of some rows, `[their tokens, width]`.
fn of_rows(states: Tensor<3>, rows: &[usize]) -> Tensor<2> {
    let [all, tokens, width] = states.dims();
    let device = states.device();
    let own = if rows.len() < all { states.select(0, row_ids(rows, &device)) } else { states };
    own.reshape([rows.len() * tokens, width])
}

/// Returns the labels of some rows, `[their tokens]`.
fn labels(targets: &SpeechTargets, rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let labels: Vec<i64> = rows.iter().flat_map(|row| targets.row(*row)).copied().collect();
    Tensor::from_ints(TensorData::from(labels.as_slice()), device)
}

/// Returns the decoder's cache for the states, with the vectors of the rows' tasks.
fn cache(decoder: &WhisperDecoder, SpeechStates { states, gates, task, .. }: SpeechStates) -> DecoderCache {
    let cache = decoder.cache(states, gates);
    match task {
        Some(task) => cache.with_start(task),
        None => cache,
    }
}
