//! A model with every option: against the reference that `fixtures/compact.py` writes, and against itself.

use super::{EncoderBlock, PositionEmbeddings, Whisper, WhisperConfig};
use crate::adaptable::{Adaptable, adapt};
use crate::adapters::lora::LoraConfig;
use crate::testing::values;
use burn::module::{Module, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use undertone_ops::{CrossEntropyOptions, cross_entropy, linear_cross_entropy, prefers_states};
use undertone_store::{HostTensor, TensorFile, VisitParameter, load_parameters, parameter_infos, visit};

/// The model of the reference.
fn compact() -> WhisperConfig {
    WhisperConfig {
        embedding_size: Some(6),
        encoder_block: EncoderBlock::Conformer,
        conv_kernel_size: Some(5),
        position_embeddings_type: PositionEmbeddings::Rotary,
        encoder_key_value_heads: Some(2),
        decoder_key_value_heads: Some(1),
        num_mel_bins: 8,
        vocab_size: 20,
        max_source_positions: 12,
        max_target_positions: 9,
        init_std: 0.4,
        ..WhisperConfig::new(16, 20, 4, [1, 1])
    }
}

fn ids(tensor: HostTensor, device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i64> = tensor.data.iter().map(|id| *id as i64).collect();
    Tensor::from_data(TensorData::new(ids, tensor.shape), device)
}

struct ByPath<'a>(&'a Gradients, BTreeMap<String, Vec<f32>>);

impl VisitParameter for ByPath<'_> {
    fn visit<const D: usize>(&mut self, path: &str, parameter: &Param<Tensor<D>>) {
        self.1.extend(parameter.val().grad(self.0).map(|gradient| (path.to_owned(), values(gradient))));
    }
}

fn gradients(model: &Whisper, of: &Gradients) -> BTreeMap<String, Vec<f32>> {
    let mut found = ByPath(of, BTreeMap::new());
    visit(model, &mut found);
    found.1
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    let largest = expected.iter().fold(1.0_f32, |most, value| most.max(value.abs()));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 2e-5 * largest, "{what} at {index}: {found} is not {expected}");
    }
}

#[test]
fn states_logits_loss_and_all_gradients_equal_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/whisper/fixtures/compact.safetensors");
    let reference = TensorFile::open(&path).expect("the fixture");
    let io = |name: &str| reference.read(&format!("io.{name}")).expect("a result");
    let device = Device::default().autodiff();
    let model = compact().init(&device);
    let model = load_parameters(model, |name| reference.read(name)).expect("the same tensors").train();
    let labels: Tensor<1, Int> = ids(io("labels"), &device).flatten(0, 1);
    let options = CrossEntropyOptions::default();
    for by_logits in [true, false] {
        let states = model.encoder.forward(io("mel").on(&device));
        assert_close("states", &values(states.clone()), &io("states").data);
        let hidden = model.decode(states, ids(io("ids"), &device));
        let loss = if by_logits {
            let logits = model.decoder.logits(hidden);
            assert_close("logits", &values(logits.clone()), &io("logits").data);
            cross_entropy(logits.flatten(0, 1), labels.clone(), options)
        } else {
            // As in training, which never holds all logits.
            let rows: Tensor<2> = model.decoder.as_embeddings(hidden).flatten(0, 1);
            linear_cross_entropy(rows, model.decoder.embed_tokens.weight.val(), None, labels.clone(), options)
        };
        let loss = loss.mean();
        assert_close("loss", &values(loss.clone()), &io("loss").data);
        let found = gradients(&model, &loss.backward());
        assert_eq!(found.len(), parameter_infos(&model).len());
        for (name, gradient) in found {
            assert_close(&name, &gradient, &io(&format!("gradient.{name}")).data);
        }
    }
}

fn mel(device: &Device) -> Tensor<3> {
    undertone_ops::normal([2, 8, 18], 1.0, device)
}

#[test]
fn blocks_that_run_again_have_the_same_gradients() {
    let device = Device::default().autodiff();
    undertone_ops::seed(4);
    let config = WhisperConfig { encoder_layers: 3, dropout: 0.2, activation_dropout: 0.2, ..compact() };
    let model = config.init(&device);
    let (mel, ids) = (mel(&device), Tensor::<2, Int>::from_ints([[1, 2, 3], [4, 5, 6]], &device));
    let run = |every| {
        undertone_ops::seed(5);
        let model = model.clone().with_gradient_checkpointing(NonZeroUsize::new(every));
        let logits = model.forward(mel.clone(), ids.clone());
        let found = gradients(&model, &logits.clone().square().sum().backward());
        (values(logits), found)
    };
    let all = run(0);
    assert_eq!(all.1.len(), parameter_infos(&model).len());
    for every in [1, 2] {
        assert!(run(every) == all, "every {every}");
    }
}

#[test]
fn adapters_reach_every_linear_map_of_a_block() {
    let device = Device::default();
    let mut model = compact().init(&device).no_grad();
    let names: BTreeSet<String> = model.linears().into_iter().map(|(site, _)| site.path).collect();
    let last = |path: &String| path.rsplit('.').next().unwrap_or_default().to_owned();
    let target_modules: BTreeSet<String> = names.iter().map(last).collect();
    let config = LoraConfig { r: 2, target_modules: target_modules.into_iter().collect(), ..Default::default() };
    adapt(&mut model, &[config], 0, &device).expect("adapted");
    let infos = parameter_infos(&model.train());
    let is_map = |name: &str| name.contains(".layers.") && name.ends_with(".weight") && !name.contains("norm");
    let maps = infos.iter().filter(|p| is_map(&p.name) && !p.name.contains("depthwise_conv")).count();
    assert_eq!((maps, infos.iter().filter(|p| p.name.ends_with(".lora_a")).count()), (names.len(), names.len()));
}

#[test]
fn tokens_of_shared_keys_are_decoded_one_by_one_as_all_at_once() {
    let device = Device::default();
    undertone_ops::seed(6);
    let model = compact().init(&device);
    let states = model.encoder.forward(mel(&device));
    let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], &device);
    let whole = values(model.decode(states.clone(), ids.clone()));
    let mut cache = model.decoder.cache(states, None);
    let pieces = [0..2, 2..3, 3..5].map(|at| model.decoder.forward(ids.clone().slice([0..2, at]), &mut cache));
    assert_close("states", &values(Tensor::cat(pieces.into(), 1)), &whole);
    // Where a CPU attends to the encoder's states as they are, nothing was projected.
    assert_eq!(cache.holds_states(), prefers_states(&device));
}

#[test]
fn each_head_has_the_weights_of_the_keys_that_it_shares() {
    let device = Device::default();
    undertone_ops::seed(7);
    let model = compact().init(&device);
    let attention = &model.encoder.layers[0].self_attn;
    let x = undertone_ops::normal([1, 3, 16], 1.0, &device);
    let memory = attention.key_value(x.clone(), None);
    let weights = attention.weights(x.clone(), &memory, &[0, 1, 2, 3], None);
    // The weighted values of each head, as the attention mixes them.
    let mixed = (0..4).map(|head| {
        let value = memory.value.clone().narrow(2, head / 2 * 4, 4);
        weights.clone().narrow(1, head, 1).squeeze_dim::<3>(1).matmul(value)
    });
    let expected = attention.out_proj.forward(Tensor::cat(mixed.collect(), 2));
    assert_close("attention", &values(attention.forward(x, memory, false, None)), &values(expected));
}
