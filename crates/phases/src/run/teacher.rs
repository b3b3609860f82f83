//! Teachers of models that are distilled.

use super::batch::TaskBatch;
use super::model::Tapped;
use crate::backbone::SpeechTargets;
use crate::{DistillationConfig, Experiment, ModelConfig, RunError, Trainable};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_data::cache::CacheWhat;
use undertone_model::backbone::{BackboneInput, BoxedBackbone};
use undertone_model::frozen::{FrozenDtype, hold_frozen, loaded_in};
use undertone_model::whisper::{PretrainedWhisper, Whisper};
use undertone_ops::{AnyFloat, Taught};
use undertone_store::{HostTensor, parameter_infos};
use undertone_train::BoxError;

/// Name of the divergence from the teacher in logs.
pub(super) const DISTILLATION: &str = "distillation";

/// A frozen model that another one learns from.
pub trait Teacher: Send + Sync {
    /// Weight of the divergence in the loss, beside that of the texts.
    fn weight(&self) -> f64;

    /// Whether it reads the input of a batch itself.
    fn reads_input(&self) -> bool;

    /// Returns the floating-point operations of its pass over a row of `frames` frames of 10 ms and `tokens` tokens.
    fn flops(&self, frames: usize, tokens: usize) -> f64;

    /// Returns its predictions for a batch: its last states at every token, and its output layer.
    ///
    /// # Errors
    /// When the batch is not for it.
    fn taught(&self, lesson: Lesson) -> Result<Taught, BoxError>;
}

/// Batch, as a teacher gets it.
pub struct Lesson<'a> {
    /// Batch.
    pub batch: &'a TaskBatch,
    /// Input of the teacher's own encoder, if it has one.
    pub input: Option<BackboneInput>,
    /// States of the student at the tap.
    pub tapped: &'a Tapped,
    /// Last states of the student's encoder, `[batch, time, d_model]`.
    pub states: &'a Tensor<3>,
}

/// A frozen Whisper that a smaller one learns from.
#[derive(Clone, Debug)]
pub struct WhisperTeacher {
    network: Whisper,
    /// Whether its encoder is the model's own, which is frozen, so that its states are known.
    shares_encoder: bool,
    config: DistillationConfig,
}

impl WhisperTeacher {
    /// Loads the teacher of an experiment for `student`; `None` if it has none.
    ///
    /// # Errors
    /// When it is not available, or its vocabulary or window differs from the student's.
    pub fn load(
        experiment: &Experiment,
        student: Option<&PretrainedWhisper>,
        device: &Device,
    ) -> Result<Option<Self>, RunError> {
        let Some((config, student)) = experiment.loss.distillation.as_ref().zip(student) else { return Ok(None) };
        let dtype = config.frozen_dtype;
        let refused = |why: String| Err(RunError::Setting(format!("`loss.distillation`: {why}")));
        if !dtype.is_on(device) {
            return refused(format!(
                "`frozen_dtype` is {dtype}, and the device does not have that type: choose another one"
            ));
        }
        let load = || ModelConfig::named(&config.teacher).load(device, experiment.seed);
        let mut teacher = loaded_in(dtype, load)?;
        if let Some(difference) = difference(&teacher, student) {
            return refused(format!("the teacher `{}` {difference}", config.teacher.display()));
        }
        let is_frozen = experiment.model.trainable == Trainable::Decoder;
        let held = [dtype, experiment.model.frozen_dtype];
        let is_rounded = held.iter().any(|dtype| *dtype != FrozenDtype::F32);
        let shares_encoder = is_frozen && has_same_encoder(&teacher, student, is_rounded);
        if experiment.data.cache.what() == CacheWhat::Encoder && !shares_encoder {
            return refused(
                "the teacher has another encoder than the model, or the model trains more than its decoder (`model.trainable`), \
                 and `data.cache.what: encoder` keeps the states of one encoder for both: keep `audio` or `features`"
                    .into(),
            );
        }
        if shares_encoder {
            teacher.model.encoder = student.model.encoder.clone();
        }
        let (network, _) = hold_frozen(BoxedBackbone::new("Whisper", teacher.model), dtype, |_| true);
        let network = network.downcast_ref::<Whisper>().expect("the network that was put in").clone();
        Ok(Some(Self { network: burn::module::Module::no_grad(network), shares_encoder, config: config.clone() }))
    }

    /// Returns the bytes of its parameters, without those that it shares with the model.
    pub fn bytes(&self) -> u64 {
        let infos = parameter_infos(&self.network).into_iter();
        let own = infos.filter(|parameter| !self.shares_encoder || !parameter.name.starts_with("encoder."));
        let count: usize = own.map(|parameter| parameter.shape.iter().product::<usize>()).sum();
        count as u64 * self.config.frozen_dtype.bytes()
    }
}

impl Teacher for WhisperTeacher {
    fn weight(&self) -> f64 {
        self.config.weight
    }

    fn reads_input(&self) -> bool {
        !self.shares_encoder
    }

    fn flops(&self, frames: usize, tokens: usize) -> f64 {
        match self.shares_encoder {
            true => self.network.decoder.forward_flops(tokens, frames.div_ceil(2)),
            false => self.network.forward_flops(frames, tokens),
        }
    }

    fn taught(&self, Lesson { batch, input, states, .. }: Lesson) -> Result<Taught, BoxError> {
        let states = match input {
            Some(input) => {
                let (mel, start) = input.mel()?;
                let encoder = &self.network.encoder;
                let x = encoder.front_end(plain(mel), start);
                encoder.layer_norm.forward(encoder.blocks(x, 0..encoder.layers.len(), None))
            }
            None => plain(states.clone()),
        };
        let (decoder, [rows, ..]) = (&self.network.decoder, states.dims());
        let SpeechTargets { inputs, tokens, .. } = batch.input.speech()?.targets();
        let ids = Tensor::from_data(TensorData::new(inputs.to_vec(), [rows, tokens]), &states.device());
        let hidden = decoder.as_embeddings(decoder.forward_all(ids, decoder.cache(states, None)));
        let [.., width] = hidden.dims();
        Ok(Taught {
            states: hidden.reshape([rows * tokens, width]),
            weight: decoder.embed_tokens.weight.val(),
            temperature: self.config.temperature,
            weight_of_divergence: self.config.weight,
        })
    }
}

/// Returns a tensor without autodiff.
pub(super) fn plain(x: Tensor<3>) -> Tensor<3> {
    AnyFloat::from(x).plain().tensor()
}

/// Returns why a teacher cannot teach this student, as the end of a sentence that begins with the teacher.
fn difference(teacher: &PretrainedWhisper, student: &PretrainedWhisper) -> Option<String> {
    let [of_teacher, of_student] = [teacher, student].map(|whisper| &whisper.config);
    let sizes = [
        ("tokens", of_teacher.vocab_size, of_student.vocab_size),
        ("mel bins", of_teacher.num_mel_bins, of_student.num_mel_bins),
        ("encoder positions", of_teacher.max_source_positions, of_student.max_source_positions),
    ];
    if let Some((what, theirs, own)) = sizes.into_iter().find(|(_, theirs, own)| theirs != own) {
        return Some(format!("has {theirs} {what}, and the model has {own}: choose one with as many"));
    }
    if of_teacher.max_target_positions < of_student.max_target_positions {
        let (theirs, own) = (of_teacher.max_target_positions, of_student.max_target_positions);
        return Some(format!("reads at most {theirs} tokens, and the model {own}: choose one that reads as many"));
    }
    let text = |whisper: &PretrainedWhisper, id: u32| whisper.tokenizer.decode(&[id]);
    let tokens = 0..of_student.vocab_size as u32;
    let other = tokens.into_iter().find(|id| text(teacher, *id) != text(student, *id))?;
    let texts = [teacher, student].map(|whisper| text(whisper, other));
    Some(format!(
        "has another vocabulary: its token {other} is `{}`, and the model's is `{}`; choose one with the same",
        texts[0], texts[1]
    ))
}

/// Whether the encoders of both are the same; if one of them `is_rounded`, but for rounding to half precision.
fn has_same_encoder(teacher: &PretrainedWhisper, student: &PretrainedWhisper, is_rounded: bool) -> bool {
    let encoder = |whisper: &PretrainedWhisper| -> BTreeMap<String, HostTensor> {
        whisper.tensors().into_iter().filter(|(name, _)| name.starts_with("encoder.")).collect()
    };
    if teacher.config.encoder_layers != student.config.encoder_layers
        || teacher.config.d_model != student.config.d_model
    {
        return false;
    }
    // bf16 rounds by at most 2⁻⁹ of a number, and both may be rounded; f16 by at most 2⁻²⁵ near 0.
    let share = if is_rounded { 1.0 / 256.0 } else { 0.0 };
    let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= share * (a.abs().max(b.abs()) + 2.0_f32.powi(-16));
    let of_student = encoder(student);
    encoder(teacher).iter().all(|(name, theirs)| {
        let own = of_student.get(name).filter(|own| own.shape == theirs.shape);
        own.is_some_and(|own| own.data.iter().zip(&theirs.data).all(is_close))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Trainable;
    use crate::run::Run;
    use crate::run::toys::recordings;
    use crate::{Pad, SourceConfig};
    use std::path::Path;
    use undertone_data::cache::CacheConfig;
    use undertone_model::whisper::BUNDLED;
    use undertone_train::{Batches, LossTerm, Objective};

    /// Experiment on three recordings that trains a student with one block of the bundled model's decoder.
    fn experiment(dir: &Path) -> Experiment {
        recordings(dir, "train", &["E", "ET", "EEE"]);
        let mut experiment = Experiment::default();
        experiment.model.decoder_layers = Some(1);
        experiment.data.train.0 = vec![SourceConfig::files(dir.join("train.csv"))];
        experiment.data.valid = Some(SourceConfig::files(dir.join("train.csv")));
        experiment.data.pad = Pad::Window;
        experiment.data.batch_size = 3;
        experiment.loss.distillation =
            Some(DistillationConfig { teacher: BUNDLED[0].into(), weight: 1.5, ..Default::default() });
        experiment
    }

    fn run(experiment: &Experiment) -> Run {
        experiment.validate().expect("valid");
        experiment.build().expect("a run")
    }

    /// Returns the loss terms of the first batch with their sums, and the gradient of the decoder's last norm.
    fn first(run: &Run) -> (Vec<LossTerm>, Vec<f32>, Vec<f32>) {
        let device = run.device.clone().autodiff();
        let model = burn::module::Module::train(run.model.clone());
        let (_, mut batch) = run.batches.epoch(0, 0).next().expect("a batch").expect("read");
        let terms = run.objective.loss_terms(&batch);
        let input = run.objective.upload(&mut batch, &device).expect("uploaded");
        let sums = run.objective.losses(&model, &batch, input, &device).expect("losses");
        let total = terms.iter().map(|term| {
            let (_, sum) = sums.iter().find(|(name, _)| *name == term.name).expect("its sum");
            sum.clone().mul_scalar(term.weight / term.count)
        });
        let gradients = total.reduce(|a, b| a + b).expect("terms").backward();
        let norm = model.backbone.downcast_ref::<Whisper>().expect("a Whisper").decoder.layer_norm.weight.val();
        let gradient = norm.grad(&gradients).expect("a gradient").try_into_vec_as().expect("floats");
        (terms, sums.into_iter().map(|(_, sum)| sum.into_scalar::<f32>()).collect(), gradient)
    }

    #[test]
    fn a_student_learns_from_text_and_teacher() {
        let dir = tempfile::tempdir().expect("a directory");
        let student = experiment(dir.path());
        let (terms, sums, gradient) = first(&run(&student));
        // Texts of one to three characters, each with its end.
        let term = |name: &'static str, weight| LossTerm { name: name.into(), weight, count: 9.0 };
        assert_eq!(terms, [term("text", 1.0), term(DISTILLATION, 1.5)]);
        assert!(sums[1] > 0.1, "{sums:?}");
        let mut alone = student.clone();
        alone.loss.distillation = None;
        let (_, text, of_text) = first(&run(&alone));
        assert!((sums[0] - text[0]).abs() < 1e-3 * text[0], "{} and {}", sums[0], text[0]);
        assert!(gradient.iter().zip(&of_text).any(|(a, b)| (a - b).abs() > 1e-3), "the teacher changes the gradient");
    }

    #[test]
    fn a_whole_model_diverges_from_itself_by_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut whole = experiment(dir.path());
        whole.model.decoder_layers = None;
        let (_, sums, gradient) = first(&run(&whole));
        assert!(sums[1].abs() < 1e-3, "{sums:?}");
        whole.loss.distillation = None;
        let (_, _, of_text) = first(&run(&whole));
        assert!(gradient.iter().zip(&of_text).all(|(a, b)| (a - b).abs() < 1e-4), "{gradient:?} and {of_text:?}");
    }

    #[test]
    fn a_frozen_encoder_is_the_teachers_too_and_its_states_serve_both() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut student = experiment(dir.path());
        student.model.trainable = Trainable::Decoder;
        let (_, sums, _) = first(&run(&student));
        for dtype in [FrozenDtype::F32, FrozenDtype::Bf16] {
            let teacher = student.loss.distillation.as_mut().expect("a teacher");
            teacher.frozen_dtype = dtype;
            let run = run(&student);
            assert!(run.objective.teacher.as_ref().is_some_and(|teacher| !teacher.reads_input()));
            let (_, rounded, _) = first(&run);
            assert!((rounded[1] - sums[1]).abs() < 0.05 * sums[1], "{rounded:?} and {sums:?}");
        }
        student.loss.distillation.as_mut().expect("a teacher").frozen_dtype = FrozenDtype::F32;
        student.data.cache = CacheConfig::of(CacheWhat::Encoder, Some(dir.path().join("cache")));
        let run = run(&student);
        let (_, filled, _) = first(&run);
        assert_eq!(first(&run).1, filled, "from the cache");
        assert!((filled[1] - sums[1]).abs() < 1e-2 * sums[1], "{filled:?} and {sums:?}");
    }

    #[test]
    fn a_teacher_whose_encoder_was_trained_a_little_keeps_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut teacher = ModelConfig::named(Path::new(BUNDLED[0])).load(&Device::default(), 0).expect("a model");
        let norm = &mut teacher.model.encoder.layer_norm;
        norm.weight = burn::module::Param::from_tensor(norm.weight.val().mul_scalar(1.001));
        let folder = dir.path().join("tuned");
        teacher.save(&folder, undertone_store::Dtype::F32).expect("saved");
        let mut student = experiment(dir.path());
        student.model.trainable = Trainable::Decoder;
        student.loss.distillation.as_mut().expect("a teacher").teacher = folder;
        assert!(run(&student).objective.teacher.as_ref().is_some_and(|teacher| teacher.reads_input()));
    }

    #[test]
    fn a_teacher_that_cannot_teach_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = |experiment: &Experiment| {
            let found = experiment.validate().map_err(|error| error.to_string());
            found.and_then(|()| experiment.build().map(|_| ()).map_err(|error| error.to_string())).expect_err("refused")
        };
        let mut other = experiment(dir.path());
        let files = dir.path().join("other");
        let mut teacher = ModelConfig::named(Path::new(BUNDLED[0])).load(&Device::default(), 0).expect("a model");
        teacher.tokenizer = undertone_model::whisper::WhisperTokenizer::of_characters("zyx", &["en"]).expect("one");
        let config =
            undertone_model::whisper::WhisperConfig { d_model: 8, encoder_attention_heads: 1, ..teacher.config };
        let config = undertone_model::whisper::WhisperConfig { decoder_attention_heads: 1, ..config };
        let small = PretrainedWhisper::init(config, teacher.tokenizer, teacher.generation, &Device::default());
        small.expect("a model").save(&files, undertone_store::Dtype::F32).expect("saved");
        other.loss.distillation.as_mut().expect("a teacher").teacher = files;
        assert!(refused(&other).contains("tokens, and the model has"), "{}", refused(&other));
        let mut cached = experiment(dir.path());
        cached.model.trainable = Trainable::Decoder;
        cached.data.cache = CacheConfig::of(CacheWhat::Encoder, Some(dir.path().join("cache")));
        // A student with fewer blocks in the encoder has another one.
        cached.model.encoder_layers = Some(1);
        assert!(refused(&cached).contains("has another encoder than the model"), "{}", refused(&cached));
        let mut tasks = experiment(dir.path());
        tasks.model.trainable = Trainable::Lora;
        assert!(refused(&tasks).contains("`model.decoder_layers` takes blocks out"), "{}", refused(&tasks));
        let mut nobody = experiment(dir.path());
        nobody.loss.distillation = Some(DistillationConfig::default());
        assert!(refused(&nobody).contains("`loss.distillation.teacher` is missing"), "{}", refused(&nobody));
    }
}
