//! Answers of a trained run to single inputs.

use super::arrays::input;
use super::batch::{SampleInput, TaskBatch, TaskCollate, TaskSample};
use super::model::{Tapped, TaskModel};
use super::pretrained::Pretrained;
use super::setup::Setup;
use super::text_data::TextDataError;
use crate::transcribe::pieces_for;
use crate::{Experiment, Heard, RunError, SpeechSample, TranscribeError};
use burn::tensor::Tensor;
use std::path::Path;
use undertone_data::audio;
use undertone_data::loader::Collate;
use undertone_model::lora::Gates;
use undertone_tasks::{Answer, ReadError, TextSample, Typed, TypedError, typed_origin};

/// A run's newest model, ready to answer.
pub struct Predictor {
    setup: Setup,
    model: TaskModel,
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
        let answers = pieces_for(whisper, &samples).into_iter().map(|piece| {
            let piece = piece.samples;
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
            let tapped = self.tap(&mut batch)?;
            let decision = self.decide(&tapped);
            let text = self.answers(&tapped, &decision, &batch)?.remove(0).said().to_owned();
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
        let (name, longest) = (typed_origin().to_string(), backbone.max_tokens);
        let (row, _) = TextSample::plain(name, text, context, longest, &backbone.framer)?;
        let task = self.decide(&self.tap(&mut self.batch(vec![SampleInput::Text(row)])?)?).task;
        let config = &self.setup.experiment.tasks[task];
        let typed = Typed { text, context };
        let read = config.head.typed(&typed, &backbone.framer).map_err(|error| match error {
            TypedError::NoContext => RunError::NoContext(config.name.clone()),
            TypedError::Text(source) => {
                let source = Box::new(TextDataError::Read(ReadError::Text(source)));
                RunError::Records { task: config.name.clone(), source }
            }
        })?;
        tell_cut(read.cut);
        let (mut answers, mut first) = (Vec::new(), None);
        for part in read.samples.chunks(self.setup.experiment.data.eval_batch_size) {
            let (found, decision) = self.answer_as(task, part.to_vec())?;
            answers.extend(found);
            first.get_or_insert(decision);
        }
        let said = config.head.said(&typed, &read.samples, &answers).map_err(RunError::Judge)?;
        let decision = first.ok_or_else(|| RunError::Judge("the text has nothing to be read".into()))?;
        Ok(self.prediction(decision, said))
    }

    /// What a task's head says to rows, each through the adapters that the router opens for it; and the decision for the
    /// first.
    fn answer_as(&self, task: usize, rows: Vec<TextSample>) -> Result<(Vec<Answer>, Decision), RunError> {
        let mut batch = self.batch(rows.into_iter().map(SampleInput::Text).collect())?;
        let tapped = self.tap(&mut batch)?;
        let decision = Decision { task, ..self.decide(&tapped) };
        Ok((self.answers(&tapped, &decision, &batch)?, decision))
    }

    fn batch(&self, inputs: Vec<SampleInput>) -> Result<TaskBatch, RunError> {
        let items = inputs.into_iter().map(|input| TaskSample { task: 0, input }).collect();
        self.collate.collate(items).map_err(RunError::Judge)
    }

    fn tap(&self, batch: &mut TaskBatch) -> Result<Tapped, RunError> {
        let (input, padding) = input(batch, 0, &self.setup.device);
        self.model.tap(input, padding).map_err(|error| RunError::Judge(error.into()))
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
    fn answers(&self, tapped: &Tapped, decision: &Decision, batch: &TaskBatch) -> Result<Vec<Answer>, RunError> {
        let (gates, chosen) = (Gates::Each(decision.gates.clone()), vec![decision.task; batch.tasks.len()]);
        let (pretrained, tasks) = (&self.setup.pretrained, &self.setup.experiment.tasks);
        let states = self.model.encode(tapped, Some(&gates)).states;
        let answers = self.model.answer(pretrained, tasks, states, &tapped.padding, Some(gates), batch, &chosen);
        answers.map_err(RunError::Judge)
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

fn tell_cut(tokens: usize) {
    if tokens > 0 {
        tracing::warn!("the text is too long for the task: its last {tokens} tokens are not read");
    }
}
