//! Adapters against PEFT, on the fixtures of `fixtures/text/make.py`: one open gate is PEFT's active adapter.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use std::collections::BTreeMap;
use undertone::model::adaptable::{Adaptable, Site, adapt, load_adapter};
use undertone::model::adapters::Gates;
use undertone::model::adapters::lora::{LoraBank, LoraConfig};
use undertone::model::peft::PeftLora;
use undertone::model::text::{PretrainedText, TextModelType, tensor_name};
use undertone::model::whisper::WhisperConfig;
use undertone::store::{HostTensor, TensorFile, load_parameters};
use undertone_tests::model_folder::read_json;
use undertone_tests::reference::{Expected, assert_close, fixture, gradients, values};

/// An adapter as PEFT saved it, and its expected answers.
struct Peft {
    config: LoraConfig,
    matrices: TensorFile,
    io: Expected,
}

impl Peft {
    fn load(name: &str) -> Self {
        let dir = fixture("text/lora").join(name);
        let json = read_json(&dir.join("adapter_config.json"));
        let keys = ["r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora"];
        let known: serde_json::Map<String, serde_json::Value> =
            keys.iter().map(|key| ((*key).to_owned(), json[key].clone())).collect();
        let config = serde_json::from_value(known.into()).expect("an adapter");
        let matrices = TensorFile::open(&dir.join("adapter_model.safetensors")).expect("PEFT's matrices");
        let io = Expected::load(&dir.join("io.safetensors"));
        Self { config, matrices, io }
    }
}

/// Adapts a model and gives its banks PEFT's matrices; nothing of theirs is left over.
fn adapted<M: Adaptable>(model: &mut M, adapters: &[Peft], prefix: &str, device: &Device) {
    let configs: Vec<LoraConfig> = adapters.iter().map(|a| a.config.clone()).collect();
    adapt(model, &configs, 0, device).expect("adapted");
    for (k, adapter) in adapters.iter().enumerate() {
        let mut given = 0;
        let read = |name: &str| {
            given += 1;
            adapter.matrices.read(&format!("base_model.model.{prefix}{name}"))
        };
        load_adapter(model, k, read).expect("PEFT's matrices");
        assert_eq!(given, adapter.matrices.names().len(), "nothing of theirs is left over");
    }
}

/// The gradients of one adapter's matrices under PEFT's names, out of those of all banks. `names` maps module paths to
/// those of sites.
fn of_adapter<M: Adaptable + Module>(
    model: &M,
    adapter: usize,
    all: BTreeMap<String, Vec<f32>>,
    names: impl Fn(&str) -> String,
) -> BTreeMap<String, Vec<f32>> {
    let all: BTreeMap<String, Vec<f32>> = all.into_iter().map(|(path, g)| (names(&path), g)).collect();
    let mut model = model.clone();
    let mut found = BTreeMap::new();
    for (Site { path, .. }, linear) in model.linears() {
        let Some(bank) = linear.adapters.as_ref().and_then(|bank| bank.downcast_ref::<LoraBank>()) else { continue };
        let Some(rows) = bank.rows(adapter) else { continue };
        let total = bank.lora_a.dims()[0];
        let (a, b) = (&all[&format!("{path}.lora.lora_a")], &all[&format!("{path}.lora.lora_b")]);
        let d_in = a.len() / total;
        found.insert(format!("{path}.lora_A.weight"), a[rows.start * d_in..rows.end * d_in].to_vec());
        let columns = b.chunks(total).flat_map(|row| &row[rows.clone()]).copied();
        found.insert(format!("{path}.lora_B.weight"), columns.collect());
        let others = b.chunks(total).flat_map(|row| row.iter().enumerate()).filter(|(i, _)| !rows.contains(i));
        assert!(others.into_iter().all(|(_, g)| *g == 0.0), "a closed gate lets no gradient through");
    }
    found
}

/// The mean squared error over the tokens that count.
fn squares(states: Tensor<3>, target: Tensor<3>, mask: Tensor<2>) -> Tensor<1> {
    let squares = (states - target).square().mean_dim(2).squeeze_dim::<2>(2);
    (squares * mask.clone()).sum() / mask.sum()
}

#[test]
fn one_adapter_in_the_bank_equals_pefts_lora_on_bert() {
    let adapters = ["bert", "bert-rslora"].map(Peft::load);
    let device = Device::default();
    let mut model = PretrainedText::load(&fixture("text/bert"), &device).expect("BERT").model.no_grad();
    adapted(&mut model, &adapters, "", &device);
    let (model, device) = (model.train(), device.autodiff());
    for (k, Peft { io, .. }) in adapters.iter().enumerate() {
        let batch = io.shape::<2>("ids")[0];
        let open = Tensor::<1>::from_floats([[1.0, 0.0], [0.0, 1.0]][k], &device).unsqueeze::<2>().repeat_dim(0, batch);
        for gates in [Gates::One(k), Gates::Each(open)] {
            let mask = io.ids("mask", &device);
            let padding = mask.clone().equal_scalar(0);
            let states = model.forward(io.ids("ids", &device), None, Some(&padding), Some(&gates));
            assert_close("states", &values(states.clone()), &io.floats("states"));
            let loss = squares(states, io.tensor("target", &device), mask.float());
            assert_close("loss", &values(loss.clone()), &io.floats("loss"));
            let found = of_adapter(&model, k, gradients(&model, &loss.backward()), |path| {
                tensor_name(path, TextModelType::Bert)
            });
            assert_eq!(io.assert_gradients(&found, str::to_owned), found.len());
        }
    }
}

#[test]
fn one_adapter_in_the_bank_equals_pefts_lora_on_whisper() {
    let adapters = [Peft::load("whisper")];
    let device = Device::default();
    let dir = fixture("whisper/tiny-80");
    let config =
        WhisperConfig::from_hf(read_json(&dir.join("config.json")).as_object().expect("a map")).expect("a Whisper");
    let weights = TensorFile::open(&dir.join("model.safetensors")).expect("weights");
    let fresh = config.init(&device).no_grad();
    let mut model = load_parameters(fresh, |name| weights.read(&format!("model.{name}"))).expect("loaded");
    adapted(&mut model, &adapters, "model.", &device);
    let (model, device) = (model.train(), device.autodiff());
    let (inputs, io) = (Expected::load(&dir.join("io.safetensors")), &adapters[0].io);
    for gates in [Gates::One(0), Gates::Each(Tensor::ones([2, 1], &device))] {
        let encoder = &model.encoder;
        let x = encoder.front_end(inputs.tensor("input_features", &device), 0);
        let states = encoder.layer_norm.forward(encoder.blocks(x, 0..encoder.layers.len(), Some(&gates)));
        let mut cache = model.decoder.cache(states, Some(gates));
        let ids = inputs.ids("decoder_input_ids", &device);
        let tokens = ids.dims();
        let logits = model.decoder.logits(model.decoder.forward(ids, &mut cache));
        assert_close("logits", &values(logits.clone()), &io.floats("logits"));
        let loss = squares(logits, io.tensor("target", &device), Tensor::ones(tokens, &device));
        assert_close("loss", &values(loss.clone()), &io.floats("loss"));
        let found = of_adapter(&model, 0, gradients(&model, &loss.backward()), str::to_owned);
        assert_eq!(io.assert_gradients(&found, str::to_owned), found.len());
    }
}

/// A LoRA that PEFT saved, with ranks and alphas by pattern, rank stabilisation, trained biases and a whole layer, gives
/// the parameters of PEFT's `merge_and_unload`. Made by `fixtures/whisper/peft_in.py`.
#[test]
fn an_adapter_that_peft_saved_is_merged_as_peft_merges_it() {
    let dir = fixture("whisper/lora-in");
    let base = TensorFile::open(&fixture("whisper/tiny-80").join("model.safetensors")).expect("the base");
    let read = |name: &String| (name.clone(), base.read(name).expect(name));
    let before: BTreeMap<String, HostTensor> = base.names().iter().map(read).collect();
    let mut after = before.clone();
    PeftLora::open(&dir).expect("PEFT's").merge(&mut after, |name| Some(name.to_owned())).expect("merged");
    let expected = TensorFile::open(&dir.join("merged.safetensors")).expect("PEFT's");
    let names = expected.names();
    for (name, value) in &after {
        if !names.contains(name) {
            assert_eq!(value, &before[name], "{name} is not adapted");
            continue;
        }
        let there = expected.read(name).expect(name);
        let furthest = value.data.iter().zip(&there.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(furthest < 1e-6, "{name}: {furthest}");
        assert_ne!(value, &before[name], "{name}");
    }
    assert_eq!(names.len(), 14);
}
