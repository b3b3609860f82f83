//! A tiny encoder that is trained by CTC, through all of a run.

use super::Ctc;
use crate::backbone::{SpeechBackbone, SpeechTokenizer, register_speech};
use crate::run::{Choice, Phase, Predictor, RouterKind, Setup, Subject, evaluate_run, train, train_phases};
use crate::{Experiment, RunError, Session, Split};
use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use undertone_cw::morse;
use undertone_model::adaptable::{Adaptable, Site};
use undertone_model::adapters::Gates;
use undertone_model::backbone::{Backbone, BackboneInput, BoxedBackbone, WrongInput};
use undertone_model::layers::{Conv1d, Embedding, Linear};
use undertone_model::whisper::TokenizerError;
use undertone_store::{TensorFile, load_parameters};
use undertone_train::BoxError;

const WIDTH: usize = 8;

/// Two convolutions and two linear maps; a position for every four frames.
#[derive(Module, Debug)]
struct Tiny {
    conv1: Conv1d,
    conv2: Conv1d,
    maps: Vec<Linear>,
    output: Embedding,
}

impl Backbone for Tiny {
    fn token_embedding(&self) -> &Embedding {
        &self.output
    }

    fn block_count(&self) -> usize {
        self.maps.len()
    }

    fn embed(&self, input: BackboneInput, _: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput> {
        let (mel, _) = input.mel()?;
        Ok(self.conv2.forward(self.conv1.forward(mel.swap_dims(1, 2)).tanh()).tanh())
    }

    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        _: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        self.maps[blocks].iter().fold(x, |x, map| x.clone() + map.forward_gated(x, gates).tanh())
    }

    fn writes_text(&self) -> bool {
        true
    }
}

impl Adaptable for Tiny {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        let maps = self.maps.iter_mut().enumerate();
        maps.map(|(block, map)| (Site { path: format!("maps.{block}.map"), block }, map)).collect()
    }
}

/// Characters, and a token that ends a text, if there is one.
struct Characters(Vec<char>, Option<u32>);

impl SpeechTokenizer for Characters {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let unknown = |character| TokenizerError::Unspellable { character, text: text.to_owned() };
        let token = |c: char| self.0.iter().position(|known| *known == c).map(|at| 1 + at as u32).ok_or(unknown(c));
        text.chars().map(token).collect()
    }

    fn decode(&self, tokens: &[u32]) -> String {
        tokens.iter().map(|token| self.0[*token as usize - 1]).collect()
    }

    fn max_tokens(&self) -> usize {
        75
    }

    fn end(&self) -> Option<u32> {
        self.1
    }
}

fn load(folder: &Path, device: &Device) -> Result<SpeechBackbone, BoxError> {
    let characters: Vec<char> = morse::alphabet().collect();
    let mut tiny = Tiny {
        conv1: Conv1d::init(80, WIDTH, 2, 0.1, device),
        conv2: Conv1d::init(WIDTH, WIDTH, 2, 0.3, device),
        maps: (0..2).map(|_| Linear::init(WIDTH, WIDTH, true, 0.3, device)).collect(),
        output: Embedding::init(1 + characters.len(), WIDTH, 0.3, device),
    };
    if folder.join("model.safetensors").exists() {
        let weights = TensorFile::open(&folder.join("model.safetensors"))?;
        tiny = load_parameters(tiny, |name| weights.read(name))?;
    }
    let network = BoxedBackbone::new("Tiny", tiny);
    let speech = SpeechBackbone::new(network, Characters(characters, None), Ctc { blank: 0 }, 80, 300);
    Ok(SpeechBackbone { frames_per_position: 4, ..speech })
}

/// Returns the folder of a new model and of its runs, and a configuration with these keys.
fn place(more: &str) -> (tempfile::TempDir, Experiment) {
    register_speech("tiny-ctc", load).expect("registered");
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("config.json"), r#"{"model_type": "tiny-ctc"}"#).expect("written");
    let at = dir.path().display();
    let yaml = format!(
        "{{device: cpu, run: {{name: tiny, dir: '{at}/runs'}}, model: {{path: '{at}'}}, {more}, \
         train: {{max_steps: 4, optimizer: {{lr: 1.0e-2, warmup_steps: 1}}, evaluate: {{every: 0}}}}}}"
    );
    let experiment = Experiment::of_yaml(&yaml, &[]).expect("a configuration");
    (dir, experiment)
}

const DATA: &str =
    "train: {samples: 8, cw: {duration_s: [2, 3]}}, valid: {samples: 4, cw: {duration_s: [2, 3], wpm: [20, 20]}}";

#[test]
fn a_whole_encoder_is_trained_judged_and_asked() {
    let (dir, mut experiment) = place(&format!("data: {{batch_size: 4, workers: 1, {DATA}}}"));
    train(&experiment, &Session::default()).expect("trained");
    let best = experiment.directory().join("best");
    let [new, trained] = [dir.path(), &best].map(|folder| {
        let weights = |speech: SpeechBackbone| {
            let output = speech.network.token_embedding().weight.val();
            output.try_into_vec_as::<f32>().expect("floats")
        };
        undertone_ops::seed(experiment.seed);
        weights(experiment.model.backbone.load_speech(folder, &Device::flex()).expect("loaded"))
    });
    assert!(new != trained && new.len() == trained.len(), "the trained weights are saved and loaded");
    let choice = Choice::of(&experiment.directory(), None, &[]).expect("a model");
    let evaluated = Subject::Choice(Box::new(choice.clone())).evaluate(Split::Valid).expect("evaluated").result;
    assert!(evaluated.tasks[""]["cer"].is_finite(), "{evaluated:?}");
    let audio = dir.path().join("call.wav");
    undertone_data::audio::write_wav(&audio, &vec![0.1; 64_000]).expect("written");
    let predictor = Predictor::of_choice(&choice).expect("loaded");
    assert_eq!(predictor.audio(&audio).expect("read").len(), 2, "four seconds are two windows");
    experiment.loss.label_smoothing = 0.1;
    let refused = Setup::new(&experiment).err().expect("refused");
    assert!(matches!(refused, RunError::Setting(_)) && refused.to_string().contains("label_smoothing"), "{refused}");
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let speech = load(Path::new("nowhere"), &Device::flex()).expect("new weights");
    let refused = |change: &dyn Fn(&mut SpeechBackbone)| {
        let mut speech = speech.clone();
        change(&mut speech);
        speech.check().err().unwrap_or_default()
    };
    assert_eq!(refused(&|_| ()), "");
    assert!(refused(&|speech| speech.frames_per_position = 0).contains("`frames_per_position`"));
    let ending = |speech: &mut SpeechBackbone| speech.tokenizer = Arc::new(Characters(Vec::new(), Some(0)));
    assert!(refused(&ending).contains("no start token"));
}

#[test]
fn adapters_and_a_router_are_trained_on_an_encoder() {
    let task = |name: &str| {
        format!("{{name: {name}, metrics: [cer], lora: {{r: 1, target_modules: [map]}}, data: {{{DATA}}}}}")
    };
    let tasks = [task("slow"), task("fast")].map(|task| task.replace("{samples", "{synth: cw, samples")).join(", ");
    let (dir, experiment) =
        place(&format!("data: {{batch_size: 4, workers: 1}}, tasks: [{tasks}], router: {{tap: 1, hidden: [4]}}"));
    train_phases(&experiment, &Phase::ALL, &Session::default()).expect("trained");
    let evaluated = evaluate_run(&experiment, Split::Valid, RouterKind::Learned).expect("evaluated");
    assert!(evaluated.tasks["slow"]["cer"].is_finite() && evaluated.tasks["fast"]["cer"].is_finite());
    let audio = dir.path().join("call.wav");
    undertone_data::audio::write_wav(&audio, &vec![0.1; 16_000]).expect("written");
    let answered = Predictor::load(&experiment).expect("loaded").audio(&audio).expect("read");
    assert_eq!(answered[0].routing.as_ref().expect("routed").gates.len(), 2);
}
