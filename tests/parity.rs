//! Whisper against transformers on the fixtures of `fixtures/whisper/make.py`.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use undertone::model::whisper::{GenerateOptions, Whisper, WhisperConfig};
use undertone::ops::{CrossEntropyOptions, cross_entropy};
use undertone::store::{TensorFile, load_parameters};
use undertone_tests::model_folder::read_json;
use undertone_tests::reference::{Expected, assert_close, fixture, gradients, values};

struct Fixture {
    dir: PathBuf,
    config: WhisperConfig,
    io: Expected,
}

impl Fixture {
    fn load(name: &str) -> Self {
        let dir = fixture("whisper").join(name);
        let config =
            WhisperConfig::from_hf(read_json(&dir.join("config.json")).as_object().expect("a map")).expect("a Whisper");
        let io = Expected::load(&dir.join("io.safetensors"));
        Self { dir, config, io }
    }

    fn model(&self, device: &Device) -> Whisper {
        let mut shards = Vec::new();
        for entry in std::fs::read_dir(&self.dir).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("model") && name.ends_with(".safetensors") {
                shards.push(TensorFile::open(&path).expect("a shard"));
            }
        }
        let owners: BTreeMap<String, usize> =
            shards.iter().enumerate().flat_map(|(i, s)| s.names().into_iter().map(move |n| (n, i))).collect();
        load_parameters(self.config.init(device), |name| {
            let name = format!("model.{name}");
            shards[owners[&name]].read(&name)
        })
        .expect("loaded")
    }
}

#[test]
fn states_logits_loss_and_gradients_equal_transformers() {
    for name in ["tiny-80", "tiny-128"] {
        let fixture = Fixture::load(name);
        let device = Device::default();
        let model = fixture.model(&device).train();
        let device = device.autodiff();
        let states = model.encoder.forward(fixture.io.tensor("input_features", &device));
        assert_close("encoder states", &values(states.clone()), &fixture.io.floats("encoder_states"));
        let logits = model.decoder.logits(model.decode(states, fixture.io.ids("decoder_input_ids", &device)));
        assert_close("logits", &values(logits.clone()), &fixture.io.floats("logits"));
        let [batch, tokens, vocab] = logits.dims();
        let labels = fixture.io.ids("labels", &device).reshape([batch * tokens]);
        let loss =
            cross_entropy(logits.reshape([batch * tokens, vocab]), labels, CrossEntropyOptions::default()).mean();
        assert_close("loss", &values(loss.clone()), &fixture.io.floats("loss"));
        let found = gradients(&model, &loss.backward());
        let compared =
            fixture.io.assert_gradients(&found, |name| name.strip_prefix("model.").unwrap_or(name).to_owned());
        assert_eq!(compared, 5, "named gradients in {name}");
        assert!(!found.contains_key("encoder.embed_positions.weight"), "the sinusoids are not trained");
    }
}

#[test]
fn greedy_tokens_equal_transformers_batched_and_alone() {
    for name in ["tiny-80", "tiny-128"] {
        let fixture = Fixture::load(name);
        let device = Device::default();
        let model = fixture.model(&device);
        let mel = fixture.io.tensor::<3>("input_features", &device);
        let [batch, length] = fixture.io.shape::<2>("greedy_ids");
        let expected: Vec<Vec<u32>> =
            fixture.io.ints("greedy_ids").chunks(length).map(|row| row.iter().map(|id| *id as u32).collect()).collect();
        let start = expected[0][0];
        // An end token outside the vocabulary never comes, as in the fixture's loop.
        let options = GenerateOptions::new(u32::MAX, length);
        let together = model.generate(mel.clone(), &vec![vec![start]; batch], &options);
        for row in 0..batch {
            assert_eq!(together[row], expected[row][1..], "{name}, row {row}");
            let alone = model.generate(mel.clone().narrow(0, row, 1), &[vec![start]], &options);
            assert_eq!(alone[0], together[row]);
        }
    }
}

#[test]
fn beams_and_forbidden_repeats_equal_transformers() {
    for name in ["tiny-80", "tiny-128"] {
        let fixture = Fixture::load(name);
        let device = Device::default();
        let model = fixture.model(&device);
        let mel = fixture.io.tensor::<3>("input_features", &device);
        let mel = Tensor::cat(vec![mel.clone(), mel.clone().neg(), mel.clone().mul_scalar(0.3), mel.flip([2])], 0);
        for case in read_json(&fixture.dir.join("beams.json")).as_array().expect("a list") {
            let numbers = |key: &str| -> Vec<u32> { serde_json::from_value(case[key].clone()).expect(key) };
            let number = |key: &str| case[key].as_u64().expect(key) as usize;
            let options = GenerateOptions {
                suppress: numbers("suppress"),
                begin_suppress: numbers("begin_suppress"),
                no_repeat_ngram: number("no_repeat_ngram"),
                beams: number("beams"),
                length_penalty: case["length_penalty"].as_f64().expect("a number"),
                early_stopping: case["early_stopping"].as_bool().expect("true or false"),
                ..GenerateOptions::new(number("end") as u32, number("max_length"))
            };
            let expected: Vec<Vec<u32>> = serde_json::from_value(case["tokens"].clone()).expect("tokens");
            let prompts = vec![vec![fixture.config.decoder_start_token_id]; expected.len()];
            assert_eq!(model.generate(mel.clone(), &prompts, &options), expected, "{name}, {options:?}");
            let alone = model.generate(mel.clone().narrow(0, 3, 1), &prompts[..1], &options);
            assert_eq!(alone[0], expected[3], "{name}, {options:?}, alone");
        }
    }
}

#[test]
fn finished_rows_leave_the_batch_without_changing_the_others() {
    let fixture = Fixture::load("tiny-80");
    let device = Device::default();
    let model = fixture.model(&device);
    let mel = fixture.io.tensor::<3>("input_features", &device);
    let mel = Tensor::cat(vec![mel.clone(), mel.clone().neg(), mel.clone().mul_scalar(0.3), mel.flip([2])], 0);
    let batch = mel.dims()[0];
    let free = GenerateOptions::new(u32::MAX, 20);
    let endless = model.generate(mel.clone(), &vec![vec![1]; batch], &free);
    // Every token that occurs is tried as the end: rows then finish at different steps, or never.
    let ends: std::collections::BTreeSet<u32> = endless.iter().flatten().copied().collect();
    for end in ends {
        let cut = model.generate(mel.clone(), &vec![vec![1]; batch], &GenerateOptions { end, ..free.clone() });
        for (row, whole) in endless.iter().enumerate() {
            let expected: Vec<u32> = whole.iter().copied().take_while(|id| *id != end).collect();
            assert_eq!(cut[row], expected, "row {row}, end {end}");
        }
    }
}

#[test]
fn shorter_input_uses_the_first_positions() {
    let fixture = Fixture::load("tiny-80");
    let device = Device::default();
    let model = fixture.model(&device);
    let mel = fixture.io.tensor::<3>("input_features", &device);
    for (frames, positions) in [(1, 1), (31, 16), (40, 20)] {
        assert_eq!(model.encoder.forward(mel.clone().narrow(2, 0, frames)).dims()[1], positions);
    }
}
