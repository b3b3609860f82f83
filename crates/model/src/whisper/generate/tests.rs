use super::*;
use crate::testing::values;
use crate::whisper::WhisperConfig;
use burn::module::Module;
use burn::tensor::{Bool, Device};

const VOCAB: usize = 20;
const STATES: usize = 6;

/// A decoder with large random weights, so that its output depends on the encoder states.
fn decoder(device: &Device) -> WhisperDecoder {
    undertone_ops::seed(11);
    let config = WhisperConfig {
        vocab_size: VOCAB,
        max_target_positions: 12,
        init_std: 0.6,
        ..WhisperConfig::new(16, 32, 2, [0, 2])
    };
    WhisperDecoder::init(&config, device)
}

fn states(batch: usize, time: usize, device: &Device) -> Tensor<3> {
    undertone_ops::normal([batch, time, 16], 1.0, device)
}

/// Hides all but the given number of states of each row.
fn padding(lengths: &[usize], device: &Device) -> Tensor<2, Bool> {
    let mask: Vec<bool> = lengths.iter().flat_map(|length| (0..STATES).map(move |i| i >= *length)).collect();
    Tensor::<1, Bool>::from_bool(mask.as_slice(), device).reshape([lengths.len(), STATES])
}

fn assert_close(actual: Vec<f32>, expected: Vec<f32>) {
    assert_eq!(actual.len(), expected.len());
    assert!(actual.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4), "{actual:?} is not {expected:?}");
}

#[test]
fn one_beam_that_stops_early_is_greedy_decoding() {
    let device = Device::default();
    let decoder = decoder(&device);
    let cache = decoder.cache(states(5, STATES, &device), None);
    let prompts = vec![vec![3, 4]; 5];
    let ends: Vec<u32> = decoder.generate(cache.clone(), &prompts, &GenerateOptions::new(u32::MAX, 12)).concat();
    for end in ends {
        for no_repeat_ngram in [0, 2] {
            let options = GenerateOptions {
                early_stopping: true,
                no_repeat_ngram,
                suppress: vec![7],
                begin_suppress: vec![end],
                ..GenerateOptions::new(end, 12)
            };
            let rules = Rules::new(&options, 2, VOCAB, &device);
            let beam = beam::generate(&decoder, cache.clone(), &prompts, &options, &rules);
            let greedy = decoder.generate(cache.clone(), &prompts, &options);
            assert_eq!(beam.iter().map(|found| &found.tokens[2..]).collect::<Vec<_>>(), greedy);
        }
    }
}

#[test]
fn padded_states_change_neither_logits_nor_what_is_generated() {
    let device = Device::default();
    let decoder = decoder(&device);
    let states = states(2, STATES, &device);
    let lengths = [4, 2];
    let cache = decoder.cache(states.clone(), None).with_padding(padding(&lengths, &device));
    let ids = Tensor::<2, Int>::from_ints([[3, 1, 4], [1, 5, 9]], &device);
    let together = decoder.forward(ids.clone(), &mut cache.clone());
    for (row, length) in lengths.into_iter().enumerate() {
        let alone = decoder.cache(states.clone().narrow(0, row, 1).narrow(1, 0, length), None);
        let expected = decoder.forward(ids.clone().narrow(0, row, 1), &mut alone.clone());
        assert_close(values(together.clone().narrow(0, row, 1)), values(expected));
        for beams in [1, 3] {
            let options = GenerateOptions { beams, ..GenerateOptions::new(0, 12) };
            let alone = decoder.generate(alone.clone(), &[vec![3]], &options);
            assert_eq!(decoder.generate(cache.clone(), &[vec![3], vec![3]], &options)[row], alone[0]);
        }
    }
    let unhidden = decoder.forward(ids, &mut decoder.cache(states, None));
    assert!(values(unhidden).iter().zip(values(together)).any(|(a, b)| (a - b).abs() > 0.1), "it hides something");
}

#[test]
fn padding_follows_its_row() {
    let device = Device::default();
    let decoder = decoder(&device);
    let states = states(2, STATES, &device);
    let forward = |states: Tensor<3>, lengths: [usize; 2], rows: [i64; 2]| {
        let cache = decoder.cache(states, None).with_padding(padding(&lengths, &device));
        let mut cache = cache.select(Tensor::<1, Int>::from_ints(rows, &device));
        values(decoder.forward(Tensor::<2, Int>::from_ints([[3, 1], [3, 1]], &device), &mut cache))
    };
    let swapped = forward(states.clone().flip([0]), [5, 3], [1, 0]);
    assert_close(swapped, forward(states, [3, 5], [0, 1]));
}

#[test]
fn padded_states_get_no_gradient() {
    for of_mask in [Device::default(), Device::default().autodiff()] {
        let device = Device::default().autodiff();
        let decoder = decoder(&Device::default()).train();
        let states = states(2, STATES, &device).require_grad();
        let mut cache = decoder.cache(states.clone(), None).with_padding(padding(&[6, 2], &of_mask));
        let ids = Tensor::<2, Int>::from_ints([[3, 1, 4], [1, 5, 9]], &device);
        let gradients = decoder.logits(decoder.forward(ids, &mut cache)).square().sum().backward();
        let gradient = values(states.grad(&gradients).expect("a gradient"));
        let (seen, hidden) = gradient.split_at((STATES + 2) * 16);
        assert!(seen.iter().all(|g| *g != 0.0) && hidden.iter().all(|g| *g == 0.0), "{gradient:?}");
    }
}

#[test]
#[should_panic(expected = "a fresh cache")]
fn a_cache_that_has_seen_tokens_is_refused() {
    let device = Device::default();
    let decoder = decoder(&device);
    let mut cache = decoder.cache(states(1, STATES, &device), None);
    decoder.forward(Tensor::<2, Int>::from_ints([[3]], &device), &mut cache);
    decoder.generate(cache, &[vec![3]], &GenerateOptions::new(0, 12));
}
