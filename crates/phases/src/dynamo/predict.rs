//! Answers of a trained run to single inputs.

use super::answer::Answer;
use super::batch::{SampleInput, TaskBatch, TaskCollate, TaskSample};
use super::evaluate::input;
use super::head_config::{HeadConfig, SpanConfig, TagConfig};
use super::model::{Dynamo, Tapped};
use super::pretrained::{Pretrained, TextBackbone};
use super::setup::Setup;
use super::text_data::{Target, TextSample, spans};
use crate::text::{WindowLogits, best_spans, classify_features, tag_features};
use crate::{Experiment, Heard, RunError, SpeechSample, TranscribeError};
use burn::tensor::Tensor;
use std::path::Path;
use std::sync::Arc;
use undertone_data::audio;
use undertone_data::cut::pieces;
use undertone_data::loader::Collate;
use undertone_data::records::{OUTSIDE, Origin, Place, SpanRecord, TagRecord};
use undertone_model::lora::Gates;

/// A run's newest model, ready to answer.
pub struct Predictor {
    setup: Setup,
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
    /// For the first row.
    task: usize,
    /// For every row, `[rows, adapters]`.
    gates: Tensor<2>,
    /// Of the choice for the first row.
    confidence: f32,
}

/// A text as a task reads it.
struct Reading<'a> {
    backbone: &'a TextBackbone,
    task: usize,
    text: &'a str,
    context: Option<&'a str>,
}

impl Predictor {
    /// Loads the newest finished phase with a router.
    ///
    /// # Errors
    /// When there is none, or its parts cannot be had.
    pub fn load(experiment: &Experiment) -> Result<Self, RunError> {
        let setup = Setup::new(experiment)?;
        let (_, model) = super::analyze::newest(&setup)?;
        if model.router.is_none() {
            return Err(RunError::NoRouter(experiment.directory()));
        }
        // As long as what the adapters were judged on.
        let collate = setup.collate(false)?;
        Ok(Self { model, collate, setup })
    }

    /// Answers an audio file. What does not fit the window is cut where it is quietest, and every piece is routed by
    /// itself.
    ///
    /// # Errors
    /// When the file cannot be read, or the backbone reads text.
    pub fn audio(&self, path: &Path) -> Result<Vec<Prediction>, RunError> {
        let Pretrained::Whisper(whisper) = &self.setup.pretrained else {
            return Err(RunError::Modality("text: give it with --text"));
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
                heard: Heard::Audio(samples[piece].to_vec()),
                text: String::new(),
                prompt: prompt.len(),
                tokens,
                alignment: None,
                draw: 0,
            };
            let mut batch = self.batch(vec![SampleInput::Speech(sample)])?;
            let tapped = self.tap(&mut batch);
            let decision = self.decide(&tapped);
            let text = self.answers(&tapped, &decision, &batch).remove(0).text();
            Ok(Prediction { start, ..self.prediction(decision, text) })
        });
        answers.collect()
    }

    /// Answers a text, or a text and what it is about: a question and its context. The router reads it as it comes; the
    /// task it chooses then reads it as its records were read, cut to its own length, and is routed as those were.
    ///
    /// # Errors
    /// When the backbone hears speech, or the router takes it for a question and there is no context.
    pub fn text(&self, text: &str, context: Option<&str>) -> Result<Prediction, RunError> {
        let Pretrained::Text(backbone) = &self.setup.pretrained else {
            return Err(RunError::Modality("audio: give a file with --audio"));
        };
        let row = self.plain(backbone, text, context, backbone.text.model.max_tokens())?;
        let task = self.decide(&self.tap(&mut self.batch(vec![SampleInput::Text(row)])?)).task;
        let reading = Reading { backbone, task, text, context };
        match &self.setup.experiment.tasks[task].head {
            HeadConfig::Classify(head) => self.whole(&reading, head.max_length),
            HeadConfig::Seq2seq(head) => self.whole(&reading, head.max_source),
            HeadConfig::Span(head) => self.span(&reading, head),
            HeadConfig::Tag(head) => self.tags(&reading, head),
        }
    }

    /// What a label or a text is made of.
    fn whole(&self, reading: &Reading, length: usize) -> Result<Prediction, RunError> {
        let row = self.plain(reading.backbone, reading.text, reading.context, length)?;
        let (answers, decision) = self.answer_as(reading.task, vec![row])?;
        Ok(self.prediction(decision, answers[0].text()))
    }

    /// The part of the context that answers a question.
    fn span(&self, reading: &Reading, config: &SpanConfig) -> Result<Prediction, RunError> {
        let name = || self.setup.experiment.tasks[reading.task].name.clone();
        let context = reading.context.ok_or_else(|| RunError::NoContext(name()))?;
        let record = SpanRecord {
            id: String::new(),
            question: reading.text.to_owned(),
            context: context.to_owned(),
            answers: Vec::new(),
            origin: origin(),
        };
        let samples = spans(&[Arc::new(record)], &config.window(), &reading.backbone.framer)
            .map_err(|source| RunError::Records { task: name(), source: Box::new(source) })?;
        let (mut answers, mut first) = (Vec::new(), None);
        for part in samples.chunks(self.setup.experiment.data.eval_batch_size) {
            let (found, decision) = self.answer_as(reading.task, part.to_vec())?;
            answers.extend(found);
            first.get_or_insert(decision);
        }
        let windows: Vec<WindowLogits> = samples
            .iter()
            .zip(&answers)
            .filter_map(|(sample, answer)| match (&sample.target, answer) {
                (Target::Span { window, .. }, Answer::Span { start, end }) => Some(WindowLogits { window, start, end }),
                _ => None,
            })
            .collect();
        let said = best_spans(&windows, context, &config.answer())?.text().to_owned();
        first.map(|decision| self.prediction(decision, said)).ok_or_else(|| RunError::NoContext(name()))
    }

    /// The words of a text that have a tag, each with it.
    fn tags(&self, reading: &Reading, config: &TagConfig) -> Result<Prediction, RunError> {
        let words: Vec<String> = reading.text.split_whitespace().map(str::to_owned).collect();
        let outside = config.labels.iter().position(|label| label == OUTSIDE).unwrap_or_default();
        let record = TagRecord { tags: vec![outside; words.len()], words, origin: origin() };
        let framer = &reading.backbone.framer;
        let features = tag_features(framer, std::slice::from_ref(&record), config.max_length)?.remove(0);
        self.tell_cut(features.cut);
        let sample = TextSample {
            name: record.origin.to_string(),
            ids: features.ids.clone(),
            type_ids: features.type_ids.clone(),
            target: Target::Tags { features: Arc::new(features.clone()), tags: record.tags.clone() },
        };
        let (answers, decision) = self.answer_as(reading.task, vec![sample])?;
        let tags = match &answers[0] {
            Answer::Tags(tokens) => features.word_tags(tokens, outside)?,
            _ => record.tags.clone(),
        };
        let named = record.words.iter().zip(tags).filter(|(_, tag)| *tag != outside);
        let named: Vec<String> = named.map(|(word, tag)| format!("{word} ({})", config.labels[tag])).collect();
        Ok(self.prediction(decision, named.join(" ")))
    }

    /// A row of a text or a pair, whatever is to become of it.
    fn plain(
        &self,
        backbone: &TextBackbone,
        text: &str,
        context: Option<&str>,
        length: usize,
    ) -> Result<TextSample, RunError> {
        let row = classify_features(&backbone.framer, &[(text, context)], length)?.remove(0);
        if length < backbone.text.model.max_tokens() {
            self.tell_cut(row.cut);
        }
        let name = origin().to_string();
        Ok(TextSample { name, ids: row.ids, type_ids: row.type_ids, target: Target::Label(0) })
    }

    fn tell_cut(&self, tokens: usize) {
        if tokens > 0 {
            eprintln!("the text is too long for the task: its last {tokens} tokens are not read");
        }
    }

    /// What a task's head says to rows, each through the adapters that the router opens for it; and the decision for the
    /// first.
    fn answer_as(&self, task: usize, rows: Vec<TextSample>) -> Result<(Vec<Answer>, Decision), RunError> {
        let mut batch = self.batch(rows.into_iter().map(SampleInput::Text).collect())?;
        let tapped = self.tap(&mut batch);
        let decision = Decision { task, ..self.decide(&tapped) };
        Ok((self.answers(&tapped, &decision, &batch), decision))
    }

    fn batch(&self, inputs: Vec<SampleInput>) -> Result<TaskBatch, RunError> {
        let items = inputs.into_iter().map(|input| TaskSample { task: 0, input }).collect();
        self.collate.collate(items).map_err(RunError::Judge)
    }

    fn tap(&self, batch: &mut TaskBatch) -> Tapped {
        let (input, padding) = input(batch, 0, &self.setup.device);
        self.model.tap(input, padding)
    }

    fn decide(&self, tapped: &Tapped) -> Decision {
        let router = self.model.router.as_ref().expect("a predictor has a router");
        let routing = router.forward(tapped.pooled());
        Decision {
            task: routing.choices()[0],
            gates: routing.inference_gates(&self.setup.experiment.router),
            confidence: routing.confidences().into_data().iter::<f32>().next().unwrap_or_default(),
        }
    }

    /// What the chosen head says to every row.
    fn answers(&self, tapped: &Tapped, decision: &Decision, batch: &TaskBatch) -> Vec<Answer> {
        let (gates, chosen) = (Gates::Each(decision.gates.clone()), vec![decision.task; batch.tasks.len()]);
        let (pretrained, tasks) = (&self.setup.pretrained, &self.setup.experiment.tasks);
        let states = self.model.encode(tapped, Some(&gates)).states;
        self.model.answer(pretrained, tasks, states, &tapped.padding, Some(gates), batch, &chosen)
    }

    fn prediction(&self, decision: Decision, text: String) -> Prediction {
        Prediction {
            start: 0.0,
            task: self.setup.experiment.tasks[decision.task].name.clone(),
            text,
            gates: decision.gates.narrow(0, 0, 1).into_data().iter::<f32>().collect(),
            confidence: decision.confidence,
        }
    }
}

/// Where something that was typed comes from.
fn origin() -> Origin {
    Origin { path: Path::new("the text").into(), place: Place::Line(1) }
}
