//! Whisper's loss and its judgement, as the Learner asks for them.

use crate::work::speech_work;
use crate::{ELEMENTS, SpeechDataset, WhisperBatch, WhisperCollate};
use crate::{LossConfig, TextNormalizer};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use undertone_data::loader::Loader;
use undertone_fit::{Workload, note_workload};
use undertone_model::layers::Linear;
use undertone_model::whisper::{PretrainedWhisper, Whisper};
use undertone_ops::{CrossEntropyOptions, linear_cross_entropy};
use undertone_store::Dtype;
use undertone_train::metrics::{ErrorRate, cer, wer};
use undertone_train::{BoxError, Evaluation, Example, LossTerm, Objective, Work};

/// Whisper, and the heads that only training needs.
#[derive(Module, Debug)]
pub struct SpeechModel {
    /// What is kept.
    pub whisper: Whisper,
    /// Encoder output → character token.
    pub character_head: Option<Linear>,
    /// Early encoder layer → Morse element.
    pub element_head: Option<Linear>,
}

impl SpeechModel {
    /// Adds the heads that `loss` asks for, on the Whisper's device.
    pub fn new(whisper: &PretrainedWhisper, loss: &LossConfig, device: &Device) -> Self {
        let d = whisper.config.d_model;
        let head = |weight: f64, classes| {
            (weight > 0.0).then(|| Linear::init(d, classes, true, (d as f64).powf(-0.5), device))
        };
        Self {
            whisper: whisper.model.clone(),
            character_head: head(loss.alignment.characters, whisper.config.vocab_size),
            element_head: head(loss.alignment.elements, ELEMENTS),
        }
    }

    /// Keeps only the input of every `every` blocks for the backward pass, which runs them again; none keeps everything.
    pub fn with_gradient_checkpointing(self, every: Option<NonZeroUsize>) -> Self {
        Self { whisper: self.whisper.with_gradient_checkpointing(every), ..self }
    }
}

/// Fine-tuning Whisper: cross-entropy of the text, judged by generating it.
pub struct WhisperObjective {
    whisper: PretrainedWhisper,
    loss: LossConfig,
    normalizer: TextNormalizer,
    valid: Loader<SpeechDataset, WhisperCollate>,
    device: Device,
}

/// How many samples an evaluation shows.
const EXAMPLES: usize = 3;

impl WhisperObjective {
    /// An objective judged on `valid`; `whisper` gives vocabulary and dimensions, `device` has no autodiff.
    pub fn new(
        whisper: PretrainedWhisper,
        loss: LossConfig,
        normalizer: TextNormalizer,
        valid: Loader<SpeechDataset, WhisperCollate>,
        device: Device,
    ) -> Self {
        Self { whisper, loss, normalizer, valid, device }
    }

    /// Where in the window the batch lies, in encoder positions.
    fn position(&self, batch: &WhisperBatch) -> usize {
        let room = self.whisper.config.max_source_positions - batch.frames.div_ceil(2);
        if self.loss.random_position { (batch.draw % (room as u64 + 1)) as usize } else { 0 }
    }

    fn text_loss(
        &self,
        model: &Whisper,
        states: Tensor<3>,
        batch: &WhisperBatch,
        options: CrossEntropyOptions,
        device: &Device,
    ) -> Tensor<1> {
        let rows = batch.names.len();
        let hidden = model.decode(states, ints(&batch.inputs, device).reshape([rows, batch.tokens]));
        let d = hidden.dims()[2];
        let hidden = hidden.reshape([rows * batch.tokens, d]);
        let embedding = model.decoder.embed_tokens.weight.val();
        linear_cross_entropy(hidden, embedding, None, ints(&batch.labels, device), options).sum
    }
}

impl Objective for WhisperObjective {
    type Model = SpeechModel;
    type Batch = WhisperBatch;
    /// Log-mel features, `[batch, mel bins, frames]`.
    type Input = Tensor<3>;

    fn samples(&self, batch: &WhisperBatch) -> usize {
        batch.names.len()
    }

    fn names(&self, batch: &WhisperBatch) -> Vec<String> {
        batch.names.clone()
    }

    fn work(&self, model: &SpeechModel, batch: &WhisperBatch) -> Work {
        speech_work(model, batch)
    }

    fn upload(&self, batch: &mut WhisperBatch, device: &Device) -> Result<Tensor<3>, BoxError> {
        note_workload(Workload::TrainingStep(batch.shape()));
        Ok(mel(batch, device))
    }

    fn counts(&self, batch: &WhisperBatch) -> Vec<f64> {
        let counted = |labels: &[i64]| labels.iter().filter(|l| **l >= 0).count() as f64;
        let mut counts = vec![counted(&batch.labels)];
        if let Some((characters, elements)) = &batch.alignment {
            let weights = &self.loss.alignment;
            counts.extend((weights.characters > 0.0).then(|| counted(characters)));
            counts.extend((weights.elements > 0.0).then(|| counted(elements)));
        }
        counts
    }

    fn losses(
        &self,
        model: &SpeechModel,
        batch: &WhisperBatch,
        mel: Tensor<3>,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let weights = &self.loss.alignment;
        let encoded = model.whisper.encoder.forward_tapped(mel, self.position(batch), weights.elements_layer);
        let options = CrossEntropyOptions { label_smoothing: self.loss.label_smoothing, ..Default::default() };
        let text = self.text_loss(&model.whisper, encoded.states.clone(), batch, options, device);
        let mut terms = vec![LossTerm { name: "text".into(), weight: 1.0, sum: text }];
        if let Some((characters, elements)) = &batch.alignment {
            let heads = [
                ("characters", weights.characters, &model.character_head, encoded.states, characters),
                ("elements", weights.elements, &model.element_head, encoded.tapped, elements),
            ];
            for (name, weight, head, states, targets) in heads {
                let Some(head) = head else { continue };
                let [rows, positions, d] = states.dims();
                let (states, bias) = (states.reshape([rows * positions, d]), head.bias.as_ref().map(Param::val));
                let options = CrossEntropyOptions::default();
                let sum = linear_cross_entropy(states, head.weight.val(), bias, ints(targets, device), options).sum;
                terms.push(LossTerm { name: name.into(), weight, sum });
            }
        }
        Ok(terms)
    }

    fn evaluate(&self, model: &SpeechModel, metrics: &[String]) -> Result<Evaluation, BoxError> {
        let wants = |name: &str| metrics.iter().any(|m| m == name);
        let options = self.whisper.generate_options();
        let (mut characters, mut words) = (ErrorRate::default(), ErrorRate::default());
        let (mut loss, mut tokens) = (0.0, 0.0);
        let mut examples = Vec::new();
        for batch in self.valid.epoch(0, 0) {
            let mut batch = batch?;
            note_workload(Workload::Evaluation(batch.shape()));
            let features = mel(&mut batch, &self.device);
            if wants("loss") {
                let states = model.whisper.encoder.forward(features.clone());
                let sum = self.text_loss(&model.whisper, states, &batch, CrossEntropyOptions::default(), &self.device);
                loss += f64::from(sum.into_scalar::<f32>());
                tokens += self.counts(&batch)[0];
            }
            let outputs = model.whisper.generate(features, &batch.prompts, &options);
            for ((name, text), output) in batch.names.iter().zip(&batch.texts).zip(outputs) {
                let hypothesis = self.whisper.tokenizer.decode(&output).trim().to_owned();
                let (reference, read) = (self.normalizer.normalize(text), self.normalizer.normalize(&hypothesis));
                characters += cer(&reference, &read);
                words += wer(&reference, &read);
                if examples.len() < EXAMPLES {
                    examples.push(Example { name: name.clone(), reference: text.clone(), hypothesis });
                }
            }
        }
        let found = [
            ("cer", characters.rate().unwrap_or(f64::NAN)),
            ("wer", words.rate().unwrap_or(f64::NAN)),
            ("loss", loss / f64::max(tokens, 1.0)),
        ];
        let metrics: BTreeMap<String, f64> =
            found.into_iter().filter(|(name, _)| wants(name)).map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Evaluation { metrics, examples, remarks: self.normalizer.remark().into_iter().collect() })
    }

    fn export(&self, model: &SpeechModel, directory: &Path) -> Result<(), BoxError> {
        let mut whisper = self.whisper.clone();
        whisper.model = model.whisper.clone();
        Ok(whisper.save(directory, Dtype::F32)?)
    }
}

/// `[batch, bins, frames]` on `device`, moved out of the batch: 30 MB of 32 windows need not be copied on the way.
pub(crate) fn mel(batch: &mut WhisperBatch, device: &Device) -> Tensor<3> {
    let shape = [batch.names.len(), batch.bins, batch.frames];
    Tensor::from_data(TensorData::new(std::mem::take(&mut batch.mel), shape), device)
}

fn ints(values: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(TensorData::from(values), device)
}
