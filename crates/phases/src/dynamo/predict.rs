//! Answers of a trained run to single inputs.

use super::answer::Answer;
use super::batch::{SampleInput, TaskBatch, TaskCollate, TaskSample};
use super::evaluate::input;
use super::head_config::{HeadConfig, OUTSIDE};
use super::model::{Dynamo, Tapped};
use super::pretrained::{Pretrained, TextBackbone};
use super::run::DynamoError;
use super::setup::Setup;
use super::text_data::{Target, TextDataError, TextSample, spans};
use crate::text::{WindowLogits, best_spans, classify_features, tag_features};
use crate::transcribe::pieces;
use crate::{Experiment, SpeechSample, TranscribeError};
use burn::tensor::Tensor;
use std::path::Path;
use std::sync::Arc;
use undertone_data::audio;
use undertone_data::loader::Collate;
use undertone_data::records::{Origin, Place, SpanRecord, TagRecord};
use undertone_model::lora::Gates;

/// A run's newest model, ready to answer.
pub struct Predictor<'a> {
    setup: Setup<'a>,
    model: Dynamo,
    collate: TaskCollate,
}

/// An answer, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Where in the audio it begins, in seconds.
    pub start: f64,
    /// The task whose head answered.
    pub task: String,
    /// What it said: a text, a label, a part of the context, or words with their tags.
    pub text: String,
    /// How much each adapter counted, in the order of the tasks.
    pub gates: Vec<f32>,
    /// How sure the router is of its choice.
    pub confidence: f32,
}

/// What the router decided.
struct Decision {
    task: usize,
    gates: Tensor<2>,
    confidence: f32,
}

impl<'a> Predictor<'a> {
    /// Loads the newest finished phase with a router.
    ///
    /// # Errors
    /// When there is none, or its parts cannot be had.
    pub fn load(experiment: &'a Experiment) -> Result<Self, DynamoError> {
        let setup = Setup::new(experiment)?;
        let (_, model) = super::analyze::newest(&setup)?;
        if model.router.is_none() {
            return Err(DynamoError::NoRouter(experiment.directory()));
        }
        // As long as what the adapters were judged on.
        let collate = setup.collate(experiment.data.eval_pad)?;
        Ok(Self { model, collate, setup })
    }

    /// Answers an audio file. What does not fit the window is cut where it is quietest, and every piece is routed by
    /// itself.
    ///
    /// # Errors
    /// When the file cannot be read, or the backbone reads text.
    pub fn audio(&self, path: &Path) -> Result<Vec<Prediction>, DynamoError> {
        let Pretrained::Whisper(whisper) = &self.setup.pretrained else {
            return Err(DynamoError::Modality("text: give it with --text"));
        };
        let samples = audio::load(path).map_err(TranscribeError::from)?;
        let prompt = whisper.tokenizer.prompt(&whisper.generation, None, None).map_err(TranscribeError::from)?;
        let window = whisper.config.max_frames() * 160;
        let answers = pieces(&samples, window).into_iter().map(|piece| {
            let start = piece.start as f64 / f64::from(audio::SAMPLE_RATE);
            let mut tokens = prompt.clone();
            tokens.push(whisper.tokenizer.end());
            let sample = SpeechSample {
                name: path.display().to_string(),
                audio: samples[piece].to_vec(),
                text: String::new(),
                prompt: prompt.len(),
                tokens,
                alignment: None,
                draw: 0,
            };
            let batch = self.batch(vec![SampleInput::Speech(sample)])?;
            let tapped = self.tap(&batch);
            let decision = self.decide(&tapped);
            let text = self.answers(&tapped, &decision, &batch).remove(0).text();
            Ok(Prediction { start, ..self.prediction(decision, text) })
        });
        answers.collect()
    }

    /// Answers a text, or a text and what it is about: a question and its context.
    ///
    /// # Errors
    /// When the backbone hears speech, or the router takes it for a question and there is no context.
    pub fn text(&self, text: &str, context: Option<&str>) -> Result<Prediction, DynamoError> {
        let Pretrained::Text(backbone) = &self.setup.pretrained else {
            return Err(DynamoError::Modality("audio: give a file with --audio"));
        };
        let longest = backbone.text.model.max_tokens();
        let row = classify_features(&backbone.framer, &[(text, context)], longest)?.remove(0);
        let batch = self.batch(vec![SampleInput::Text(TextSample {
            name: "the text".into(),
            ids: row.ids,
            type_ids: row.type_ids,
            target: Target::Label(0),
        })])?;
        let tapped = self.tap(&batch);
        let decision = self.decide(&tapped);
        let said = match &self.setup.experiment.tasks[decision.task].head {
            HeadConfig::Classify(_) | HeadConfig::Seq2seq(_) => {
                self.answers(&tapped, &decision, &batch).remove(0).text()
            }
            HeadConfig::Span(_) => self.span(backbone, text, context, &decision)?,
            HeadConfig::Tag(_) => self.tags(backbone, text, &decision)?,
        };
        Ok(self.prediction(decision, said))
    }

    /// The part of the context that answers a question.
    fn span(
        &self,
        backbone: &TextBackbone,
        question: &str,
        context: Option<&str>,
        decision: &Decision,
    ) -> Result<String, DynamoError> {
        let task = &self.setup.experiment.tasks[decision.task];
        let HeadConfig::Span(config) = &task.head else { return Ok(String::new()) };
        let context = context.ok_or_else(|| DynamoError::NoContext(task.name.clone()))?;
        let record = SpanRecord {
            id: String::new(),
            question: question.to_owned(),
            context: context.to_owned(),
            answers: Vec::new(),
            origin: origin(),
        };
        let samples = spans(&[Arc::new(record)], &config.window(), &backbone.framer);
        let samples = samples.map_err(|source: TextDataError| DynamoError::Data { task: task.name.clone(), source })?;
        let batch = self.batch(samples.iter().cloned().map(SampleInput::Text).collect())?;
        let answers = self.answers(&self.tap(&batch), decision, &batch);
        let windows: Vec<WindowLogits> = samples
            .iter()
            .zip(&answers)
            .filter_map(|(sample, answer)| match (&sample.target, answer) {
                (Target::Span { window, .. }, Answer::Span { start, end }) => Some(WindowLogits { window, start, end }),
                _ => None,
            })
            .collect();
        Ok(best_spans(&windows, context, &config.answer())?.text().to_owned())
    }

    /// The words of a text that have a tag, each with it.
    fn tags(&self, backbone: &TextBackbone, text: &str, decision: &Decision) -> Result<String, DynamoError> {
        let HeadConfig::Tag(config) = &self.setup.experiment.tasks[decision.task].head else {
            return Ok(String::new());
        };
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let outside = config.labels.iter().position(|label| label == OUTSIDE).unwrap_or_default();
        let record = TagRecord { tags: vec![outside; words.len()], words, origin: origin() };
        let features = tag_features(&backbone.framer, std::slice::from_ref(&record), config.max_length)?.remove(0);
        let sample = TextSample {
            name: "the text".into(),
            ids: features.ids.clone(),
            type_ids: features.type_ids.clone(),
            target: Target::Tags { features: Arc::new(features.clone()), tags: record.tags.clone() },
        };
        let batch = self.batch(vec![SampleInput::Text(sample)])?;
        let answer = self.answers(&self.tap(&batch), decision, &batch).remove(0);
        let Answer::Tags(tokens) = answer else { return Ok(String::new()) };
        let tags = features.word_tags(&tokens, outside)?;
        let named = record.words.iter().zip(tags).filter(|(_, tag)| *tag != outside);
        Ok(named.map(|(word, tag)| format!("{word} ({})", config.labels[tag])).collect::<Vec<_>>().join(" "))
    }

    fn batch(&self, inputs: Vec<SampleInput>) -> Result<TaskBatch, DynamoError> {
        let items = inputs.into_iter().map(|input| TaskSample { task: 0, input }).collect();
        self.collate.collate(items).map_err(|e| DynamoError::Judge(e.into()))
    }

    fn tap(&self, batch: &TaskBatch) -> Tapped {
        let (input, padding) = input(batch, &self.setup.device);
        self.model.tap(input, padding)
    }

    fn decide(&self, tapped: &Tapped) -> Decision {
        let router = self.model.router.as_ref().expect("a predictor has a router");
        let routing = router.forward(tapped.pooled.clone());
        Decision {
            task: routing.choices()[0],
            gates: routing.inference_gates(&self.setup.experiment.router),
            confidence: routing.confidences().into_scalar::<f32>(),
        }
    }

    /// What the chosen head says to every row.
    fn answers(&self, tapped: &Tapped, decision: &Decision, batch: &TaskBatch) -> Vec<Answer> {
        let rows = batch.tasks.len();
        let gates = Gates::Each(decision.gates.clone().repeat_dim(0, rows));
        let chosen = vec![decision.task; rows];
        let (pretrained, tasks) = (&self.setup.pretrained, &self.setup.experiment.tasks);
        self.model.answer(pretrained, tasks, tapped, Some(gates), batch, &chosen)
    }

    fn prediction(&self, decision: Decision, text: String) -> Prediction {
        Prediction {
            start: 0.0,
            task: self.setup.experiment.tasks[decision.task].name.clone(),
            text,
            gates: decision.gates.into_data().iter::<f32>().collect(),
            confidence: decision.confidence,
        }
    }
}

/// Where something that was typed comes from.
fn origin() -> Origin {
    Origin { path: Path::new("the text").into(), place: Place::Line(1) }
}
